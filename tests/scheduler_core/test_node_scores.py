"""Ranks of machines for whole GPUs, against the readable definition of fragmentation."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Demand
from scheduler_core.fragmentation import FreeNodes, node_ranks
from scheduler_core.target import target_of
from tests.scheduler_core.cases import cluster_fragmentation

MACHINES = st.lists(st.tuples(st.integers(8, 64), st.integers(2, 8)), min_size=1, max_size=12)
PODS = st.lists(
    st.builds(
        lambda cores, gpus, pods: Demand(units=(cores * 1000, 0, gpus * 1000), instances=pods),
        st.integers(0, 40), st.integers(0, 8), st.integers(1, 9),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@given(MACHINES, PODS, st.sampled_from([0, 1, 2]))
def test_machines_are_ranked_by_the_decrease_of_fragmentation_and_then_by_what_is_left(
    machines: list[tuple[int, int]], pods: list[Demand], asked: int
) -> None:
    target, left_over = target_of(pods), np.array([cores / 64.0 for cores, _ in machines])

    def unusable_gpus(cores: int, gpus: int) -> float:
        devices = np.full((1, gpus), 1000)
        nodes = FreeNodes(cpu_milli=np.array([cores * 1000]), devices=devices, gpu_type=(None,))
        return cluster_fragmentation(nodes, target) / 1000.0

    def key(cores: int, gpus: int) -> tuple[int, float]:
        decrease = unusable_gpus(cores, gpus) - unusable_gpus(cores - 4, gpus - asked)
        return int(100.0 / (1.0 + np.exp(-decrease))), -cores

    free = np.array([(cores * 1000, 0, gpus * 1000) for cores, gpus in machines])
    demand = Demand(units=(4000, 0, asked * 1000), instances=1)
    ranks = node_ranks(demand, free, left_over, target)

    keys = [key(*each) for each in machines]
    places = sorted(set(keys))
    assert ranks.tolist() == [places.index(each) / max(len(places) - 1, 1) for each in keys]
