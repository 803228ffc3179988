"""GPUs one by one: what instances take of them, how many fit, which are chosen, and that all comes back."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Allocation, Cluster, Demand, in_devices
from scheduler_core.devices import bound, by_host, rounded, shape, slots
from scheduler_core.errors import SchedulerError
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


def test_what_is_taken_by_host_is_in_the_order_of_the_hosts() -> None:
    taken = bound(np.array([[1000, 1000], [500, 500]]), 500, [(1, 2), (0, 1)])

    assert by_host([(1, 2), (0, 1)], taken, 2).tolist() == [[500, 500], [500, 0]]


def test_what_is_free_in_two_rooms_is_so_device_by_device() -> None:
    cluster = Cluster(gpu_machines(2), "devices")
    half = gang(500)
    first, second = (
        cluster.room().without([Allocation(demand=half, counts=((0, 1),), devices=((0, device, 500),))])
        for device in (0, 1)
    )

    both = first.within(second)

    assert both.devices is not None
    assert both.devices.tolist() == [[500, 500]]
    assert both.free[0, 2] == 1000
    assert not both.fits(gang(1000))


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        (Allocation(demand=gang(500), counts=((0, 1),)), "Room.allocation"),
        (Allocation(demand=gang(1500), counts=((0, 1),), devices=((0, 0, 1500),)), "each GPU within its own"),
        (Allocation(demand=gang(500), counts=((0, 1),), devices=((0, 1, 500),)), "each GPU within its own"),
    ],
)
def test_no_allocation_goes_beyond_a_device(allocation: Allocation, message: str) -> None:
    cluster = Cluster(gpu_machines(1, 4), "devices")

    with pytest.raises(SchedulerError, match=message):
        cluster.allocate(allocation)

    assert cluster.devices is not None
    assert cluster.devices.tolist() == [[1000, 0, 0, 0], [1000] * 4]
    assert np.array_equal(cluster.free, cluster.capacity)


def test_devices_of_a_machine_that_is_away_are_in_no_room() -> None:
    cluster = Cluster(gpu_machines(2, 2), "devices")
    cluster.down(1)

    room = cluster.room()

    assert room.devices is not None
    assert room.devices.tolist() == [[1000, 1000], [0, 0]]
    assert room.hosts(gang(300, 9)).tolist() == [6, 0]
