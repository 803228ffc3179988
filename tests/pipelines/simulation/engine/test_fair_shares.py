"""DRF against a water-filling oracle: on divisible small jobs, dominant shares rise together."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Schedule
from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from tests.examples import examples
from tests.pipelines.simulation.engine.simulations import run, simulated, workload

TOTAL = np.array([90.0, 90.0, 180.0])
"""Cores, GiB and GPUs of one large machine."""

MACHINE = (Machine(name="all", cpu_cores=90, mem_gib=90, gpus=180),)


def water_filling(asks: list[list[float]], jobs: list[int]) -> list[float]:
    """Return each user's dominant share when all rise at one speed; who is short of jobs or room stands still.

    `asks` is what one job of each user takes (users, 3), `jobs` how many each has; jobs are taken as divisible.
    """
    each = np.array(asks) / TOTAL
    dominant = each.max(axis=1)
    rates = each / dominant[:, None]
    most = np.array(jobs) * dominant
    shares, rising = np.zeros(len(asks)), np.ones(len(asks), dtype=bool)
    while rising.any():
        used = (rates * shares[:, None]).sum(axis=0)
        speed = rates[rising].sum(axis=0)
        until_full = np.min(np.divide(1.0 - used, speed, out=np.full(3, np.inf), where=speed > 1e-12))
        step = min(until_full, (most - shares)[rising].min())
        shares[rising] += step
        full = (rates * shares[:, None]).sum(axis=0) > 1.0 - 1e-9
        rising &= (shares < most - 1e-9) & ~(rates[:, full] > 1e-12).any(axis=1)
    return shares.tolist()


def shares_of(schedule: Schedule, users: int) -> list[float]:
    held = np.zeros((users, 3))
    for job, *_ in simulated(schedule):
        held[schedule.workload.user[job]] += schedule.workload.request_units[job] / np.array([1000, 1024, 1000])
    return (held / TOTAL).max(axis=1).tolist()


def crowd(asks: list[list[float]], jobs: list[int]) -> list[dict[str, Any]]:
    """Return all jobs at 0, the first user's first, one by one over the users."""
    turns = [(turn, user) for user, count in enumerate(jobs) for turn in range(count)]
    return [
        dict(zip(("cores", "gib", "gpus"), asks[user], strict=True), user=user, run=1e6) for _, user in sorted(turns)
    ]


def test_the_example_of_the_paper() -> None:
    # Ghodsi et al., section 4.1: 9 CPUs, 18 GB; A asks <1, 4>, B asks <3, 1>: three jobs of A, two of B.
    machine = (Machine(name="all", cpu_cores=9, mem_gib=18, gpus=0),)
    jobs = [{"cores": 1, "gib": 4, "user": 0, "run": 10.0}] * 9 + [{"cores": 3, "gib": 1, "user": 1, "run": 10.0}] * 9

    schedule = run(workload(*jobs), machine, Discipline(policy="drf"), horizon_s=1.0)

    started = schedule.workload.user[schedule.job].tolist()
    assert (started.count(0), started.count(1)) == (3, 2)


@settings(max_examples=examples(25))
@given(
    asks=st.lists(
        st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0), st.floats(0.0, 2.0)).map(list), min_size=2, max_size=4
    ),
    data=st.data(),
)
def test_shares_are_those_of_water_filling(asks: list[list[float]], data: st.DataObject) -> None:
    asks = [[round(value, 2) for value in ask] for ask in asks]
    jobs = data.draw(st.lists(st.integers(1, 250), min_size=len(asks), max_size=len(asks)))

    schedule = run(workload(*crowd(asks, jobs)), MACHINE, Discipline(policy="drf"), horizon_s=1.0)

    # One job of the largest user is what indivisibility may cost, per user that competes for the last room.
    step = max(max(np.array(ask) / TOTAL) for ask in asks)
    assert shares_of(schedule, len(asks)) == pytest.approx(water_filling(asks, jobs), abs=2 * len(asks) * step)


def test_the_oracle_is_worked_by_hand() -> None:
    # The second user has ten jobs of 1/90 each; the first then takes what is left: 80 of 90 cores.
    assert water_filling([[1.0, 0.1, 0.0], [1.0, 0.1, 0.0]], [500, 10]) == pytest.approx([80 / 90, 10 / 90])
    # Different dominant resources, no contention: both fill theirs to 1 - what the other takes of it (0.1 of it).
    assert water_filling([[1.0, 0.1, 0.0], [0.1, 1.0, 0.0]], [500, 500]) == pytest.approx([1 / 1.1, 1 / 1.1])


def test_a_gang_counts_as_one_unit() -> None:
    # User 0 has a gang of 6 GPUs, user 1 six single ones, on 8: the gang starts whole, then two singles.
    machine = (Machine(name="all", cpu_cores=1, mem_gib=1, gpus=8),)
    jobs = [{"gpus": 1, "instances": 6, "user": 0, "run": 10.0}] + [{"gpus": 1, "user": 1, "run": 10.0}] * 6

    schedule = run(workload(*jobs), machine, Discipline(policy="drf"), horizon_s=1.0)

    assert schedule.job.tolist() == [0, 1, 2]


def test_aging_brings_in_who_has_waited_longest() -> None:
    # On 2 GPUs; user 1 holds one until 200. At 100 user 0 holds none, but user 1's other job came 90 s before its own.
    machine = (Machine(name="all", cpu_cores=1, mem_gib=1, gpus=2),)
    jobs = workload(
        {"gpus": 1, "user": 1, "run": 200.0},
        {"gpus": 1, "user": 2, "run": 100.0},
        {"at": 1.0, "gpus": 1, "user": 1, "run": 10.0},
        {"at": 91.0, "gpus": 1, "user": 0, "run": 10.0},
    )

    assert run(jobs, machine, Discipline(policy="drf")).job.tolist() == [0, 1, 3, 2]
    assert run(jobs, machine, Discipline(policy="drf", aging=0.01)).job.tolist() == [0, 1, 2, 3]
