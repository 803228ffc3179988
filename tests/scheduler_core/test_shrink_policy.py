"""Parameters of Algorithm 1: defaults, invalid values, floors, and the GPU grid."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.shrink import MAX_ALPHA, PAPER_ALPHA0, SURE_RUNS, ShrinkPolicy, round_up_gpus, shrink
from scheduler_core.types import PeakUse, Reason
from tests.scheduler_core.cases import NAN, WIDE, ToyPredictor, job, request


def test_alphas_start_at_alpha0_and_stay_below_one() -> None:
    assert ShrinkPolicy(alpha0=0.5).alphas().tolist() == [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
    assert ShrinkPolicy(alpha0=0.0, alpha_step=1.0).alphas().tolist() == [0.0]
    assert ShrinkPolicy(alpha0=MAX_ALPHA).alphas().tolist() == [MAX_ALPHA]


@pytest.mark.parametrize(("guard", "first"), [("usage", 0.05), ("none", PAPER_ALPHA0)])
def test_candidates_begin_deep_above_floors_and_where_the_paper_is_reproduced_at_half(guard: Any, first: float) -> None:
    assert ShrinkPolicy(guard=guard).first_alpha == ShrinkPolicy(guard=guard).alphas()[0] == first
    assert replace(ShrinkPolicy(), guard=guard).first_alpha == first
    assert ShrinkPolicy(guard=guard, alpha0=0.3).first_alpha == 0.3


@pytest.mark.parametrize("runs", [SURE_RUNS, SURE_RUNS - 1])
def test_unless_told_otherwise_a_request_goes_down_to_floors_that_are_sure(runs: int) -> None:
    known = replace(WIDE, important=frozenset({"mem_gib"}))
    predictor = ToyPredictor(peak=(0.6, 2.0, 0.1, 1.0), known=known, runs=runs)

    [answer] = shrink([job("a", request(6.0, 16.0, 1.0))], predictor)

    assert answer.target.row() == pytest.approx((0.6, 2.3 if runs == SURE_RUNS else 16.0, 0.1))


def test_a_floor_that_many_runs_are_asked_for_is_sure() -> None:
    known = replace(WIDE, important=frozenset({"cpu_cores"}))

    policy = ShrinkPolicy(alpha0=0.5, min_runs=70, sure_runs=50)

    [answer] = shrink([job("a", request(4.0, 8.0, 1.0))], ToyPredictor(known=known, runs=80), policy)
    [fewer] = shrink([job("a", request(4.0, 8.0, 1.0))], ToyPredictor(known=known, runs=60), policy)

    assert answer.target.cpu_cores == 2.0
    assert set(fewer.reasons.values()) == {Reason.COLD_START}


@pytest.mark.parametrize(
    "fields",
    [
        {"alpha0": 1.0},
        {"alpha0": 0.9999999999999999},
        {"alpha_step": 0.0},
        {"theta": 0.0},
        {"guard": "maybe"},
        {"min_runs": -1},
        {"sure_runs": -1},
        {"sure_runs": NAN},
        {"mem_margin": -0.1},
        {"gpu_grid": 0.0},
    ],
)
def test_a_policy_outside_its_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(fields))):
        ShrinkPolicy(**fields)


@pytest.mark.parametrize(
    ("gpus", "grid", "expected"),
    [
        (0.12, 0.05, 0.15),
        (0.15, 0.05, 0.15),
        (0.3, 0.1, 0.3),
        (0.96, 0.05, 1.0),
        (1.0, 0.05, 1.0),
        (1.01, 0.05, 2.0),
        (7.5, 0.05, 8.0),
        (0.5, 1.0, 1.0),
        (0.0, 0.05, 0.0),
    ],
)
def test_gpu_shares_round_up_to_the_grid_and_whole_gpus(gpus: float, grid: float, expected: float) -> None:
    assert round_up_gpus(np.array([gpus]), grid).tolist() == [expected]


@settings(deadline=None)
@given(gpus=st.floats(0.0, 16.0), steps=st.integers(1, 40))
def test_rounding_never_goes_down_and_is_idempotent(gpus: float, steps: int) -> None:
    grid = 1.0 / steps

    rounded = round_up_gpus(np.array([gpus]), grid)

    assert rounded[0] >= gpus - 1e-8
    assert rounded[0] - gpus <= max(grid, 1.0 if gpus > 1.0 - grid else grid) + 1e-8
    assert round_up_gpus(rounded, grid).tolist() == pytest.approx(rounded.tolist(), abs=1e-9)


def test_floor_of_gpus_is_the_larger_of_share_and_memory_and_unknown_below_the_runs() -> None:
    ones = np.ones(4)
    peak = PeakUse(
        cpu_cores=4 * ones,
        mem_gib=10 * ones,
        gpus=np.array([0.5, 0.1, 0.1, 0.5]),
        gpu_mem_gib=np.array([2.0, 8.0, 8.0, 2.0]),
        runs=np.array([3, 3, 3, 2]),
    )
    policy = ShrinkPolicy(
        cpu_margin=0.5,
        mem_margin=0.2,
        gpu_mem_margin=0.5,
        device_mem_gib={"V100M32": 32.0},
        assumed_device_mem_gib=16.0,
    )

    floors = policy.floors(peak, ["T4", None, "V100M32", "T4"])

    assert floors[:3].tolist() == [[6.0, 12.0, 0.5], [6.0, 12.0, 0.75], [6.0, 12.0, 0.375]]
    assert np.isnan(floors[3]).all()
    assert policy.floors(peak, [None] * 4, margins=False)[1].tolist() == [4.0, 10.0, 0.5]
