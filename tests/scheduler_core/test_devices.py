"""GPUs one by one: what instances take of them, how many fit, which are chosen, and that all comes back."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Allocation, Cluster, Demand, Machine, in_devices
from scheduler_core.devices import bound, by_host, rounded, shape, slots
from scheduler_core.errors import SchedulerError
from scheduler_core.placement import best_fit, consolidate, first_fit, placement_of, spread
from tests.pipelines.simulation.engine.simulations import gpu_machines
from tests.scheduler_core.cases import POOLED

MILLI = st.sampled_from([0, 1, 250, 300, 500, 600, 1000, 1500, 2000, 4000])
LEFT = st.sampled_from([0, 200, 300, 500, 700, 1000])
FREE = st.lists(st.lists(LEFT, min_size=4, max_size=4), min_size=1, max_size=4)
GANGS = st.lists(st.tuples(MILLI, st.integers(1, 5), st.integers(0, 4000)), min_size=1, max_size=25)


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


@given(
    free=FREE,
    milli=MILLI,
    cores=st.sampled_from([0, 1000, 3000]),
    instances=st.integers(1, 9),
    name=st.sampled_from(POOLED),
)
def test_a_placement_by_machines_takes_devices_that_are_free(
    free: list[list[int]], milli: int, cores: int, instances: int, name: str
) -> None:
    cluster = Cluster(gpu_machines(*(4 for _ in free), cpu_cores=4), "devices")
    for machine, gpus in enumerate(free):
        for device, has in enumerate(gpus):
            if has < 1000:
                taken = ((machine, device, 1000 - has),)
                cluster.allocate(Allocation(demand=gang(1000 - has), counts=((machine, 1),), devices=taken))
    room, demand = cluster.room(), in_devices(gang(milli, instances, cores))
    by_cores = 4000 // cores if cores else instances
    by_gpus = [taken_one_by_one(gpus, milli) if milli else instances for gpus in free]
    hosts = [min(instances, by_cores, most) for most in by_gpus]

    allocation = placement_of(name)(demand, room)

    assert room.hosts(demand).tolist() == hosts
    assert room.fits(demand) == (allocation is not None) == (sum(hosts) >= instances)
    if allocation is not None:
        count, each = shape(milli)
        assert [machine for machine, _, _ in allocation.devices] == [
            machine for machine, here in allocation.counts for _ in range(here * count)
        ]
        assert {one for _, _, one in allocation.devices} <= {each}
        left = room.without([allocation])
        assert left.devices is not None
        assert (left.devices >= 0).all()
        assert (left.free >= 0).all()
        assert left.free[:, 2].tolist() == left.devices.sum(axis=1).tolist()
        assert np.array_equal(left.with_([allocation]).devices, room.devices)


@given(gangs=GANGS, name=st.sampled_from(POOLED), order=st.randoms(use_true_random=False))
def test_devices_stay_in_bounds_and_come_back(gangs: list[tuple[int, int, int]], name: str, order: Any) -> None:
    cluster = Cluster(gpu_machines(4, 0, 2, 1, cpu_cores=16), "devices")
    whole = np.array([[1000] * 4, [0] * 4, [1000, 1000, 0, 0], [1000, 0, 0, 0]])
    held = []
    for milli, instances, cores in gangs:
        allocation = placement_of(name)(in_devices(gang(milli, instances, cores)), cluster.room())
        if allocation is not None:
            cluster.allocate(allocation)
            held.append(allocation)
        assert cluster.devices is not None
        assert ((cluster.devices >= 0) & (cluster.devices <= whole)).all()
        assert cluster.free[:, 2].tolist() == cluster.devices.sum(axis=1).tolist()
        if held and order.random() < 0.3:
            cluster.release(held.pop(order.randrange(len(held))))

    for allocation in held:
        cluster.release(allocation)
    assert np.array_equal(cluster.devices, whole)
    assert np.array_equal(cluster.free, cluster.capacity)


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (first_fit, ((0, 0, 300), (0, 1, 300), (1, 0, 300))),
        # Machine 1 has less free in all.
        (best_fit, ((1, 0, 300), (1, 1, 300), (0, 0, 300))),
        (consolidate, ((2, 0, 300), (2, 0, 300), (2, 0, 300))),
        # 1000, 900 and 800 are free: one each.
        (spread, ((2, 0, 300), (0, 0, 300), (1, 0, 300))),
    ],
)
def test_machines_are_chosen_as_ever_and_devices_within_them(placement: Any, expected: tuple[Any, ...]) -> None:
    cluster = Cluster(gpu_machines(2, 2, 1), "devices")
    for taken in (((0, 0, 600),), ((0, 1, 500),), ((1, 0, 650),), ((1, 1, 550),)):
        cluster.allocate(Allocation(demand=gang(taken[0][2]), counts=((taken[0][0], 1),), devices=taken))

    allocation = placement(gang(300, 3), cluster.room())

    assert allocation.devices == expected


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


@pytest.mark.parametrize("sharing", ["pooled", "devices"])
def test_a_gang_may_name_several_gpu_types(sharing: Any) -> None:
    kinds = ("V100M16", "P100", "V100M32", None)
    machines = [Machine(name=str(kind), cpu_cores=1, mem_gib=1, gpus=1, gpu_type=kind) for kind in kinds]
    cluster = Cluster(machines, sharing)
    wants = gang(500, 4, gpu_type="V100M16|V100M32")

    assert cluster.of_type("V100M16|V100M32").tolist() == [True, False, True, False]
    assert cluster.room().hosts(wants).tolist() == [2, 0, 2, 0]
    assert not cluster.room().fits(gang(500, 1, gpu_type="T4|A10"))
    assert first_fit(gang(500, 1, gpu_type="T4|P100"), cluster.room()).counts == ((1, 1),)  # type: ignore[union-attr]  # it fits
