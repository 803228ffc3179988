"""The simulator: a hand-worked schedule, byte-equal runs, and what holds in every run."""

import heapq
import json
import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.arrivals import Arrival, PoolJob, poisson_arrivals
from scheduler_core.cluster import Machine, demand_of, paper_machines
from scheduler_core.errors import BadInput
from scheduler_core.placement import PLACEMENTS, best_fit
from scheduler_core.predictors import OraclePredictor, oracle_policy
from scheduler_core.queueing import QUEUE_POLICIES
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.simulator import Simulation, simulate
from scheduler_core.truth import TRUTHS, unchanged
from tests.scheduler_core.cases import ToyPredictor, arrival, job, machines, measured, request, workloads

GOLDEN = Path(__file__).resolve().parents[1] / "golden"

FIVE_JOBS = [
    arrival(0.0, "A", request(8, 4, 4), run_s=100.0),
    arrival(10.0, "B", request(2, 2, 1), run_s=50.0, instances=2),
    arrival(20.0, "C", request(2, 2, 4), run_s=40.0),
    arrival(30.0, "D", request(2, 2, 2), run_s=20.0),
    arrival(40.0, "E", request(1, 1, 2), run_s=30.0, instances=3),
]
"""On two machines of 4 GPUs and 8 cores, worked by hand: A fills m0; B's two instances go to m1, which leaves 2 GPUs
there; C (4 GPUs) waits and D (2 GPUs) overtakes it; E needs 6 GPUs and waits. D's end at 50 helps neither; B's at 60
frees m1 for C. A and C end together at 100, and E's three instances fill m0 first."""


def brief(run: Simulation) -> list[tuple[object, ...]]:
    return [(event["time_s"], event["event"], event["job_id"], event["machines"]) for event in run.events]


def as_bytes(run: Simulation) -> bytes:
    return "".join(json.dumps(event) + "\n" for event in run.events).encode()


def test_five_jobs_run_as_worked_by_hand() -> None:
    run = simulate(FIVE_JOBS, machines(), horizon_s=200.0)

    assert brief(run) == [
        (0.0, "arrive", "A", ""),
        (0.0, "start", "A", "m0:1"),
        (10.0, "arrive", "B", ""),
        (10.0, "start", "B", "m1:2"),
        (20.0, "arrive", "C", ""),
        (30.0, "arrive", "D", ""),
        (30.0, "start", "D", "m1:1"),
        (40.0, "arrive", "E", ""),
        (50.0, "complete", "D", "m1:1"),
        (60.0, "complete", "B", "m1:2"),
        (60.0, "start", "C", "m1:1"),
        (100.0, "complete", "A", "m0:1"),
        (100.0, "complete", "C", "m1:1"),
        (100.0, "start", "E", "m0:2 m1:1"),
        (130.0, "complete", "E", "m0:2 m1:1"),
    ]


def test_the_event_log_is_the_golden_one_to_the_byte() -> None:
    run = simulate(FIVE_JOBS, machines(), horizon_s=200.0)

    assert as_bytes(run) == (GOLDEN / "five_jobs_events.jsonl").read_bytes()


def test_a_killed_job_loses_its_progress_and_runs_again_in_full() -> None:
    # Half of the memory it needs: it dies after half of its run and waits for the room its full request takes.
    killed = arrival(0.0, "K", request(4, 12, 1), run_s=100.0, mem_gib=10.0)
    other = arrival(0.0, "O", request(4, 8, 1), run_s=80.0)
    scale = partial(shrink, predictor=ToyPredictor(), policy=ShrinkPolicy())

    run = simulate([killed, other], machines(count=1), horizon_s=500.0, scale=scale)

    assert brief(run)[2:] == [
        (0.0, "start", "K", "m0:1"),
        (0.0, "start", "O", "m0:1"),
        (50.0, "kill", "K", "m0:1"),
        (50.0, "start", "K", "m0:1"),
        (80.0, "complete", "O", "m0:1"),
        (150.0, "complete", "K", "m0:1"),
    ]
    assert [execution.allocated for execution in run.records[0].executions] == [request(2, 6, 0.5), request(4, 12, 1)]


def test_capacity_is_given_back_before_it_is_asked_for() -> None:
    run = simulate(
        [arrival(0.0, "a", request(1, 1, 4), run_s=10.0), arrival(10.0, "b", request(1, 1, 4), run_s=10.0)],
        machines(count=1),
        horizon_s=30.0,
    )

    assert run.records[1].executions[0].start_s == 10.0


def test_a_gang_that_never_fits_is_reported_and_left_out() -> None:
    run = simulate([arrival(0.0, "huge", request(1, 1, 4), instances=3)], machines(count=2), horizon_s=10.0)

    assert [event["event"] for event in run.events] == ["arrive", "never_fits"]
    assert run.records[0].never_fits


def pool_of(seed: int, size: int = 60) -> list[PoolJob]:
    rng = np.random.default_rng(seed)
    return [
        PoolJob(
            job=job(
                f"p{i}",
                request(*rng.uniform(1.0, 8.0, 2), float(rng.choice([0.25, 0.5, 1.0, 2.0]))),
                instances=int(rng.integers(1, 9)),
            ),
            measured=measured(
                float(rng.lognormal(6.5, 1.0)),
                cpu_cores=rng.uniform(0.1, 8.0),
                mem_gib=rng.uniform(0.1, 9.0),
                gpus=rng.uniform(0.0, 1.0),
            ),
        )
        for i in range(size)
    ]


@pytest.mark.parametrize("policy", sorted(QUEUE_POLICIES))
@pytest.mark.parametrize("truth", sorted(TRUTHS))
def test_same_seed_same_bytes(policy: str, truth: str) -> None:
    def run() -> bytes:
        arrivals = poisson_arrivals(pool_of(1), rate_per_h=60.0, horizon_s=7200.0, rng=np.random.default_rng(5))
        scale = partial(shrink, predictor=ToyPredictor(peak=(2.0, 3.0, 0.2, 1.0)), policy=ShrinkPolicy())
        return as_bytes(simulate(arrivals, paper_machines(), horizon_s=7200.0, scale=scale, policy=policy, truth=truth))

    first = run()

    assert first == run()
    assert first.count(b"\n") > 200


def replay(run: Simulation, gpu_milli: dict[str, int]) -> float:
    """Go through the log: assert that no machine ever gives more than it has; return the GPU-seconds held."""
    held: Counter[str] = Counter()
    gpu_s = 0.0
    since: dict[int, float] = {}
    for event in run.events:
        if event["event"] not in ("start", "complete", "kill"):
            continue
        sign = 1 if event["event"] == "start" else -1
        per_instance = demand_of(request(0.0, 0.0, float(event["gpus"])), 1).units[2]
        serial, now_s = int(event["serial"]), float(event["time_s"])
        for part in str(event["machines"]).split():
            name, count = part.split(":")
            held[name] += sign * per_instance * int(count)
            assert 0 <= held[name] <= gpu_milli[name]
        if sign > 0:
            since[serial] = now_s
        else:
            gpu_s += per_instance / 1000 * int(event["instances"]) * (now_s - since.pop(serial))
    assert not since, "every run ends"
    return gpu_s


SCALES: dict[str, Any] = {
    "requested": lambda arrivals: None,
    "shrunk": lambda arrivals: partial(shrink, predictor=ToyPredictor(peak=(1.0, 2.0, 0.1, 1.0))),
    "oracle": lambda arrivals: partial(
        shrink,
        predictor=OraclePredictor(measured={each.drawn.job: each.drawn.measured for each in arrivals}),
        policy=oracle_policy({}, 16.0),
    ),
}


@pytest.mark.parametrize("arm", sorted(SCALES))
@settings(deadline=None)
@given(
    arrivals=workloads(),
    truth=st.sampled_from(sorted(TRUTHS)),
    policy=st.sampled_from(sorted(QUEUE_POLICIES)),
    placement=st.sampled_from(sorted(PLACEMENTS)),
)
def test_without_a_horizon_every_job_ends_and_gpu_seconds_are_conserved(
    arm: str, arrivals: list[Arrival], truth: str, policy: str, placement: str
) -> None:
    run = simulate(
        arrivals,
        machines(),
        horizon_s=math.inf,
        scale=SCALES[arm](arrivals),
        truth=truth,
        policy=policy,
        placement=placement,
    )

    held_gpu_s = replay(run, {machine.name: machine.gpus * 1000 for machine in run.machines})
    expected_gpu_s = 0.0
    for record in run.records:
        assert (record.completed_s is not None) != record.never_fits
        assert len(record.executions) == len(record.killed_s) + (not record.never_fits)
        drawn = record.arrival.drawn
        for execution in record.executions:
            # What was asked for and granted, times how long the truth says it lasts: from the records, not the log.
            share = math.ceil(execution.allocated.gpus * 1000 - 1e-6) / 1000
            expected_gpu_s += share * drawn.job.instances * execution.outcome.run_s
        if arm == "requested" or truth == "unchanged":
            assert [e.outcome.run_s for e in record.executions] == [drawn.measured.run_s] * (not record.never_fits)
        if arm == "oracle" and not record.never_fits:
            assert record.killed_s == []
            assert record.executions[0].outcome.run_s == pytest.approx(drawn.measured.run_s)
    assert held_gpu_s == pytest.approx(expected_gpu_s, rel=1e-9, abs=1e-6)


@settings(deadline=None)
@given(arrivals=workloads(), horizon_s=st.integers(1, 80))
def test_at_the_horizon_every_job_has_ended_or_is_running_or_waiting(arrivals: list[Arrival], horizon_s: int) -> None:
    run = simulate(arrivals, machines(), horizon_s=float(horizon_s), scale=SCALES["shrunk"](arrivals))

    assert all(event["time_s"] <= horizon_s for event in run.events)
    counts = Counter(event["event"] for event in run.events)
    running = counts["start"] - counts["complete"] - counts["kill"]
    arrived = [record for record in run.records if record.arrival.at_s <= horizon_s]
    states = Counter(
        "never_fits"
        if record.never_fits
        else "completed"
        if record.completed_s is not None
        else "running"
        if len(record.executions) > len(record.killed_s)
        else "waiting"
        for record in arrived
    )
    assert states["running"] == running
    assert states["completed"] == counts["complete"]
    assert states["never_fits"] == counts["never_fits"]
    assert sum(states.values()) == counts["arrive"] == len(arrived)


@settings(deadline=None)
@given(arrivals=workloads(), order=st.randoms(use_true_random=False))
def test_permuting_the_arrivals_changes_nothing(arrivals: list[Arrival], order: Any) -> None:
    shuffled = list(arrivals)
    order.shuffle(shuffled)

    straight = simulate(arrivals, machines(), scale=SCALES["shrunk"](arrivals))
    permuted = simulate(shuffled, machines(), scale=SCALES["shrunk"](arrivals))

    assert as_bytes(straight) == as_bytes(permuted)


def test_policies_go_by_name_or_by_value() -> None:
    named = simulate(FIVE_JOBS, machines(), policy="fifo", placement="best_fit", truth="unchanged")
    valued = simulate(FIVE_JOBS, machines(), policy=QUEUE_POLICIES["fifo"], placement=best_fit, truth=unchanged)

    assert as_bytes(named) == as_bytes(valued)


def test_a_gpu_type_is_matched_where_asked() -> None:
    kinds = [Machine(name=n, cpu_cores=8, mem_gib=8, gpus=2, gpu_type=n) for n in ("T4", "P100")]
    wanted = [Arrival(at_s=0.0, drawn=PoolJob(job=job("a", gpu_type="P100"), measured=measured()))]

    run = simulate(wanted, kinds, match_gpu_type=True)

    assert brief(run)[1] == (0.0, "start", "a", "P100:1")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"policy": "lifo"}, "'lifo', expected one of drf, fifo, srtf"),
        ({"placement": "worst"}, "expected one of best_fit, first_fit"),
        ({"truth": "hope"}, "expected one of contention, predicted, unchanged"),
        ({"horizon_s": 0.0}, "expected more than 0"),
        ({"horizon_s": math.nan}, "expected more than 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        simulate(FIVE_JOBS, machines(), **fields)


def erlang_c_wait_s(arrivals_per_s: float, mean_run_s: float, servers: int) -> float:
    """Return the mean wait of M/M/c: Erlang's C over (servers/mean_run - arrivals)."""
    load = arrivals_per_s * mean_run_s
    idle = sum(load**k / math.factorial(k) for k in range(servers))
    busy = load**servers / math.factorial(servers) * servers / (servers - load)
    return busy / (idle + busy) / (servers / mean_run_s - arrivals_per_s)


def queue_of(servers: int, utilisation: float, count: int, seed: int) -> tuple[list[Arrival], float]:
    """Return single-GPU jobs with exponential gaps and run times, and the arrivals per second; runs average 100 s."""
    arrivals_per_s = utilisation * servers / 100.0
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(1.0 / arrivals_per_s, count)).tolist()
    runs = rng.exponential(100.0, count).tolist()
    wants = request(1.0, 1.0, 1.0)
    jobs = [
        arrival(at_s, f"{i:06d}", wants, run_s=run_s) for i, (at_s, run_s) in enumerate(zip(times, runs, strict=True))
    ]
    return jobs, arrivals_per_s


def waits_of(arrivals: list[Arrival], servers: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    run = simulate(arrivals, machines(count=1, cpu_cores=99, mem_gib=99, gpus=servers), horizon_s=math.inf)
    return np.array([record.executions[0].start_s - record.arrival.at_s for record in run.records])


@pytest.mark.parametrize("servers", [1, 3, 8])
def test_waits_are_those_of_a_queue_with_so_many_servers(servers: int) -> None:
    arrivals, _ = queue_of(servers, 0.95, 800, seed=6)

    free_at = [0.0] * servers
    expected = []
    for each in arrivals:
        starts_s = max(each.at_s, heapq.heappop(free_at))
        expected.append(starts_s - each.at_s)
        heapq.heappush(free_at, starts_s + each.drawn.measured.run_s)

    assert waits_of(arrivals, servers) == pytest.approx(expected, abs=1e-6)
    assert max(expected) > 100.0


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "utilisation"), [(1, 0.6), (4, 0.7), (16, 0.8)])
def test_mean_waits_are_those_of_erlang(servers: int, utilisation: float) -> None:
    arrivals, arrivals_per_s = queue_of(servers, utilisation, 30_000, seed=20)
    expected_s = erlang_c_wait_s(arrivals_per_s, 100.0, servers)

    batches = waits_of(arrivals, servers).reshape(30, 1000)[1:].mean(axis=1)
    error_s = batches.std(ddof=1) / math.sqrt(len(batches))

    assert error_s < 0.1 * expected_s, "sharp enough to fail"
    assert batches.mean() == pytest.approx(expected_s, abs=3.5 * error_s)
