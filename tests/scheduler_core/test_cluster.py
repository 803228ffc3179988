"""Capacities in integer units: rounding, hosting, taking and giving back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.cluster import Allocation, Cluster, Demand, Machine, demand_of, paper_machines
from scheduler_core.errors import BadInput, SchedulerError
from scheduler_core.placement import PLACEMENTS
from tests.scheduler_core.cases import NAN, REQUESTS, machines, request


def test_requests_round_up_and_capacities_down() -> None:
    assert demand_of(request(0.55 * 6, 29.3, 0.333333), 1).units == (3300, 30004, 334)
    assert Cluster([Machine(name="m", cpu_cores=1.9999, mem_gib=1.0, gpus=2)]).capacity.tolist() == [[1999, 1024, 2000]]


def test_a_resource_the_trace_lacks_takes_nothing() -> None:
    assert demand_of(request(NAN, NAN, 2.0), 1).units == (0, 0, 2000)


@pytest.mark.parametrize("cores", [-1.0, float("inf")])
def test_a_request_that_cannot_be_meant_is_refused(cores: float) -> None:
    with pytest.raises(BadInput, match="expected a finite amount"):
        demand_of(request(cores), 1)


def test_an_instance_is_not_split_over_machines() -> None:
    cluster = Cluster(machines(count=2, gpus=4))

    assert cluster.could_host(Demand(units=(0, 0, 4000), instances=2))
    assert not cluster.could_host(Demand(units=(0, 0, 5000), instances=1))
    assert cluster.hosts(Demand(units=(0, 0, 3000), instances=9)).tolist() == [1, 1]


def test_a_gpu_type_restricts_the_machines() -> None:
    kinds = [Machine(name=n, cpu_cores=8, mem_gib=8, gpus=2, gpu_type=t) for n, t in [("a", "T4"), ("b", "P100")]]
    cluster = Cluster(kinds)

    assert cluster.hosts(Demand(units=(0, 0, 1000), instances=4, gpu_type="P100")).tolist() == [0, 2]
    assert not cluster.could_host(Demand(units=(0, 0, 1000), instances=1, gpu_type="V100"))
    assert cluster.fits([Demand(units=(0, 0, 1000), instances=3, gpu_type=t) for t in (None, "T4")]).tolist() == [
        True,
        False,
    ]


def test_taking_more_than_is_free_and_giving_back_twice_are_refused() -> None:
    cluster = Cluster(machines(count=1))
    allocation = Allocation(demand=Demand(units=(5000, 0, 0), instances=1), counts=((0, 1),))

    cluster.allocate(allocation)
    with pytest.raises(SchedulerError, match="'m0'"):
        cluster.allocate(allocation)
    cluster.release(allocation)
    with pytest.raises(SchedulerError, match="released twice"):
        cluster.release(allocation)


def test_a_cluster_has_machines() -> None:
    with pytest.raises(BadInput, match="at least one"):
        Cluster([])


def test_the_papers_cluster() -> None:
    assert Cluster(paper_machines()).capacity.sum(axis=0).tolist() == [384_000, 4 * 512 * 1024, 32_000]


@settings(deadline=None)
@given(
    wanted=st.lists(st.tuples(REQUESTS, st.integers(1, 6)), min_size=1, max_size=20),
    placement=st.sampled_from(sorted(PLACEMENTS)),
    order=st.randoms(use_true_random=False),
)
def test_free_capacity_stays_in_bounds_and_comes_back(wanted: list, placement: str, order) -> None:  # type: ignore[no-untyped-def,type-arg]
    cluster = Cluster(machines(count=3, cpu_cores=64.0, mem_gib=256.0, gpus=8))
    held = []
    for wants, instances in wanted:
        demand = demand_of(wants, instances)
        expected = bool(cluster.fits([demand])[0])
        allocation = PLACEMENTS[placement](demand, cluster)
        assert (allocation is not None) == expected
        if allocation is not None:
            cluster.allocate(allocation)
            held.append(allocation)
        assert ((cluster.free >= 0) & (cluster.free <= cluster.capacity)).all()

    order.shuffle(held)
    for allocation in held:
        cluster.release(allocation)
    assert np.array_equal(cluster.free, cluster.capacity)
