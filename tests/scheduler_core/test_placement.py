"""Contract of every placement, and what tells them apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Allocation, Cluster, Demand, Machine, Room
from scheduler_core.errors import BadInput
from scheduler_core.placement import best_fit, consolidate, first_fit, placement_of, spread
from tests.scheduler_core.cases import POOLED


def crowded(free_gpus: list[int], types: list[str | None] | None = None) -> Room:
    """Return machines of 4 GPUs with so many free."""
    kinds = types or [None] * len(free_gpus)
    cluster = Cluster(
        [Machine(name=str(i), cpu_cores=8, mem_gib=16, gpus=4, gpu_type=kind) for i, kind in enumerate(kinds)]
    )
    for machine, free in enumerate(free_gpus):
        taken = Demand(units=(0, 0, 1000), instances=4 - free)
        cluster.allocate(Allocation(demand=taken, counts=((machine, 4 - free),)))
    return cluster.room()


def counts(allocation: Allocation | None) -> tuple[tuple[int, int], ...] | None:
    return None if allocation is None else allocation.counts


@pytest.mark.parametrize("name", POOLED)
@given(
    free=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    gpus=st.integers(0, 4),
    instances=st.integers(1, 8),
    data=st.data(),
)
def test_contract(name: str, free: list[int], gpus: int, instances: int, data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(["T4", "P100", None]), min_size=len(free), max_size=len(free)))
    wanted = data.draw(st.sampled_from(["T4", None]))
    room = crowded(free, types)
    before = room.free.copy()
    demand = Demand(units=(0, 0, 1000 * gpus), instances=instances, gpu_type=wanted)
    open_ = [gpus_free if wanted in (None, kind) else -1 for gpus_free, kind in zip(free, types, strict=True)]
    hosts = [0 if gpus_free < 0 else instances if gpus == 0 else gpus_free // gpus for gpus_free in open_]

    allocation = placement_of(name)(demand, room)

    assert np.array_equal(room.free, before), "a placement changes nothing"
    if sum(hosts) < instances:
        assert allocation is None
    else:
        assert allocation is not None
        assert allocation.demand == demand
        assert sum(count for _, count in allocation.counts) == instances, "all or nothing"
        assert len({machine for machine, _ in allocation.counts}) == len(allocation.counts)
        assert all(0 < count <= hosts[machine] for machine, count in allocation.counts), "no instance split"


ONE_GPU = Demand(units=(0, 0, 1000), instances=1)
TWO_OF_ONE = Demand(units=(0, 0, 1000), instances=2)
SIX_OF_ONE = Demand(units=(0, 0, 1000), instances=6)


@pytest.mark.parametrize(
    ("placement", "demand", "expected"),
    [
        (first_fit, ONE_GPU, ((0, 1),)),
        (first_fit, SIX_OF_ONE, ((0, 3), (1, 1), (2, 2))),
        (best_fit, ONE_GPU, ((1, 1),)),
        (best_fit, TWO_OF_ONE, ((1, 1), (2, 1))),
        (best_fit, SIX_OF_ONE, ((1, 1), (2, 2), (0, 3))),
        # Machine 2 hosts both and is the fullest of those that do.
        (consolidate, TWO_OF_ONE, ((2, 2),)),
        # None hosts six: the largest first, so two machines and not three.
        (consolidate, SIX_OF_ONE, ((3, 4), (0, 2))),
        (spread, ONE_GPU, ((3, 1),)),
        # 4 and 3 free: the first to machine 3, then a tie at 3 goes to machine 0, then 3 again (3 against 2).
        (spread, Demand(units=(0, 0, 1000), instances=3), ((3, 2), (0, 1))),
    ],
)
def test_where_each_goes_with_3_1_2_and_4_gpus_free(placement, demand: Demand, expected) -> None:  # type: ignore[no-untyped-def]
    assert counts(placement(demand, crowded([3, 1, 2, 4]))) == expected


@pytest.mark.parametrize("name", POOLED)
def test_ties_go_to_the_machine_listed_first(name: str) -> None:
    assert counts(placement_of(name)(ONE_GPU, crowded([4, 4, 4]))) == ((0, 1),)


def test_room_is_weighed_over_the_largest_machine_of_each_resource() -> None:
    # 32 of 64 cores free weigh 0.5, 4 of 8 GPUs too: the small machine without GPUs is the fullest.
    kinds = [("big", 64, 8), ("cores", 24, 0), ("gpus", 0, 4)]
    room = Cluster([Machine(name=n, cpu_cores=c, mem_gib=1, gpus=g) for n, c, g in kinds]).room()

    assert room.freeness().tolist() == [3.0, 1.375, 1.5]
    assert counts(best_fit(Demand(units=(0, 1, 0), instances=1), room)) == ((1, 1),)


def test_placements_go_by_name_or_by_value() -> None:
    assert placement_of("spread") is spread
    assert placement_of(first_fit) is first_fit
    with pytest.raises(BadInput, match="'worst', expected one of best_fit, "):
        placement_of("worst")


def test_no_gang_is_placed_on_machines_of_another_type() -> None:
    room = crowded([4, 4], ["T4", "P100"])

    assert counts(first_fit(Demand(units=(0, 0, 1000), instances=2, gpu_type="P100"), room)) == ((1, 2),)
    assert first_fit(Demand(units=(0, 0, 1000), instances=5, gpu_type="P100"), room) is None
