"""Properties of shared machines: capacity holds, work is conserved, shares follow weights, one job is not slowed."""

import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.shared import run as running
from pipelines.simulation.shared.inputs import Load, Reserving
from pipelines.simulation.shared.state import State
from pipelines.simulation.shared.variation import Variation
from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from tests.examples import examples
from tests.pipelines.simulation.engine.simulations import workload
from tests.pipelines.simulation.shared.worlds import (
    ARMS,
    POLICIES,
    SHARINGS,
    VARIATIONS,
    World,
    killed_of,
    simulated,
    world,
)

SEEDS = st.integers(0, 10**6)


def state_of(one: World) -> State:
    """Return the state at the horizon: what the running jobs demand and receive."""
    states: list[State] = []
    looping = running.advance

    def advance(state: State) -> None:
        looping(state)
        states.append(state)

    with patch.object(running, "advance", advance):
        simulated(one)
    return states[0]


def drawn(seed: int, **fixed: str) -> World:
    rng = np.random.default_rng(seed)
    kinds = {"arm": ARMS, "policy": POLICIES, "sharing": SHARINGS, "variation": tuple(VARIATIONS)}
    chosen = {name: str(rng.choice(values)) for name, values in kinds.items()} | fixed
    return replace(world(seed, 20, **chosen), horizon_s=float(rng.uniform(300.0, 4000.0)))


def instances_of(state: State) -> list[tuple[int, Any, Any, list[int]]]:
    """Return every running instance as (job, job's record, its record, its devices)."""
    count = int(state.queue.tally[0]["running"])
    return [
        (job, state.jobs[job], state.instances[place], [d for d in state.device[place].tolist() if d >= 0])
        for job in state.queue.running[:count].tolist()
        for place in range(state.jobs[job]["first"], state.jobs[job]["first"] + state.jobs[job]["instances"])
    ]


def check_shares(wants: list[tuple[float, float, float]], capacity: float, *, coupled: bool) -> None:
    """Check (need, share, weight) on one machine or device: within capacity, work-conserving, and fair by weight."""
    need, share, weight = np.array(wants).T if wants else np.zeros((3, 0))
    assert share.sum() <= capacity * (1.0 + 1e-6)
    assert (share <= need * (1.0 + 1e-9)).all()
    if need.sum() <= capacity:
        assert coupled or share == pytest.approx(need), "somebody waits though all demands fit"
    elif not coupled:
        assert share.sum() == pytest.approx(capacity), "something idles though more is wanted"
        lacking = share < need * (1.0 - 1e-9)
        level = share[weight > 0.0] / weight[weight > 0.0]
        assert (share[lacking] / weight[lacking] >= level.max() * (1.0 - 1e-6)).all(), (
            "somebody has more than a fair share"
        )


def check_state(state: State) -> int:
    """Check all machines and devices; return how many are saturated."""
    every, saturated = instances_of(state), 0
    kills = int(state.queue.tally[0]["kills"]) < len(state.log.runs) - len(
        state.jobs
    )  # otherwise it has stopped killing
    for m, machine in enumerate(state.machines):
        here = [(i["need"][0], i["share"][0], job["request"][0]) for _, job, i, _ in every if i["machine"] == m]
        check_shares(here, machine["capacity"][0], coupled=False)
        saturated += sum(need for need, _, _ in here) > machine["capacity"][0]
        assert not kills or machine["memory"] <= machine["capacity"][1] * (1.0 + 1e-6)
        for number, device in enumerate(state.devices[m]):
            on = [(job, i, own) for _, job, i, own in every if i["machine"] == m and number in own]
            # An instance on several devices is as fast as on the slowest of them, and leaves some of the others idle.
            coupled = any(len(own) > 1 for _, _, own in on)
            wants = [(i["need"][1] / len(own), i["share"][1] / len(own), job["request"][2]) for job, i, own in on]
            check_shares(wants, device["capacity"], coupled=coupled)
            assert not kills or device["memory"] <= device["capacity"] * (1.0 + 1e-6)
            saturated += sum(need for need, _, _ in wants) > device["capacity"]
    return saturated


def test_capacity_holds_and_work_is_conserved() -> None:
    saturated = sum(check_state(state_of(drawn(seed, arm="overcommit"))) for seed in range(12))
    assert saturated > 3, "nobody competes in these worlds"


@settings(max_examples=examples(300))
@given(seed=SEEDS)
def test_capacity_holds_in_every_arm(seed: int) -> None:
    check_state(state_of(drawn(seed)))


def runs_of(schedule: Any) -> list[tuple[Any, ...]]:
    held = np.split(np.arange(len(schedule.hosts)), schedule.host_offsets[1:-1]) if len(schedule.job) else []
    hosts = [sorted(zip(schedule.hosts[at].tolist(), schedule.host_counts[at].tolist(), strict=True)) for at in held]
    return list(zip(schedule.job.tolist(), schedule.ending.tolist(), hosts, strict=True))


def check_unchanged(one: World) -> None:
    """Compare with the engine whose jobs run as requested, where jobs use at most their requests."""
    found = simulated(one).schedule
    expected = simulate(one.workload, one.machines, one.discipline, horizon_s=one.horizon_s, engine="python")
    assert runs_of(found) == runs_of(expected)
    assert found.start_s == pytest.approx(expected.start_s)
    assert found.end_run_s == pytest.approx(expected.end_run_s)
    assert found.finished_s == pytest.approx(expected.finished_s, nan_ok=True)
    arrived = one.workload.arrive_s <= one.horizon_s
    assert found.never_fits[arrived].tolist() == expected.never_fits[arrived].tolist()
    assert found.workload.request_units.tolist() == expected.workload.request_units.tolist()


@settings(max_examples=examples(300))
@given(seed=SEEDS, variation=st.sampled_from(["ideal", "prototype"]))
def test_full_requests_run_as_in_the_other_engine(seed: int, variation: str) -> None:
    check_unchanged(drawn(seed, arm="requested", variation=variation))


def check_alone(one: World) -> None:
    """Let the jobs of a world come one after the other: none is stretched or killed, whatever is reserved.

    Each has one instance, because instances of a gang that is placed by less than it uses compete with each other.
    """
    count = len(one.workload)
    apart = replace(one.workload, arrive_s=6000.0 * np.arange(count), instances=np.ones(count, dtype=np.int64))
    machines = tuple(replace(each, cpu_cores=16.0) for each in one.machines)  # more than any job can use
    found = simulated(replace(one, workload=apart, machines=machines, horizon_s=math.inf))
    schedule = found.schedule
    assert not killed_of(found)
    assert schedule.job.tolist() == np.flatnonzero(~schedule.never_fits).tolist()
    assert schedule.end_run_s - schedule.start_s == pytest.approx(apart.run_s[schedule.job])
    assert found.lost_s == pytest.approx(np.zeros_like(found.lost_s), abs=1e-6)


@settings(max_examples=examples(300))
@given(seed=SEEDS)
def test_a_job_alone_is_never_stretched(seed: int) -> None:
    check_alone(drawn(seed))


WIDE = tuple(Machine(name=f"m{n}", cpu_cores=256.0, mem_gib=512.0, gpus=64) for n in range(2))


@settings(max_examples=5)
@given(seed=SEEDS, sharing=st.sampled_from(SHARINGS), variation=st.sampled_from(tuple(VARIATIONS)))
def test_demand_does_not_depend_on_the_arm(seed: int, sharing: str, variation: str) -> None:
    found = []
    for arm in ("requested", "overcommit", "reclaim", "reclaim_prior"):
        one = replace(drawn(seed, arm=arm, sharing=sharing, variation=variation), machines=WIDE)
        found.append({(job, int(row["age"])): i["need"].tolist() for job, row, i, _ in instances_of(state_of(one))})
    first, *others = found
    for needs in others:
        alike = sorted(first.keys() & needs.keys())
        assert 2 * len(alike) >= len(first), "a cluster with room for all starts nearly every job when it arrives"
        for each in alike:
            assert needs[each] == pytest.approx(first[each], rel=1e-9)


def test_demand_depends_on_the_age_of_a_job_and_not_on_the_time() -> None:
    one = replace(drawn(3, arm="requested", variation="default"), machines=WIDE, horizon_s=2500.0)
    later = replace(one, workload=replace(one.workload, arrive_s=one.workload.arrive_s + 1800.0), horizon_s=4300.0)
    needs = [[i["need"].tolist() for _, _, i, _ in instances_of(state_of(each))] for each in (one, later)]
    assert len(needs[0]) > 3
    assert needs[0] == needs[1]


STEADY = Variation(cv=0.0, ramp_min=(0.0, 0.0), language_ramp=False, early_share=1.0, late_share=0.0, growth=(1.0, 1.0))


def two_jobs(heavier: float, used: float = 4000.0) -> list[float]:
    """Return the run times of two jobs that each use 4 of 6 cores, one with a larger request."""
    jobs = workload({"cores": 4.0, "run": 100.0}, {"cores": heavier, "run": 100.0})
    load = Load(compute=np.array([[used, 0.0]] * 2), memory=np.zeros((2, 2)), language=np.zeros(2, dtype=np.bool_))
    found = running.simulate_shared(
        jobs,
        load,
        [Machine(name="m0", cpu_cores=6.0, mem_gib=8.0, gpus=0)],
        Reserving(overcommit=(2.0, 1.0, 1.0)),
        variation=STEADY,
        discipline=Discipline(),
        horizon_s=math.inf,
        seed=1,
    )
    return (found.schedule.end_run_s - found.schedule.start_s).tolist()


def test_shares_as_worked_by_hand() -> None:
    # Equal requests: 3 of 4 cores each, so 100 s of work takes 133.3 s.
    assert two_jobs(4.0) == pytest.approx([400 / 3, 400 / 3])
    # Requests of 4 and 6: 2.4 and 3.6 cores. The second ends after 400 / 3.6 s; the first then has all it wants.
    assert two_jobs(6.0) == pytest.approx([100 + 400 / 3.6 * 0.4, 400 / 3.6])


def test_a_larger_request_is_never_slower() -> None:
    first, second = zip(*(two_jobs(heavier) for heavier in (4.0, 4.5, 5.0, 5.5, 6.0)), strict=True)
    assert list(second) == sorted(second, reverse=True)
    assert list(first) == sorted(first)
    assert second[-1] < second[0]


def test_the_mean_speed_is_work_over_time_on_machines() -> None:
    drawn = world(3, 40, arm="overcommit", policy="fifo", sharing="pooled", variation="default")
    # Without memory there are no kills, so each job has at most one run.
    run = simulated(replace(drawn, load=replace(drawn.load, memory=np.zeros_like(drawn.load.memory))))
    schedule = run.schedule
    done = schedule.end_run_s <= schedule.end_s
    took_s = (schedule.end_run_s - schedule.start_s)[done]
    work_s = schedule.workload.run_s[schedule.job[done]]

    assert (run.speed < 1.0 - 1e-6).any()
    assert run.speed[schedule.job[done]] * took_s == pytest.approx(work_s)
