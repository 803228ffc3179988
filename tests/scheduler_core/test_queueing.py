"""Contract of every queue policy, and the order each gives."""

import math

import pytest

from scheduler_core.cluster import demand_of
from scheduler_core.queueing import QUEUE_POLICIES, QueueState, Waiting
from scheduler_core.shrink import shrink
from tests.scheduler_core.cases import ToyPredictor, job, request


def waiting(serial: int, arrived_s: float, *, user: str | None = None, predicted_s: float | None = None) -> Waiting:
    wants = job(f"j{serial}", user=user)
    advice = None
    if predicted_s is not None:
        advice = shrink([wants], ToyPredictor(run_time=lambda r: r[:, 0] * 0.0 + predicted_s))[0]
    demand = demand_of(request(), 1)
    return Waiting(
        serial=serial, job=wants, arrived_s=arrived_s, granted=request(), demand=demand, recommendation=advice
    )


STATE = QueueState(dominant_share={"greedy": 0.5, "modest": 0.1})
QUEUE = [
    waiting(0, 5.0, user="greedy", predicted_s=10.0),
    waiting(1, 3.0, user="modest"),
    waiting(2, 4.0, user="new", predicted_s=5.0),
]


@pytest.mark.parametrize(("name", "order"), [("fifo", [1, 2, 0]), ("srtf", [2, 0, 1]), ("drf", [2, 1, 0])])
def test_order(name: str, order: list[int]) -> None:
    key = QUEUE_POLICIES[name].key

    assert [w.serial for w in sorted(QUEUE, key=lambda w: key(w, STATE, 9.0))] == order


@pytest.mark.parametrize("name", sorted(QUEUE_POLICIES))
def test_contract(name: str) -> None:
    policy = QUEUE_POLICIES[name]

    for each in QUEUE:
        first = policy.key(each, STATE, 9.0)
        assert not math.isnan(first), "a key orders"
        assert policy.key(each, STATE, 9.0) == first, "a key is pure"
        if not policy.dynamic:
            assert policy.key(each, QueueState(dominant_share={}), 99.0) == first, "a static key is fixed while waiting"
