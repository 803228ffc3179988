import dataclasses
import doctest
import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.monitor import JobStates
from scheduler_core.planning.carbon.round import Site, Source, carbon_round
from tests.scheduler_core.planning.carbon.made_rounds import jobs_of

JOBS = jobs_of([[1.0, 1.8, 2.4, 2.8]] * 3, steps_left=[20_000.0] * 3, perf=[0.6, 1.0], watts=[80.0, 200.0])
STATES = JobStates(
    submit_ts=np.array([0.0, 100.0, 200.0]),
    seen_ts=np.array([900.0] * 3),
    steps_done=np.array([500.0, 0.0, 100.0]),
    gpus=np.array([1, 0, 2]),
    step=np.array([0, 0, 1]),
    ended=np.array([False, True, False]),
)
SITE = Site(period_s=900.0, fallback_g_per_kwh=900.0, pue=1.2)
NODES = np.array([4, 2])


@given(budget_g=st.floats(0.0, 100.0), free=st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_a_round_keeps_its_budget_and_every_planned_gpu_has_a_node(budget_g: float, free: list[int]) -> None:
    nodes = np.array(free)

    found = carbon_round(
        JOBS, STATES, 1000.0, feed=lambda ts: 300.0, reading=None, budget_g=budget_g, free_gpus=nodes, site=SITE
    )

    assert found.rows.tolist() == [0, 2]
    assert found.planned_g.sum() <= budget_g
    assert not found.placed.unplaced.any()
    assert np.array_equal(found.placed.gpus.sum(axis=1), found.plan.gpus)
    assert (found.placed.gpus.sum(axis=0) <= nodes).all()


def test_rounds_follow_each_other_by_reading_and_place() -> None:
    first = carbon_round(
        JOBS, STATES, 1000.0, feed=lambda ts: 300.0, reading=None, budget_g=1e3, free_gpus=NODES, site=SITE
    )
    places = np.zeros((3, 2), dtype=np.int64)
    places[first.rows] = first.placed.gpus

    second = carbon_round(
        JOBS,
        STATES,
        1900.0,
        feed=lambda ts: float("nan"),
        reading=first.reading,
        budget_g=1e3,
        free_gpus=NODES,
        site=SITE,
        places=places,
    )

    assert second.reading.source is Source.KEPT
    assert second.reading.g_per_kwh == 300.0
    assert np.array_equal(second.placed.gpus, first.placed.gpus)


def test_a_dirtier_hour_gives_the_same_budget_less() -> None:
    clean, dirty = (
        carbon_round(
            JOBS, STATES, 1000.0, feed=lambda ts, g=g: g, reading=None, budget_g=20.0, free_gpus=NODES, site=SITE
        )
        for g in (100.0, 800.0)
    )

    assert clean.plan.gpus.sum() > dirty.plan.gpus.sum()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput, match="fallback"):
        carbon_round(
            JOBS,
            STATES,
            1000.0,
            feed=lambda ts: 1.0,
            reading=None,
            budget_g=1.0,
            free_gpus=NODES,
            site=dataclasses.replace(SITE, fallback_g_per_kwh=-1.0),
        )


def test_the_example_holds() -> None:
    assert doctest.testmod(importlib.import_module("scheduler_core.planning.carbon.round")).failed == 0
