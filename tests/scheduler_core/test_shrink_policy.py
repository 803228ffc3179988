"""Parameters of Algorithm 1: what they are unless told otherwise, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler_core.errors import BadInput
from scheduler_core.shrink import MAX_ALPHA, PAPER_ALPHA0, SURE_RUNS, ShrinkPolicy, shrink
from scheduler_core.types import Reason
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
