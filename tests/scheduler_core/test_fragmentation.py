"""Fragmentation by hand in every branch of its definition, and against the definition read out loud."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Demand
from scheduler_core.fragmentation import FreeNodes
from scheduler_core.target import target_of
from tests.pipelines.simulation.engine.sharing_references import DEMANDS, TYPES, Box
from tests.pipelines.simulation.engine.sharing_references import fragmentation as as_defined
from tests.scheduler_core.cases import cluster_fragmentation


def node(cpu: int, gpus: list[int], gpu_type: str | None = "T4") -> FreeNodes:
    return FreeNodes(cpu_milli=np.array([cpu]), devices=np.array([gpus]), gpu_type=(gpu_type,))


def asked(cpu: int, gpu: int, gpu_type: str | None = None) -> Demand:
    return Demand(units=(cpu, 0, gpu), instances=1, gpu_type=gpu_type)


HALVES = [1000, 600, 400, 0]

BRANCHES = {
    "CPU only, enough of it": (asked(4000, 0), 2000),
    "CPU only, too little of it": (asked(9000, 0), 2000),
    "another GPU type": (asked(4000, 500, "V100|P100"), 2000),
    "one of its GPU types": (asked(4000, 500, "V100|T4"), 400),
    "a part of any device": (asked(4000, 300), 0),
    "a part of some device": (asked(4000, 500), 400),
    "exactly what a device has": (asked(8000, 600), 400),
    "a whole device": (asked(4000, 1000), 1000),
    "more whole devices than there are": (asked(4000, 2000), 2000),
    "too little CPU": (asked(8001, 500), 2000),
    "too little of both": (asked(9000, 2000), 2000),
}


@pytest.mark.parametrize(("demand", "lost"), BRANCHES.values(), ids=BRANCHES.keys())
def test_every_branch_by_hand(demand: Demand, lost: int) -> None:
    here, target = node(8000, HALVES), target_of([demand])
    assert cluster_fragmentation(here, target) == lost


def test_a_machine_of_no_known_type_is_open_to_those_who_name_none() -> None:
    here = node(8000, [1000], gpu_type=None)
    assert cluster_fragmentation(here, target_of([asked(0, 1000)])) == 0
    assert cluster_fragmentation(here, target_of([asked(0, 1000, "T4")])) == 1000


def test_popularity_weighs_shapes_and_machines_add_up() -> None:
    nodes = FreeNodes(
        cpu_milli=np.array([8000, 1000]), devices=np.array([[1000, 400], [500, 0]]), gpu_type=("T4", "V100")
    )
    target = target_of([asked(2000, 500)] * 3 + [asked(500, 0)])
    # Of the first: 3/4 of 400 and 1/4 of 1400; the second lacks CPU for three and is of no GPU use to one: all of 500.
    assert cluster_fragmentation(nodes, target) == (0.75 * 400 + 0.25 * 1400) + 500.0


def test_a_target_of_no_pod_leaves_nothing_unusable() -> None:
    here, target = node(8000, HALVES), target_of([])
    assert cluster_fragmentation(here, target) == 0.0


NODES = st.lists(
    st.tuples(
        st.sampled_from([0, 500, 2000, 8000]),
        st.lists(st.sampled_from([0, 300, 500, 900, 1000]), min_size=4, max_size=4),
        st.sampled_from(TYPES),
    ),
    min_size=1,
    max_size=4,
)


@given(NODES, st.lists(DEMANDS, min_size=1, max_size=8))
def test_fragmentation_is_as_defined(drawn: list[tuple[int, list[int], str | None]], demands: list[Demand]) -> None:
    nodes = FreeNodes(
        cpu_milli=np.array([cpu for cpu, _, _ in drawn]),
        devices=np.array([gpus for _, gpus, _ in drawn]),
        gpu_type=tuple(gpu_type for _, _, gpu_type in drawn),
    )
    target = target_of(demands)
    expected = [float(as_defined(Box(cpu, 0, gpus, gpu_type), target)) for cpu, gpus, gpu_type in drawn]
    assert cluster_fragmentation(nodes, target) == pytest.approx(sum(expected))
