"""Contract of every queue policy, the order each gives, and aging."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Demand
from scheduler_core.errors import BadInput
from scheduler_core.gangs import Waiting
from scheduler_core.queue_policies import QUEUE_POLICIES, QueuePolicy, QueueState, aged, policy_of

STATE = QueueState(dominant_share={"greedy": 0.5, "modest": 0.1})


def waiting(serial: int, arrived_s: float = 0.0, *, gpus: float = 1.0, instances: int = 1, **fields: Any) -> Waiting:
    demand = Demand(units=(0, 0, int(gpus * 1000)), instances=instances)
    return Waiting(serial=serial, arrived_s=arrived_s, **{"request": demand, "granted": demand, **fields})


QUEUE = [
    waiting(0, 5.0, user="greedy", predicted_s=10.0, attained_s=9.0, gpus=0.25),
    waiting(1, 3.0, user="modest", predicted_s=math.nan, attained_s=3.0, gpus=1.0, priority=2.0),
    waiting(2, 4.0, user="new", predicted_s=5.0, attained_s=1.0, gpus=2.0, instances=2, priority=1.0),
]
"""GPU time predicted: 2.5, unknown, 20. Left: 1, unknown, 4 seconds. Attained: 2.25, 3, 4 GPU-seconds."""


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("fifo", [1, 2, 0]),
        ("sjf", [2, 0, 1]),
        ("srtf", [0, 2, 1]),
        ("qssf", [0, 2, 1]),
        ("las", [0, 1, 2]),
        ("las_time", [2, 1, 0]),
        ("mlfq", [0, 1, 2]),
        ("gittins", [2, 0, 1]),
        ("drf", [2, 1, 0]),
        ("priority", [1, 2, 0]),
    ],
)
def test_order(name: str, order: list[int]) -> None:
    key = QUEUE_POLICIES[name].key

    assert [w.serial for w in sorted(QUEUE, key=lambda w: key(w, STATE, 9.0))] == order


def test_every_policy_has_an_order_above() -> None:
    orders = test_order.pytestmark[0].args[1]  # type: ignore[attr-defined]

    assert {name for name, _ in orders} == set(QUEUE_POLICIES)


WAITINGS = st.builds(
    waiting,
    st.integers(0, 99),
    st.floats(0.0, 1e6),
    gpus=st.sampled_from([0.0, 0.25, 1.0, 8.0]),
    instances=st.integers(1, 64),
    user=st.sampled_from(["greedy", "modest", None]),
    predicted_s=st.one_of(st.just(math.nan), st.just(math.inf), st.floats(0.0, 1e6)),
    attained_s=st.floats(0.0, 1e6),
    priority=st.floats(-10, 10),
)


@pytest.mark.parametrize("name", sorted(QUEUE_POLICIES))
@given(job=WAITINGS, now_s=st.floats(0.0, 1e6))
def test_contract(name: str, job: Waiting, now_s: float) -> None:
    policy = QUEUE_POLICIES[name]

    first = policy.key(job, STATE, now_s)

    assert not math.isnan(first), "a key orders"
    assert policy.key(job, STATE, now_s) == first, "a key is pure"
    if not policy.dynamic:
        assert policy.key(job, QueueState(), now_s + 99.0) == first, "a static key is fixed while waiting"
    assert not (policy.dynamic and policy.preemptive)


@pytest.mark.parametrize("name", sorted(QUEUE_POLICIES))
@given(jobs=st.lists(WAITINGS, min_size=2, max_size=6), aging=st.floats(0.01, 10.0), now_s=st.floats(1e6, 2e6))
def test_aging_orders_as_taking_the_wait_off_the_key_would(
    name: str, jobs: list[Waiting], aging: float, now_s: float
) -> None:
    policy = QUEUE_POLICIES[name]
    aged_key = aged(policy, aging).key
    by_wait = [policy.key(job, STATE, now_s) - aging * (now_s - job.arrived_s) for job in jobs]
    by_aged = [aged_key(job, STATE, now_s) for job in jobs]

    for i, left in enumerate(by_wait):
        for j, right in enumerate(by_wait):
            # Far enough apart that rounding decides neither.
            if left < right - 1e-3:
                assert by_aged[i] < by_aged[j]


def test_a_gang_without_gpus_ages_by_a_thousandth() -> None:
    assert QUEUE_POLICIES["las"].key(waiting(0, gpus=0.0, attained_s=500.0), STATE, 0.0) == 0.5


def test_what_a_killed_job_is_given_counts() -> None:
    shrunk = waiting(0, predicted_s=10.0, request=Demand(units=(0, 0, 4000), instances=1))

    assert [QUEUE_POLICIES["qssf"].key(job, STATE, 0.0) for job in (shrunk, shrunk.killed())] == [10.0, 40.0]


def test_what_a_job_keeps_when_it_comes_back() -> None:
    job = waiting(0, 3.0, predicted_s=100.0, attained_s=20.0)

    stopped = job.preempted(30.0, 5.0)
    assert (stopped.attained_s, stopped.remaining_s, stopped.expected_s) == (50.0, 50.0, 55.0)
    for lost in (stopped.killed(), stopped.interrupted()):
        assert (lost.attained_s, lost.expected_s, lost.arrived_s) == (0.0, 100.0, 3.0)
    assert stopped.killed().full
    assert not stopped.interrupted().full
    assert waiting(0).expected_s == math.inf


def test_policies_go_by_name_or_by_value() -> None:
    own = QueuePolicy(key=lambda job, state, now_s: 0.0)

    assert policy_of("las") is QUEUE_POLICIES["las"]
    assert policy_of(own) is own
    with pytest.raises(
        BadInput, match="'lifo', expected one of drf, fifo, gittins, las, las_time, mlfq, priority, qssf, sjf, srtf"
    ):
        policy_of("lifo")
