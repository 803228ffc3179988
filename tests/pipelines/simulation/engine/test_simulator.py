"""The simulator: hand-worked schedules, the golden log, and what holds in every run."""

import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.event_log import events
from scheduler_core.cluster import Machine
from scheduler_core.errors import BadInput
from scheduler_core.queueing import Discipline
from tests.pipelines.simulation.engine.simulations import (
    ANY_DISCIPLINE,
    COLUMNS,
    gpu_machines,
    hosts_of,
    rows,
    run,
    simulated,
    starts_of,
    workload,
)

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "five_jobs_events.jsonl"

FIVE_JOBS = workload(
    {"at": 0.0, "gpus": 4, "run": 10.0, "user": 0},
    {"at": 1.0, "gpus": 2, "run": 30.0, "user": 0},
    {"at": 2.0, "gpus": 4, "run": 8.0, "user": 1, "priority": 2.0},
    {"at": 3.0, "gpus": 1, "run": 20.0, "user": 0, "priority": 1.0},
    {"at": 4.0, "gpus": 2, "run": 12.0, "user": 1},
)
"""On one machine of 4 GPUs, all but the first wait until 10. The starts that follow, worked by hand:

fifo      10: B C D E. B and D start, C (4) and E (2) do not fit 1. 30: D's end gives E 2. 42: C.
sjf       10: C8 E12 D20 B30. C alone. 18: E and D; B (2) does not fit 1. 30: E's end gives B 2.
qssf      10: D20 E24 C32 B60. D and E. 22: E's end gives B 2. 52: C.
priority  10: C2 D1 B0 E0. C alone. 18: D and B; E (2) does not fit 1. 38: D's end gives E 2.
drf       10: nobody holds any, so B by arrival; then user 1: C does not fit, E does. 22: user 1 holds none, C does not
          fit; D of user 0. 40: B ends, 3 are free. 42: C.
las       as fifo: nobody has attained service.
srtf      as sjf: nobody runs whose rest is longer than that of who waits.
"""


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("fifo", {0: 0, 1: 10, 3: 10, 4: 30, 2: 42}),
        ("las", {0: 0, 1: 10, 3: 10, 4: 30, 2: 42}),
        ("sjf", {0: 0, 2: 10, 4: 18, 3: 18, 1: 30}),
        ("srtf", {0: 0, 2: 10, 4: 18, 3: 18, 1: 30}),
        ("qssf", {0: 0, 3: 10, 4: 10, 1: 22, 2: 52}),
        ("priority", {0: 0, 2: 10, 3: 18, 1: 18, 4: 38}),
        ("drf", {0: 0, 1: 10, 4: 10, 3: 22, 2: 42}),
    ],
)
def test_five_jobs_run_as_worked_by_hand(policy: str, starts: dict[int, float]) -> None:
    schedule = run(FIVE_JOBS, gpu_machines(4), Discipline(policy=policy, quantum_s=1000.0))

    assert starts_of(schedule) == starts
    assert schedule.job.tolist() == list(starts), "in the order of starts"
    assert (schedule.finished_s[schedule.job] == schedule.end_run_s).all()


def test_without_overtaking_the_five_go_one_after_the_other() -> None:
    schedule = run(FIVE_JOBS, gpu_machines(4), Discipline(overtakes=0))

    # B starts at 10; C needs all 4 and gets them at 40; D and E follow it.
    assert starts_of(schedule) == {0: 0, 1: 10, 2: 40, 3: 48, 4: 48}


def test_aging_lets_the_long_job_in_before_the_last_short_one() -> None:
    # sjf with 3 s off per second waited: keys 30+3, 8+6, 20+9, 12+12 for B C D E instead of 30, 8, 20, 12.
    schedule = run(FIVE_JOBS, gpu_machines(4), Discipline(policy="sjf", aging=3.0))
    assert schedule.job.tolist() == [0, 2, 4, 3, 1]

    # With 10 s: 40, 28, 50, 52. C first, then B and D, and E when D has ended.
    schedule = run(FIVE_JOBS, gpu_machines(4), Discipline(policy="sjf", aging=10.0))
    assert starts_of(schedule) == {0: 0, 2: 10, 1: 18, 3: 18, 4: 38}


EVERYTHING = workload(
    {"at": 0.0, "gpus": 2, "cores": 8, "instances": 3, "run": 100.0, "granted": (4, 0, 1), "granted_run": 50.0}
    | {"dies": True, "predicted": 90.0},
    {"at": 5.0, "gpus": 4, "instances": 3, "run": 10.0},
    {"at": 10.0, "gpus": 4, "cores": 1, "run": 40.0, "fails": True},
    {"at": 12.0, "gpus": 0.25, "gib": 1.5, "run": 30.0, "predicted": math.nan},
    {"at": 70.0, "gpus": 4, "run": 10.0, "predicted": 5.0},
)
EVENTFUL = Discipline(policy="srtf", quantum_s=20.0, restart_cost_s=5.0)


def test_the_event_log_is_the_golden_one_to_the_byte() -> None:
    schedule = run(EVERYTHING, gpu_machines(4, 4), EVENTFUL)

    columns = {name: values.tolist() for name, values in events(schedule).items()}
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
    assert "".join(line + "\n" for line in lines).encode() == GOLDEN.read_bytes()
    assert len(set(columns["event"])) == 7, "everything that can happen does"


def test_a_killed_job_runs_again_in_full_when_that_fits() -> None:
    # A is given 1 of its 3 GPUs and dies at 40; B holds 2 until 60, C passes: A's 3 are there at 60.
    jobs = workload(
        {"at": 0.0, "gpus": 3, "run": 50.0, "granted": (0, 0, 1), "granted_run": 40.0, "dies": True},
        {"at": 0.0, "gpus": 2, "run": 60.0},
        {"at": 41.0, "gpus": 1, "run": 5.0},
    )

    schedule = run(jobs, gpu_machines(4))

    assert simulated(schedule) == [
        (0, 0.0, 40.0, "killed"),
        (1, 0.0, 60.0, "completed"),
        (2, 41.0, 46.0, "completed"),
        (0, 60.0, 110.0, "completed"),
    ]
    assert schedule.full.tolist() == [False, False, False, True]
    assert schedule.finished_s.tolist() == [110.0, 60.0, 46.0]


def test_the_horizon_cuts_runs_but_not_the_moment_it_falls_on() -> None:
    schedule = run(FIVE_JOBS, gpu_machines(4), horizon_s=10.0)

    assert simulated(schedule) == [
        (0, 0.0, 10.0, "completed"),
        (1, 10.0, 40.0, "running"),
        (3, 10.0, 30.0, "running"),
    ]
    assert schedule.end_s == 10.0
    assert np.isnan(schedule.finished_s).tolist() == [False, True, True, True, True]


def test_arrivals_beyond_the_horizon_are_not_looked_at() -> None:
    schedule = run(workload({"at": 5.0, "gpus": 9}, {"at": 6.0, "gpus": 9}), gpu_machines(4), horizon_s=5.0)

    assert schedule.never_fits.tolist() == [True, False]


def test_nothing_at_all_ends_at_once() -> None:
    assert run(workload(), gpu_machines(4)).end_s == 0.0


def test_a_gpu_type_is_matched_where_asked() -> None:
    kinds = [Machine(name=kind, cpu_cores=8, mem_gib=8, gpus=2, gpu_type=kind) for kind in ("T4", "P100")]
    jobs = workload(
        {"gpus": 1, "gpu_type": 1}, {"gpus": 1, "gpu_type": 2}, {"gpus": 1}, gpu_types=("T4", "P100", "V100")
    )

    matched = run(jobs, kinds, Discipline(match_gpu_type=True))
    anywhere = run(jobs, kinds)

    assert [hosts_of(matched, at) for at in range(2)] == [{1: 1}, {1: 1}]
    assert matched.never_fits.tolist() == [False, True, False]
    assert not anywhere.never_fits.any()


@pytest.mark.parametrize(
    ("rules", "fields", "says"),
    [
        ({"policy": "lifo"}, {}, "'lifo', expected one of drf, fifo"),
        ({"placement": "worst"}, {}, "expected one of best_fit"),
        ({}, {"horizon_s": 0.0}, "expected more than 0"),
        ({}, {"horizon_s": math.nan}, "expected more than 0"),
        ({}, {"engine": "foo"}, "engine: found 'foo', expected one of auto, compiled, python"),
        ({"sharing": "devices"}, {"engine": "foo"}, "engine: found 'foo'"),
        ({}, {"machines": ()}, "found no machine"),
        ({"policy": "drf", "preempt": True}, {}, "preemption together with a policy whose keys are dynamic"),
        ({"policy": "srtf", "overtakes": 1}, {}, "preemption together with overtakes"),
        ({"policy": "las", "backfill": "easy"}, {}, "preemption together with backfill=easy"),
        ({"policy": "las", "restart_cost_s": 600.0}, {}, "a restart that costs less than the quantum"),
        ({"policy": "las"}, {"jobs": workload({"run": math.inf})}, "an infinite run time in row 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(rules: dict[str, Any], fields: dict[str, Any], says: str) -> None:
    asked = {"jobs": FIVE_JOBS, "machines": gpu_machines(4), **fields}

    with pytest.raises(BadInput, match=says):
        run(asked.pop("jobs"), asked.pop("machines"), Discipline(**rules), **asked)


def test_more_than_was_requested_is_never_granted() -> None:
    with pytest.raises(BadInput, match=r"found granted_units = .* in row 1, expected a value"):
        workload({"gpus": 2, "run": 1.0}, {"gpus": 2, "run": 1.0, "granted": (0, 0, 3)})


def test_a_run_that_never_ends_is_cut_by_the_horizon() -> None:
    schedule = run(workload({"gpus": 4, "run": math.inf}, {"gpus": 1}), gpu_machines(4), horizon_s=50.0)

    assert simulated(schedule) == [(0, 0.0, math.inf, "running")]
    assert run(workload({"run": math.inf}), gpu_machines(4)).end_s == 0.0


def check_capacity(schedule: Schedule) -> None:
    """Assert at every moment that no machine gives more than it has."""
    capacity = np.array([[m.cpu_cores * 1000, m.mem_gib * 1024, m.gpus * 1000] for m in schedule.machines])
    units = np.where(
        schedule.full[:, None],
        schedule.workload.request_units[schedule.job],
        schedule.workload.granted_units[schedule.job],
    )
    for now_s in np.unique(schedule.start_s):
        held = np.zeros_like(capacity)
        for at in np.flatnonzero((schedule.start_s <= now_s) & (schedule.end_run_s > now_s)):
            for machine, count in hosts_of(schedule, int(at)).items():
                held[machine] += count * units[at]
        assert (held <= capacity).all()


def check_runs(schedule: Schedule, rules: Discipline) -> None:
    """Assert that every job is accounted for, and every second of its runs."""
    jobs = schedule.workload
    for serial in range(len(jobs)):
        own = [one for one in simulated(schedule) if one[0] == serial]
        assert all(earlier[2] <= later[1] for earlier, later in pairwise(own)), "one run at a time"
        assert all(one[3] in ("killed", "preempted") for one in own[:-1]), "who comes back was stopped"
        if schedule.never_fits[serial]:
            assert own == []
            continue
        done = bool(own) and own[-1][3] in ("completed", "failed")
        assert done == (not math.isnan(schedule.finished_s[serial]))
        if done:
            assert own[-1][2] == schedule.finished_s[serial]
            assert (own[-1][3] == "failed") == jobs.fails[serial]
        ran_s, full = 0.0, False
        for _, start_s, end_s, how in own:
            # What had to be run: the whole, and a checkpoint for each time it was stopped; a loss begins anew.
            ran_s += end_s - start_s
            whole_s = jobs.run_s[serial] if full else jobs.granted_run_s[serial]
            if how == "preempted":
                assert end_s - start_s >= rules.quantum_s
                ran_s -= rules.restart_cost_s
            else:
                assert ran_s == pytest.approx(whole_s)
                ran_s = 0.0
            full |= how == "killed"
        assert [one[3] for one in own].count("killed") <= 1, "at its full request nobody is killed"


@given(drawn=rows(), rules=ANY_DISCIPLINE, horizon_s=st.sampled_from([30.0, 80.0, math.inf]))
def test_what_holds_in_every_run(drawn: list[dict[str, Any]], rules: Discipline, horizon_s: float) -> None:
    jobs, machines = workload(*drawn), gpu_machines(4, 4, cpu_cores=20)

    schedule = run(jobs, machines, rules, horizon_s=horizon_s)

    check_capacity(schedule)
    check_runs(schedule, rules)
    assert (schedule.start_s >= jobs.arrive_s[schedule.job]).all()
    assert (np.diff(schedule.start_s) >= 0.0).all()
    assert (schedule.start_s <= horizon_s).all()
    running = schedule.ending == Ending.RUNNING
    assert (schedule.end_run_s[running] > schedule.end_s).all()
    if math.isinf(horizon_s):
        assert (np.isnan(schedule.finished_s) == schedule.never_fits).all(), "all jobs end"
    again = run(jobs, machines, rules, horizon_s=horizon_s)
    assert [getattr(again, name).tobytes() for name in COLUMNS] == [
        getattr(schedule, name).tobytes() for name in COLUMNS
    ]


@given(
    drawn=rows(), policy=st.sampled_from(["sjf", "qssf", "priority", "srtf"]), order=st.randoms(use_true_random=False)
)
def test_the_order_of_simultaneous_rows_with_different_keys_decides_nothing(
    drawn: list[dict[str, Any]], policy: str, order: Any
) -> None:
    for at, row in enumerate(drawn):
        # Keys that differ by more than anything else does; the GPUs of a gang are at most 20.
        row |= {"predicted": 100.0 * 2.0**at, "priority": float(at), "gpus": max(row["gpus"], 0.25), "name": at}
        row.pop("granted", None)
    shuffled = list(drawn)
    order.shuffle(shuffled)
    shuffled.sort(key=lambda row: row["at"])

    def named(these: list[dict[str, Any]]) -> Counter[Any]:
        schedule = run(workload(*these), gpu_machines(4, 4), Discipline(policy=policy, quantum_s=5.0))
        return Counter(
            (these[job]["name"], *rest, tuple(hosts_of(schedule, at).items()))
            for at, (job, *rest) in enumerate(simulated(schedule))
        )

    assert named(drawn) == named(shuffled)
