"""GPUs one by one: what instances take of them, how many fit, which are chosen, and that all comes back."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Allocation, Cluster, Demand, in_devices, move
from scheduler_core.gangs import bound, rounded, shape, slots
from tests.pipelines.simulation.engine.simulations import gpu_machines

MILLI = st.sampled_from([0, 1, 250, 300, 500, 600, 1000, 1500, 2000, 4000])
LEFT = st.sampled_from([0, 200, 300, 500, 700, 1000])
FREE = st.lists(st.lists(LEFT, min_size=4, max_size=4), min_size=1, max_size=4)


def gang(milli: int, instances: int = 1, cores: int = 0, **fields: Any) -> Demand:
    return Demand(units=(cores, 0, milli), instances=instances, **fields)


def taken_one_by_one(free: list[int], milli: int) -> int:
    """Return how many instances one machine's devices take, counted by taking."""
    count, each = shape(milli)
    left, hosted = list(free), 0
    while sum(has >= each for has in left) >= count:
        fitting = sorted((has, at) for at, has in enumerate(left) if has >= each)
        for _, at in fitting[:count]:
            left[at] -= each
        hosted += 1
    return hosted


@given(free=FREE, milli=MILLI.filter(bool))
def test_slots_are_what_taking_one_by_one_comes_to(free: list[list[int]], milli: int) -> None:
    assert slots(np.array(free), milli).tolist() == [taken_one_by_one(machine, milli) for machine in free]


@given(milli=st.integers(0, 9000))
def test_up_to_one_gpu_is_one_device_and_more_are_whole_ones(milli: int) -> None:
    count, each = shape(milli)

    assert count * each == rounded(np.array([milli]))[0] == in_devices(gang(milli)).units[2]
    assert milli <= count * each < milli + 1000
    assert each == 1000 if milli > 1000 else (each == milli and count <= 1)


@pytest.mark.parametrize(
    ("milli", "instances", "expected"),
    [
        # The smallest that suffices; the first of equal ones.
        (300, 1, ((0, 3, 300),)),
        (500, 1, ((0, 1, 500),)),
        (200, 3, ((0, 3, 200), (0, 1, 200), (0, 1, 200))),
        (1000, 1, ((0, 0, 1000),)),
        (2000, 1, ((0, 0, 1000), (0, 2, 1000))),
        (1000, 2, ((0, 0, 1000), (0, 2, 1000))),
        (0, 4, ()),
    ],
)
def test_which_devices_of_a_machine_are_taken(milli: int, instances: int, expected: tuple[Any, ...]) -> None:
    assert bound(np.array([[1000, 500, 1000, 350]]), milli, [(0, instances)]) == expected


def test_instances_are_counted_by_their_gpus() -> None:
    room = Cluster(gpu_machines(4), "devices").empty
    part = Allocation(demand=gang(300, 2), counts=((0, 2),), devices=((0, 0, 300), (0, 0, 300)))
    whole = Allocation(demand=gang(2000), counts=((0, 1),), devices=((0, 1, 1000), (0, 2, 1000)))

    free, devices, tenants = (np.array(each) for each in (room.free, room.devices, room.tenants))
    for each in (part, whole):
        move(each, -1, free, devices, tenants)
    taken = replace(room, free=free, devices=devices, tenants=tenants)

    assert taken.tenants is not None
    assert taken.tenants.tolist() == [[2, 0, 1, 0, 0]]
    assert taken.hosts(gang(300, 9)).tolist() == [4]
    assert taken.only(np.array([False])).hosts(gang(300, 9)).tolist() == [0]
