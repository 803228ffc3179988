"""Kills on shared machines: which job dies, and what becomes of it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Ending
from pipelines.simulation.shared.inputs import Load, Reserving
from pipelines.simulation.shared.run import SharedRun, simulate_shared
from pipelines.simulation.shared.variation import Variation
from scheduler_core.cluster import Machine
from scheduler_core.reserve import ReservePolicy
from tests.examples import examples
from tests.pipelines.simulation.engine.simulations import workload
from tests.pipelines.simulation.shared.worlds import POLICIES, SHARINGS, killed_of, simulated, world

LATE = Variation(cv=0.0, ramp_min=(0.0, 0.0), language_ramp=False, early_share=0.0, late_share=1.0, growth=(2.0, 2.0))
"""Memory doubles in the last tenth of a run."""

GIB = 1024.0


def two_jobs(*granted: float, gib: float, reserving: Reserving | None = None, **rows: Any) -> SharedRun:
    """Simulate jobs that ask for 8 GiB, are granted less, and use 7 GiB in the end, on a machine with `gib`."""
    jobs = workload(*({"cores": 1.0, "gib": 8.0, "granted": (1.0, each, 0.0), "run": 1000.0} for each in granted))
    count = len(granted)
    load = Load(
        compute=np.tile([500.0, 0.0], (count, 1)),
        memory=np.tile([7.0 * GIB, 0.0], (count, 1)),
        language=np.zeros(count, dtype=np.bool_),
    )
    machine = Machine(name="m0", cpu_cores=8.0, mem_gib=gib, gpus=0)
    return simulate_shared(jobs, load, [machine], reserving or Reserving(), variation=LATE, horizon_s=math.inf, seed=1)


def test_the_job_furthest_over_its_reservation_is_killed_and_runs_again_with_its_request() -> None:
    # 3.5 GiB each at first, 7 GiB each from 900 s on: 14 of 13 GiB. The second has 1 GiB over its 6, the first 0.5.
    found = two_jobs(6.5, 6.0, gib=13.0)
    schedule = found.schedule

    assert killed_of(found) == [1]
    assert 900.0 <= schedule.end_run_s[1] < 1000.0, "at once, not only at the next minute"
    # Its request of 8 GiB fits only after the first job has ended, and it begins anew.
    assert schedule.job.tolist() == [0, 1, 1]
    assert schedule.full.tolist() == [False, False, True]
    assert [Ending(code).name for code in schedule.ending] == ["COMPLETED", "KILLED", "COMPLETED"]
    assert schedule.start_s.tolist() == [0.0, 0.0, 1000.0]
    assert schedule.finished_s.tolist() == pytest.approx([1000.0, 2000.0])


def test_full_requests_are_never_killed() -> None:
    found = two_jobs(8.0, 8.0, gib=16.0)
    assert not killed_of(found)
    assert found.schedule.finished_s.tolist() == [1000.0, 1000.0]


def test_the_largest_sample_with_its_margin_protects_from_kills() -> None:
    policy = ReservePolicy(memory_margin=2.0, probation_s=300.0)
    assert not killed_of(two_jobs(8.0, 8.0, 8.0, gib=16.0, reserving=Reserving(policy=policy)))
    # Without the margin, the third job starts on what the others do not use yet.
    careless = Reserving(policy=replace(policy, memory_margin=1.0))
    found = two_jobs(8.0, 8.0, 8.0, gib=16.0, reserving=careless)
    assert killed_of(found)


def check_kills(seed: int, arm: str, policy: str, sharing: str) -> int:
    """Check that a job is killed at most once, and then holds its request; return the number of kills."""
    found = simulated(world(seed, 20, arm=arm, policy=policy, sharing=sharing, variation="default"))
    schedule, killed = found.schedule, killed_of(found)
    assert len(set(killed)) == len(killed), "killed again with its request"
    for job in set(schedule.job.tolist()):
        ends = [
            (Ending(schedule.ending[at]).name, bool(schedule.full[at])) for at in np.flatnonzero(schedule.job == job)
        ]
        expected = [("KILLED", False)] if job in killed else []
        assert ends[: len(expected)] == expected
        assert all(full == (job in killed) for _, full in ends[len(expected) :])
    return len(killed)


ARMS = st.sampled_from(["shrunk", "reclaim", "reclaim_prior"])


@settings(max_examples=examples(300))
@given(seed=st.integers(0, 10**6), arm=ARMS, policy=st.sampled_from(POLICIES), sharing=st.sampled_from(SHARINGS))
def test_a_job_is_killed_once_at_most(seed: int, arm: str, policy: str, sharing: str) -> None:
    check_kills(seed, arm, policy, sharing)


def test_there_are_kills_in_these_worlds() -> None:
    assert sum(check_kills(seed, "shrunk", "fifo", "pooled") for seed in range(10)) > 3


def test_a_closed_machine_opens_again_though_nothing_else_happens() -> None:
    """Two jobs saturate the only machine and end; a third waits for it to open, with no other event to wake it."""
    steady = replace(LATE, late_share=0.0)
    jobs = workload(
        {"cores": 6.0, "run": 1000.0}, {"cores": 6.0, "run": 1000.0, "at": 1.0}, {"cores": 6.0, "run": 9.0, "at": 900.0}
    )
    load = Load(
        compute=np.array([[4500.0, 0.0], [4500.0, 0.0], [500.0, 0.0]]),
        memory=np.zeros((3, 2)),
        language=np.zeros(3, dtype=np.bool_),
    )
    machine = Machine(name="m0", cpu_cores=8.0, mem_gib=1.0, gpus=0)
    policy = ReservePolicy(close_s=1800.0)
    found = simulate_shared(
        jobs,
        load,
        [machine],
        Reserving(policy=policy, overcommit=(1.5, 1.0, 1.0)),
        variation=steady,
        horizon_s=math.inf,
        seed=1,
    ).schedule
    ended = found.end_run_s[:2].max()
    assert found.job.tolist() == [0, 1, 2]
    assert ended < found.start_s[2]
    assert ended + 600.0 < found.start_s[2] <= ended + policy.close_s + 60.0
