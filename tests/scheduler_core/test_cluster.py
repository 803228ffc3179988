"""Capacities in integer units: rounding, hosting, taking and giving back."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Allocation, Cluster, Demand, Machine, Room, demand_of, move, paper_machines
from scheduler_core.errors import BadInput
from scheduler_core.types import Request
from tests.scheduler_core.cases import NAN, machines, request


def test_requests_round_up_and_capacities_down() -> None:
    assert demand_of(request(0.55 * 6, 29.3, 0.333333), 1).units == (3300, 30004, 334)
    assert Cluster([Machine(name="m", cpu_cores=1.9999, mem_gib=1.0, gpus=2)]).capacity.tolist() == [[1999, 1024, 2000]]


def test_a_resource_the_trace_lacks_takes_nothing() -> None:
    assert demand_of(request(NAN, NAN, 2.0), 1).units == (0, 0, 2000)


@pytest.mark.parametrize("cores", [-1.0, float("inf")])
def test_a_request_that_cannot_be_meant_is_refused(cores: float) -> None:
    with pytest.raises(BadInput, match="expected a finite amount"):
        demand_of(request(cores), 1)


@pytest.mark.parametrize("amount", [None, "6", [6.0]])
def test_a_request_of_what_is_no_number_is_refused(amount: object) -> None:
    with pytest.raises(BadInput, match="expected a number, or NaN for an unknown amount"):
        demand_of(Request(cpu_cores=amount, mem_gib=1.0, gpus=1.0), 1)  # type: ignore[arg-type]  # what callers do


@pytest.mark.parametrize("instances", [0, -1, 1.5, math.nan, None])
def test_a_gang_without_an_instance_is_refused(instances: object) -> None:
    with pytest.raises(BadInput, match=f"found {instances} instances, expected at least 1"):
        demand_of(request(1.0), instances)  # type: ignore[arg-type]  # what callers do


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ({"cpu_cores": -1.0}, "machine 'm': found cpu_cores=-1.0, expected a finite amount of at least 0"),
        ({"mem_gib": math.nan}, "machine 'm': found mem_gib=nan"),
        ({"mem_gib": math.inf}, "machine 'm': found mem_gib=inf"),
        ({"gpus": -8}, "machine 'm': found gpus=-8, expected a whole number of at least 0"),
        ({"gpus": 0.5}, "machine 'm': found gpus=0.5, expected a whole number of at least 0"),
        ({"cpu_cores": None}, "machine 'm': found cpu_cores=None"),
    ],
)
def test_a_machine_that_holds_what_cannot_be_is_refused(amounts: dict[str, Any], expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        Machine(**{"name": "m", "cpu_cores": 8.0, "mem_gib": 64.0, "gpus": 4, **amounts})


def test_two_machines_of_one_name_are_refused() -> None:
    one = Machine(name="m", cpu_cores=8.0, mem_gib=64.0, gpus=4)

    with pytest.raises(BadInput, match="found 2 machines named 'm', expected a different name for each"):
        Cluster([replace(one, name="other"), one, one])


def test_an_instance_is_not_split_over_machines() -> None:
    cluster = Cluster(machines(count=2, gpus=4))

    assert cluster.could_host(Demand(units=(0, 0, 4000), instances=2))
    assert not cluster.could_host(Demand(units=(0, 0, 5000), instances=1))
    assert cluster.empty.hosts(Demand(units=(0, 0, 3000), instances=9)).tolist() == [1, 1]


def test_a_gpu_type_restricts_the_machines() -> None:
    kinds = [Machine(name=n, cpu_cores=8, mem_gib=8, gpus=2, gpu_type=t) for n, t in [("a", "T4"), ("b", "P100")]]
    cluster = Cluster(kinds)

    one_gpu = Demand(units=(0, 0, 1000), instances=4, gpu_type="P100")

    assert cluster.empty.hosts(one_gpu).tolist() == [0, 2]
    assert not cluster.could_host(one_gpu)
    assert not cluster.could_host(replace(one_gpu, instances=1, gpu_type="V100"))
    assert cluster.could_host(replace(one_gpu, instances=4, gpu_type=None))


def test_a_machine_that_is_down_hosts_nothing() -> None:
    room = Cluster(machines(count=2)).empty.only(np.array([False, True]))

    assert room.hosts(Demand(units=(0, 0, 0), instances=3)).tolist() == [0, 3]
    assert room.free.tolist() == [[0, 0, 0], [8000, 16 * 1024, 4000]]


def test_taking_and_releasing_leave_the_room_before_as_it_was() -> None:
    room = Cluster(machines(count=2)).empty
    taken = Allocation(demand=Demand(units=(1000, 0, 2000), instances=2), counts=((1, 2),))

    free = room.free.copy()
    move(taken, -1, free, None, None)
    less = replace(room, free=free)

    assert less.free[1].tolist() == [6000, 16 * 1024, 0]
    assert less.with_([taken]).free.tolist() == room.free.tolist() == Cluster(machines(count=2)).capacity.tolist()


@given(
    free=st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=4),
    units=st.tuples(*[st.integers(0, 4)] * 3),
    instances=st.integers(1, 6),
)
def test_a_gang_fits_where_its_instances_can_be_counted_out(
    free: list[tuple[int, ...]], units: tuple[int, int, int], instances: int
) -> None:
    room = Room(np.array(free), np.ones(3, dtype=np.int64), np.ones(len(free), dtype=np.bool_), {})

    counted = 0
    for machine in free:
        for taken in range(1, instances + 1):
            counted += all(have >= taken * want for have, want in zip(machine, units, strict=True))

    assert room.fits(Demand(units=units, instances=instances)) == (counted >= instances)


def test_a_cluster_has_machines() -> None:
    with pytest.raises(BadInput, match="at least one"):
        Cluster([])


def test_the_papers_cluster() -> None:
    assert Cluster(paper_machines()).capacity.sum(axis=0).tolist() == [384_000, 4 * 512 * 1024, 32_000]
