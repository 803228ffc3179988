"""What a job is never given less of: minimums hold with the guard and without it, and say so."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import RESOURCES, Knowledge, Reason, Request
from tests.scheduler_core.cases import NAN, REQUESTS, WIDE, ToyPredictor, job, request

AMOUNTS = st.one_of(st.just(NAN), st.floats(0.0, 64.0))
MINIMUMS = st.builds(Request, cpu_cores=AMOUNTS, mem_gib=AMOUNTS, gpus=AMOUNTS)


@settings(deadline=None)
@given(
    wants=st.lists(st.tuples(REQUESTS, st.none() | MINIMUMS), min_size=1, max_size=5),
    slope=st.floats(-1.0, 1.0),
    low=st.floats(0.0, 20.0),
    guard=st.sampled_from(["none", "usage"]),
)
def test_nothing_is_given_below_its_minimum(
    wants: list[tuple[Request, Request | None]], slope: float, low: float, guard: Any
) -> None:
    known = Knowledge(support=dict.fromkeys(RESOURCES, (low, low + 20.0)))
    predictor = ToyPredictor(run_time=lambda r: 100.0 * (np.nan_to_num(r).sum(axis=1) + 1.0) ** slope, known=known)

    answers = shrink(
        [job(str(i), asked, minimum=least) for i, (asked, least) in enumerate(wants)],
        predictor,
        ShrinkPolicy(guard=guard),
    )

    for answer, (asked, least) in zip(answers, wants, strict=True):
        minimums = (NAN,) * 3 if least is None else least.row()
        for target, want, minimum in zip(answer.target.row(), asked.row(), minimums, strict=True):
            assert math.isnan(want) or target <= want
            assert math.isnan(want) or math.isnan(minimum) or target >= min(want, minimum)


@pytest.mark.parametrize("guard", ["none", "usage"])
def test_a_minimum_above_alpha_is_a_floor_and_is_shown_as_one(guard: Any) -> None:
    least = request(5.0, 0.0, NAN)

    [answer] = shrink(
        [job("a", request(6.0, 8.0, 0.5), minimum=least)],
        ToyPredictor(known=WIDE),
        ShrinkPolicy(guard=guard, alpha0=0.5),
    )

    assert answer.target == request(5.0, 4.0, 0.25)
    assert answer.reasons == {"cpu_cores": Reason.FLOOR, "mem_gib": Reason.SHRUNK, "gpus": Reason.SHRUNK}
    assert answer.lower_bound.cpu_cores == 5.0


@pytest.mark.parametrize("guard", ["none", "usage"])
@pytest.mark.parametrize("known", [WIDE, Knowledge()], ids=["model speaks", "model silent"])
def test_a_minimum_at_the_request_stops_the_shrink(guard: Any, known: Knowledge) -> None:
    wants = request(6.0, 8.0, 0.5)

    [stopped, free] = shrink(
        [job("a", wants, minimum=wants), job("b", wants)],
        ToyPredictor(known=known),
        ShrinkPolicy(guard=guard, alpha0=0.5),
    )

    assert stopped.target == stopped.lower_bound == wants
    assert set(stopped.reasons.values()) == {Reason.FLOOR}
    assert free.target == request(3.0, 4.0, 0.25)


def test_a_share_of_a_gpu_stays_on_the_grid_above_its_minimum() -> None:
    [answer] = shrink([job("a", request(6.0, 8.0, 1.0), minimum=request(0.0, 0.0, 0.62))], ToyPredictor(known=WIDE))

    assert answer.target.gpus == 0.65


def test_a_candidate_like_the_one_before_it_is_not_asked_again() -> None:
    silent, wide = ToyPredictor(known=Knowledge()), ToyPredictor(known=WIDE)
    held = replace(wide, peak=(100.0, 100.0, 8.0, 0.1))

    for predictor in (silent, held, wide):
        shrink([job("a"), job("b")], predictor, ShrinkPolicy(alpha0=0.5))

    assert (silent.rows, held.rows, wide.rows) == (2, 2, 22)
