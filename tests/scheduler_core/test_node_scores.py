"""Ranks of machines for whole GPUs, against the readable definition of fragmentation."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Demand
from scheduler_core.fragmentation import FreeNodes, fragmentation
from scheduler_core.node_scores import idle_fragmentation, node_ranks
from scheduler_core.target import target_of

MACHINES = st.lists(st.tuples(st.integers(8, 64), st.integers(1, 8)), min_size=1, max_size=12)
PODS = st.lists(
    st.builds(
        lambda cores, gpus, pods: Demand(units=(cores * 1000, 0, gpus * 1000), instances=pods),
        st.integers(0, 40), st.integers(0, 8), st.integers(1, 9),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@given(MACHINES, PODS)
def test_fragmentation_of_idle_gpus_equals_the_definition(machines: list[tuple[int, int]], pods: list[Demand]) -> None:
    cpu, gpus = np.array([cores * 1000 for cores, _ in machines]), np.array([count for _, count in machines])
    devices = np.where(np.arange(8) < gpus[:, None], 1000, 0)
    nodes = FreeNodes(cpu_milli=cpu, devices=devices, gpu_type=(None,) * len(gpus))
    target = target_of(pods)

    np.testing.assert_allclose(idle_fragmentation(cpu, gpus, target), fragmentation(nodes, target), atol=1e-6)


@given(MACHINES, PODS)
def test_the_best_rank_has_the_largest_decrease(machines: list[tuple[int, int]], pods: list[Demand]) -> None:
    cpu, gpus = np.array([cores * 1000 for cores, _ in machines]), np.array([count for _, count in machines])
    one, target = Demand(units=(4000, 0, 1000), instances=1), target_of(pods)
    decrease = idle_fragmentation(cpu, gpus, target) - idle_fragmentation(cpu - 4000, gpus - 1, target)

    ranks = node_ranks(one, cpu, gpus, cpu / 64000.0, target)

    assert ranks.max() in (0.0, 1.0)
    assert np.isclose(decrease[ranks.argmax()], decrease.max(), atol=1e-5)
    best = np.isclose(decrease, decrease.max(), atol=1e-7)
    assert cpu[ranks.argmax()] == cpu[best].min()
