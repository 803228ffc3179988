"""A round: its budget and places; the placer: whole jobs on few nodes."""

import dataclasses
import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.planning.carbon import carbon_round, place
from scheduler_core.planning.elastic import Period
from tests.scheduler_core.planning.carbon.made_rounds import jobs_of

JOBS = jobs_of([[1.0, 1.8, 2.4, 2.8]] * 2, steps_left=[19_500.0, 19_900.0], perf=[0.6, 1.0], watts=[80.0, 200.0])
PERIOD = Period(intensity_g_per_kwh=300.0, budget_g=20.0, period_s=900.0, pue=1.2)


@given(budget_g=st.floats(0.0, 100.0), free=st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_a_round_keeps_its_budget_and_every_planned_gpu_has_a_node(budget_g: float, free: list[int]) -> None:
    nodes = np.array(free)

    found = carbon_round(JOBS, dataclasses.replace(PERIOD, budget_g=budget_g), nodes)

    assert found.planned_g.sum() <= budget_g
    assert np.array_equal(found.placed.sum(axis=1), found.plan.gpus)
    assert (found.placed.sum(axis=0) <= nodes).all()


def test_a_dirtier_hour_gives_the_same_budget_less() -> None:
    clean, dirty = (
        carbon_round(JOBS, dataclasses.replace(PERIOD, intensity_g_per_kwh=g), np.array([4, 2])) for g in (100.0, 800.0)
    )

    assert clean.plan.gpus.sum() > dirty.plan.gpus.sum()


counts = st.lists(st.integers(0, 12), max_size=8).map(lambda each: np.array(each, dtype=np.int64))
nodes = st.lists(st.integers(0, 8), min_size=1, max_size=6).map(lambda each: np.array(each, dtype=np.int64))


@given(counts, nodes)
def test_no_node_gives_more_than_it_has_and_every_job_is_whole_or_nowhere(gpus, free) -> None:
    placed = place(gpus, free)

    assert (placed >= 0).all()
    assert (placed.sum(axis=0) <= free).all()
    assert np.array_equal(placed.sum(axis=1), np.where(placed.any(axis=1), gpus, 0))


@given(counts, nodes)
def test_counts_that_fit_in_all_are_all_placed(gpus, free) -> None:
    assert gpus.sum() > free.sum() or np.array_equal(place(gpus, free).sum(axis=1), gpus)


@given(st.integers(1, 20), nodes)
def test_a_job_alone_is_on_the_fewest_nodes_there_can_be(wanted: int, free) -> None:
    enough = [
        size
        for size in range(1, len(free) + 1)
        if any(sum(some) >= wanted for some in itertools.combinations(free.tolist(), size))
    ]

    placed = place(np.array([wanted]), free)

    assert placed.any() == bool(enough)
    assert not enough or np.count_nonzero(placed[0]) == enough[0]


@given(counts, nodes)
def test_jobs_of_the_same_counts_stay_where_they_were(gpus, free) -> None:
    first = place(gpus, free)

    assert np.array_equal(place(first.sum(axis=1), free, before=first), first)


def test_a_job_goes_where_least_is_left() -> None:
    assert place(np.array([3]), np.array([8, 4, 3])).tolist() == [[0, 0, 3]]


def test_a_job_whose_count_changed_or_whose_node_is_gone_is_placed_anew() -> None:
    before = np.array([[0, 2], [2, 0]])

    placed = place(np.array([2, 3]), np.array([4, 1]), before=before)

    assert placed.tolist() == [[1, 1], [3, 0]]
