"""Contract of every placement, and what tells them apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.cluster import Allocation, Cluster, Demand
from scheduler_core.placement import PLACEMENTS, best_fit, first_fit
from tests.scheduler_core.cases import machines


def crowded(free_gpus: list[int]) -> Cluster:
    """Return machines of 4 GPUs with so many free."""
    cluster = Cluster(machines(count=len(free_gpus)))
    for machine, free in enumerate(free_gpus):
        taken = Demand(units=(0, 0, 1000), instances=4 - free)
        cluster.allocate(Allocation(demand=taken, counts=((machine, 4 - free),)))
    return cluster


@pytest.mark.parametrize("name", sorted(PLACEMENTS))
@settings(deadline=None)
@given(free=st.lists(st.integers(0, 4), min_size=1, max_size=5), gpus=st.integers(1, 4), instances=st.integers(1, 8))
def test_contract(name: str, free: list[int], gpus: int, instances: int) -> None:
    cluster = crowded(free)
    before = cluster.free.copy()
    demand = Demand(units=(10, 0, 1000 * gpus), instances=instances)

    allocation = PLACEMENTS[name](demand, cluster)

    assert np.array_equal(cluster.free, before), "a placement changes nothing"
    if sum(f // gpus for f in free) < instances:
        assert allocation is None
    else:
        assert allocation is not None
        assert allocation.demand == demand
        assert sum(count for _, count in allocation.counts) == instances
        assert len({machine for machine, _ in allocation.counts}) == len(allocation.counts)
        assert all(0 < count <= free[machine] // gpus for machine, count in allocation.counts)


def test_best_fit_fills_the_fullest_machine_that_fits() -> None:
    allocation = best_fit(Demand(units=(0, 0, 2000), instances=1), crowded([4, 1, 2, 3]))

    assert allocation is not None
    assert allocation.counts == ((2, 1),)


def test_a_gang_spreads_from_the_fullest_machine_on() -> None:
    allocation = best_fit(Demand(units=(0, 0, 1000), instances=6), crowded([4, 1, 2, 3]))

    assert allocation is not None
    assert allocation.counts == ((1, 1), (2, 2), (3, 3))


def test_first_fit_goes_by_the_given_order() -> None:
    allocation = first_fit(Demand(units=(0, 0, 1000), instances=5), crowded([4, 1, 2, 3]))

    assert allocation is not None
    assert allocation.counts == ((0, 4), (1, 1))
