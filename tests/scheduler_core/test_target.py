"""Target workloads: which shapes are kept with how many pods, and what a sliding one remembers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Demand
from scheduler_core.errors import BadInput
from scheduler_core.target import TargetWorkload, sliding_targets, target_of
from tests.pipelines.simulation.engine.sharing_references import DEMANDS


def demand(cpu: int = 1000, gpu: int = 500, mem: int = 0, gpu_type: str | None = None, instances: int = 1) -> Demand:
    return Demand(units=(cpu, mem, gpu), instances=instances, gpu_type=gpu_type)


def columns(target: TargetWorkload) -> tuple[object, ...]:
    parts = (target.cpu_milli, target.count, target.milli, target.pods)
    return tuple(part.tolist() for part in parts), target.gpu_type


def test_equal_shapes_are_one_whatever_their_memory_and_every_instance_is_a_pod() -> None:
    target = target_of([demand(mem=1), demand(mem=2), demand(gpu=2000, instances=2)])
    assert columns(target) == (([1000, 1000], [2, 1], [1000, 500], [2, 2]), (None, None))
    assert target.pods[0] == target.pods[1]


@pytest.mark.parametrize(
    ("popularity", "kept"), [(0.5, [5]), (0.51, [5, 3]), (0.8, [5, 3]), (0.81, [5, 3, 2]), (1.0, [5, 3, 2])]
)
def test_the_most_frequent_shapes_are_kept_until_they_are_popular_enough(popularity: float, kept: list[int]) -> None:
    pods = [demand(gpu=100, instances=3), demand(gpu=200, instances=5), demand(gpu=300, instances=2)]
    target = target_of(pods, popularity)
    assert target.pods.tolist() == kept
    assert target.pods.sum() == target.total


def test_of_equally_frequent_shapes_the_larger_is_kept() -> None:
    asked = [demand(gpu=300), demand(gpu=700), demand(cpu=500, gpu=1000), demand(gpu=700, gpu_type="T4")]
    assert columns(target_of(asked, 0.5))[0][2] == [700, 700]
    assert target_of(asked, 0.5).gpu_type == ("T4", None)


@given(st.lists(DEMANDS, max_size=20), st.randoms())
def test_the_order_of_demands_is_of_no_account(asked: list[Demand], random: object) -> None:
    shuffled = list(asked)
    random.shuffle(shuffled)
    assert columns(target_of(shuffled, 0.7)) == columns(target_of(asked, 0.7))


def test_no_demand_makes_a_target_of_no_shape() -> None:
    target = target_of([])
    assert (len(target), target.total) == (0, 0)


def test_a_share_that_is_reached_but_for_rounding_is_reached() -> None:
    pods = [demand(gpu=100, instances=55), demand(gpu=200, instances=45)]  # 0.55 * 100 is more than 55
    assert target_of(pods, 0.55).milli.tolist() == [100]


@pytest.mark.parametrize("popularity", [0.0, -0.1, 1.1, float("nan")])
def test_a_popularity_that_is_none_is_refused(popularity: float) -> None:
    with pytest.raises(BadInput, match="popularity"):
        target_of([demand()], popularity)


@given(st.lists(DEMANDS, min_size=1, max_size=60), st.integers(1, 12))
def test_a_short_sliding_target_is_always_that_of_its_window(asked: list[Demand], window: int) -> None:
    for number, target in enumerate(sliding_targets(asked, window), 1):
        assert target is not None
        assert columns(target) == columns(target_of(asked[max(number - window, 0) : number]))


def test_a_sliding_target_is_renewed_as_often_as_it_says() -> None:
    asked = [demand(gpu=int(np.random.default_rng(number).integers(1, 900))) for number in range(1, 51)]

    renewed = [number for number, target in enumerate(sliding_targets(asked, 100), 1) if target is not None]

    assert renewed == [1, 2, 4, 8, 16, 26, 36, 46]
