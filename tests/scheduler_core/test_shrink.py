"""Algorithm 1: the paper's without the guard, ours with it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import RESOURCES, Knowledge, Reason, Request
from tests.scheduler_core.cases import HALF, REQUESTS, WIDE, ToyPredictor, job, one, request, slows_below

PAPER = ShrinkPolicy(guard="none")


def reference_algorithm(
    wants: Request, run_time: Any, important: frozenset[str], theta: float, alphas: Sequence[float], grid: float
) -> tuple[float, ...]:
    """Algorithm 1 as a loop, W always a multiple of the original request; GPUs on the grid, rounded up."""
    w = wants.row()
    t = run_time(w)
    for alpha in alphas:
        W = [value if name in important else alpha * value for name, value in zip(RESOURCES, w, strict=True)]
        if "gpus" not in important and w[2] > 0:
            share = max(math.ceil(W[2] / grid - 1e-9), 1) * grid
            W[2] = min(w[2], round(share, 9) if share < 1 - 1e-12 else math.ceil(W[2] - 1e-9))
        if abs(run_time(W) - t) / t < theta:
            return tuple(W)
    return w


@settings(deadline=None)
@given(
    wants=st.lists(REQUESTS, min_size=1, max_size=4),
    powers=st.tuples(st.floats(-0.6, 0.6), st.floats(-0.6, 0.6), st.floats(-0.6, 0.6)),
    important=st.frozensets(st.sampled_from(RESOURCES)),
    theta=st.floats(0.01, 0.5),
)
def test_without_guard_it_is_the_printed_algorithm(
    wants: list[Request], powers: tuple[float, float, float], important: frozenset[str], theta: float
) -> None:
    def run_time(r: Any) -> float:
        return float(100.0 * np.prod([(value + 0.5) ** power for value, power in zip(r, powers, strict=True)]))

    predictor = ToyPredictor(
        run_time=lambda rows: np.array([run_time(row) for row in rows]), known=Knowledge(important=important)
    )
    policy = ShrinkPolicy(guard="none", theta=theta)

    answers = shrink([job(str(i), each) for i, each in enumerate(wants)], predictor, policy)

    for each, answer in zip(wants, answers, strict=True):
        expected = reference_algorithm(each, run_time, important, theta, policy.alphas().tolist(), policy.gpu_grid)
        assert answer.target.row() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_no_candidate_returns_the_original_request() -> None:
    answer = one(slows_below(100.0), request(10.0, 8.0, 1.0), PAPER)

    assert answer.target == answer.request == request(10.0, 8.0, 1.0)
    assert set(answer.reasons.values()) == {Reason.NO_CANDIDATE}
    assert answer.alpha == 1.0
    assert answer.model_decided


def test_all_candidates_of_all_jobs_go_in_one_matrix() -> None:
    predictor = ToyPredictor(known=WIDE)

    shrink([job(str(i)) for i in range(7)], predictor, HALF)

    assert predictor.calls == 1
    assert predictor.rows == 7 * (1 + 10)


def test_no_jobs_ask_nothing() -> None:
    predictor = ToyPredictor()

    assert shrink([], predictor) == []
    assert predictor.calls == 0


@pytest.mark.parametrize(
    ("peak", "wants", "targets", "reasons"),
    [
        # alpha sets all of them: the floors (with 15 % above memory peaks) lie lower
        ((1.0, 1.0, 0.1, 1.0), (6.0, 16.0, 0.5), (3.0, 8.0, 0.25), ("shrunk", "shrunk", "shrunk")),
        # the floor sets CPU below the request, and memory at it
        ((4.0, 16.0, 0.1, 1.0), (6.0, 16.0, 0.5), (4.0, 16.0, 0.25), ("floor", "floor", "shrunk")),
        # peak GPU memory of 8 of 16 GiB, and 15 %: 0.575, on the grid 0.6
        ((1.0, 1.0, 0.1, 8.0), (6.0, 16.0, 1.0), (3.0, 8.0, 0.6), ("shrunk", "shrunk", "floor")),
        # the floor saves less than the minimum change: not worth it
        ((5.8, 1.0, 0.1, 1.0), (6.0, 16.0, 1.0), (6.0, 8.0, 0.5), ("floor", "shrunk", "shrunk")),
        # the grid gives back all that alpha took
        ((1.0, 1.0, 0.01, 0.1), (6.0, 16.0, 0.05), (3.0, 8.0, 0.05), ("shrunk", "shrunk", "below_threshold")),
        # nothing was asked for
        ((1.0, 1.0, 0.0, 0.0), (6.0, 16.0, 0.0), (3.0, 8.0, 0.0), ("shrunk", "shrunk", "below_threshold")),
        # several GPUs come whole
        ((1.0, 1.0, 0.5, 1.0), (6.0, 16.0, 5.0), (3.0, 8.0, 3.0), ("shrunk", "shrunk", "shrunk")),
    ],
)
@pytest.mark.parametrize("known", [WIDE, Knowledge()], ids=["model speaks", "model silent"])
def test_guarded_targets_and_their_reasons(
    known: Knowledge,
    peak: tuple[float, ...],
    wants: tuple[float, ...],
    targets: tuple[float, ...],
    reasons: tuple[str, ...],
) -> None:
    answer = one(ToyPredictor(peak=peak, known=known), request(*wants))  # type: ignore[arg-type]

    assert answer.target.row() == pytest.approx(targets)
    assert answer.reasons == dict(zip(RESOURCES, map(Reason, reasons), strict=True))
    assert not answer.model_decided


@pytest.mark.parametrize(
    ("usual", "targets", "kept"),
    [
        ((6.0, 16.0, 0.5), (3.0, 8.0, 0.25), set()),
        ((4.0, 16.0, 0.4), (3.0, 8.0, 0.25), set()),  # once and a half as much is not far above
        ((3.9, 4.0, 0.5), (6.0, 16.0, 0.25), {"cpu_cores", "mem_gib"}),
        ((math.nan, 4.0, math.nan), (3.0, 16.0, 0.25), {"mem_gib"}),
        ((1.0, 1.0, 0.1), (6.0, 16.0, 0.5), set(RESOURCES)),
    ],
)
def test_a_request_far_above_the_usual_is_kept(
    usual: tuple[float, float, float], targets: tuple[float, ...], kept: set[str]
) -> None:
    answer = one(ToyPredictor(usual=usual, known=WIDE), request(6.0, 16.0, 0.5))

    assert answer.target.row() == pytest.approx(targets)
    assert {name for name, reason in answer.reasons.items() if reason is Reason.ABOVE_USUAL} == kept


@pytest.mark.parametrize(("runs", "cores"), [(49, 6.0), (50, 3.0)])
def test_with_runs_enough_no_resource_counts_as_important(runs: int, cores: float) -> None:
    known = replace(WIDE, important=frozenset({"cpu_cores"}))
    predictor = ToyPredictor(peak=(0.1, 0.1, 0.01, 0.1), known=known, runs=runs)

    answer = one(predictor, request(cpu_cores=6.0), replace(HALF, sure_runs=50))

    assert answer.target.cpu_cores == cores
    assert (answer.reasons["cpu_cores"] is Reason.IMPORTANT) == (runs < 50)


def test_important_resources_keep_their_request() -> None:
    known = replace(WIDE, important=frozenset({"cpu_cores"}))

    answer = one(ToyPredictor(known=known), request(4.0, 8.0, 1.0))

    assert answer.target == request(4.0, 4.0, 0.5)
    assert answer.reasons["cpu_cores"] == Reason.IMPORTANT
    assert answer.model_decided


@pytest.mark.parametrize(
    "support",
    [(6.0, 6.0), (5.9, 32.0), (0.5, 2.0), None],
    ids=["constant column", "below what was seen", "above what was seen", "never seen"],
)
def test_outside_support_the_model_neither_permits_nor_forbids(support: tuple[float, float] | None) -> None:
    # The model would forbid every candidate: it slows in proportion. Only the floor of 4 cores holds.
    predictor = slows_below(1000.0)
    predictor.peak = (4.0, 0.1, 0.01, 0.1)
    predictor.known = Knowledge(support={} if support is None else {"cpu_cores": support})

    answer = one(predictor, request(6.0, 8.0, 0.5))

    assert answer.target.cpu_cores == 4.0
    assert answer.reasons["cpu_cores"] == Reason.FLOOR
    assert answer.run_time_change == 0.0
    assert not answer.model_decided


def test_a_model_that_speaks_of_one_resource_holds_back_only_that_one() -> None:
    predictor = slows_below(1000.0)
    predictor.known = Knowledge(support={"cpu_cores": (0.0, 64.0)})

    answer = one(predictor, request(6.0, 8.0, 0.5))

    assert answer.target == request(6.0, 4.0, 0.25)
    assert answer.reasons["cpu_cores"] == Reason.NO_CANDIDATE
    assert answer.model_decided


def test_a_resource_is_held_where_the_model_begins_to_speak() -> None:
    # Candidates 3.0 and 3.3 cores lie outside the support; the model forbids 3.6 (first seen) up to 4.8.
    predictor = ToyPredictor(
        run_time=lambda r: np.where((r[:, 0] < 4.9) | (r[:, 1] < 4.5), 200.0, 100.0),
        peak=(0.1, 0.1, 0.01, 0.1),
        known=Knowledge(support={"cpu_cores": (3.5, 8.0), "mem_gib": (0.0, 100.0)}),
    )

    answer = one(predictor, request(6.0, 8.0, 0.0))

    # Memory, spoken about throughout, forbids 0.5 and 0.55; from 0.6 the model speaks of cores too, and passes at 0.85.
    assert answer.alpha == pytest.approx(0.85)
    assert answer.target.row() == pytest.approx((5.1, 6.8, 0.0))


def test_what_the_model_forbade_below_is_not_taken_where_its_support_ends() -> None:
    # It forbids 5, 5.5 and 6 cores, has seen no more, and so is silent from 6.5 on: nothing below that is permitted.
    predictor = slows_below(1000.0)
    predictor.known = Knowledge(support={"cpu_cores": (2.0, 6.0)})

    answer = one(predictor, request(10.0, 8.0, 0.0))

    assert answer.target.row() == pytest.approx((6.5, 4.0, 0.0))
    assert answer.reasons["cpu_cores"] == Reason.SHRUNK


def test_run_time_is_that_of_the_accepted_candidate() -> None:
    answer = one(slows_below(5.0), request(10.0, 8.0, 0.0), replace(HALF, theta=0.12))

    assert answer.alpha == pytest.approx(0.5)
    assert answer.run_time_change == pytest.approx(0.0)
    tighter = one(slows_below(5.2), request(10.0, 8.0, 0.0), replace(HALF, theta=0.05))
    assert tighter.run_time_change == pytest.approx(5.2 / 5.0 - 1.0)
    assert tighter.run_time_p50_s == pytest.approx(104.0)
    assert tighter.run_time_p90_s == pytest.approx(208.0)


def test_a_candidate_like_the_one_before_it_is_not_asked_again() -> None:
    silent, wide = ToyPredictor(known=Knowledge()), ToyPredictor(known=WIDE)
    held = replace(wide, peak=(100.0, 100.0, 8.0, 0.1))

    for predictor in (silent, held, wide):
        shrink([job("a"), job("b")], predictor, ShrinkPolicy(alpha0=0.5))

    assert (silent.rows, held.rows, wide.rows) == (2, 2, 22)


@settings(deadline=None)
@given(wants=st.lists(REQUESTS, min_size=2, max_size=6), order=st.randoms(use_true_random=False))
def test_permuting_jobs_permutes_answers(wants: list[Request], order: Any) -> None:
    jobs = [job(str(i), each) for i, each in enumerate(wants)]
    shuffled = list(jobs)
    order.shuffle(shuffled)

    straight = {answer.job_id: answer for answer in shrink(jobs, slows_below(8.0))}
    permuted = {answer.job_id: answer for answer in shrink(shuffled, slows_below(8.0))}

    for job_id, answer in straight.items():
        assert permuted[job_id].target == answer.target
        assert permuted[job_id].reasons == answer.reasons
