"""The published protocol: what is drawn, and a compiled run against rooms and placements one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.studies.fragmentation.inflation import Inflation, Pods, curve, inflate, run_inflation
from scheduler_core.cluster import Allocation, Cluster, Demand, Machine
from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.target import target_of
from tests.examples import examples
from tests.pipelines.simulation.engine.sharing_references import CLUSTERS, DEMANDS
from tests.scheduler_core.cases import machines

MILLI = st.lists(st.sampled_from([0, 0, 100, 300, 1000, 8000]), min_size=1, max_size=30).filter(any)


def pods_of(demands: list[Demand]) -> Pods:
    names = tuple(dict.fromkeys(demand.gpu_type for demand in demands if demand.gpu_type is not None))
    codes = [ANY_GPU_TYPE if demand.gpu_type is None else names.index(demand.gpu_type) for demand in demands]
    return Pods(units=np.array([demand.units for demand in demands]), gpu_type=np.array(codes), gpu_types=names)


@given(MILLI, st.integers(1, 200), st.integers(0, 5))
def test_inflated_pods_ask_for_almost_the_bound(milli: list[int], tenths: int, seed: int) -> None:
    asked, capacity = np.array(milli), max(milli) * tenths // 10 + 1
    order = inflate(asked, capacity, until=1.3, rng=np.random.default_rng(seed))
    total = int(asked[order].sum())
    assert total <= 1.3 * capacity
    if asked.sum() <= 1.3 * capacity:
        assert sorted(order[: len(asked)].tolist()) == list(range(len(asked)))
        assert total + max(milli) > 1.3 * capacity
    else:
        assert len(set(order.tolist())) == len(order) < len(asked)
        assert total + max(milli) > 1.3 * capacity
    assert order.tolist() == inflate(asked, capacity, until=1.3, rng=np.random.default_rng(seed)).tolist()


def test_pods_without_a_gpu_cannot_be_inflated() -> None:
    with pytest.raises(BadInput, match="asks for a GPU"):
        inflate(np.zeros(3, dtype=np.int64), 1000, rng=np.random.default_rng(0))


@pytest.mark.parametrize(("policy", "ties"), [("random", "first"), ("fgd", "random"), ("gpu_packing", "random")])
@settings(max_examples=examples(30))
@given(CLUSTERS, st.lists(DEMANDS, min_size=1, max_size=30), st.integers(0, 3))
def test_what_is_drawn_fits_and_only_what_fits_nowhere_is_dropped(
    policy: str, ties: str, drawn: list[Machine], demands: list[Demand], seed: int
) -> None:
    room, target = Cluster(drawn, sharing="devices").empty, target_of(demands)
    runs = [
        run_inflation(drawn, pods_of(demands), policy, target, ties=ties, rng=np.random.default_rng(seed))
        for _ in range(2)
    ]
    assert runs[0].node.tolist() == runs[1].node.tolist()
    for demand, node, taken in zip(demands, runs[0].node.tolist(), runs[0].taken, strict=True):
        if node == -1:
            assert not room.fits(demand)
            continue
        milli = min(demand.units[2], 1000)
        devices = tuple((node, device, milli) for device in np.flatnonzero(taken).tolist())
        room = room.without([Allocation(demand=demand, counts=((node, 1),), devices=devices)])


def test_ties_drawn_spread_over_all_that_are_equal() -> None:
    pods = pods_of([Demand(units=(0, 0, 1000), instances=1)])
    target = target_of([])
    nodes = {
        int(run_inflation(machines(4), pods, "fgd", target, ties="random", rng=np.random.default_rng(seed)).node[0])
        for seed in range(40)
    }
    assert nodes == {0, 1, 2, 3}


def test_more_than_one_gpu_counts_as_whole_ones() -> None:
    pods = pods_of([Demand(units=(0, 0, 1500), instances=1), Demand(units=(0, 0, 400), instances=1)])
    found = run_inflation(machines(1), pods, "gpu_packing", target_of(pods.demands()), rng=np.random.default_rng(0))
    assert (found.arrived_milli.tolist(), found.used_milli.tolist()) == ([2000, 2400], [2000, 2400])
    assert (found.capacity_milli, found.taken.tolist()) == (
        4000,
        [[True, True, False, False], [False, False, True, False]],
    )


def test_bins_are_whole_percents_of_what_had_arrived() -> None:
    run = Inflation(
        capacity_milli=1000,
        arrived_milli=np.array([4, 6, 12, 30]),
        used_milli=np.array([4, 6, 6, 20]),
        fragmentation=np.array([0.0, 10.0, 20.0, 40.0]),
        node=np.zeros(4, dtype=np.int64),
        taken=np.zeros((4, 1), dtype=np.bool_),
    )
    found = curve(run)
    assert found["arrived_pct"].to_list() == [0, 1, 3]
    assert found["unallocated_pct"].to_list() == pytest.approx([99.6, 99.4, 98.0])
    assert found["fragmented_pct"].to_list() == pytest.approx([0.0, 1.5, 4.0])


def test_machines_without_gpus_and_unknown_names_are_refused() -> None:
    pods, target, rng = pods_of([Demand(units=(0, 0, 1), instances=1)]), target_of([]), np.random.default_rng(0)
    with pytest.raises(BadInput, match="without a GPU"):
        run_inflation(machines(2, gpus=0), pods, "fgd", target, rng=rng)
    with pytest.raises(BadInput, match="device placement"):
        run_inflation(machines(2), pods, "best_fit", target, rng=rng)
