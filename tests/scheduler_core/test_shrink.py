"""Algorithm 1: the paper's without the guard, ours with it, and what happens when a predictor fails."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.shrink import Recommendation, ShrinkPolicy, advised, shrink
from scheduler_core.types import RESOURCES, FloatArray, IntArray, Job, Knowledge, Reason, Request, RunTimes
from tests.scheduler_core.cases import NAN, REQUESTS, WIDE, ToyPredictor, job, request

PAPER = ShrinkPolicy(guard="none")
HALF = ShrinkPolicy(alpha0=0.5, sure_runs=math.inf)
"""By no more than half at once, and importance always counts: figures that are easily told by hand."""


def one(predictor: Any, wants: Request, policy: ShrinkPolicy = HALF, **fields: Any) -> Recommendation:
    return shrink([job("a", wants, **fields)], predictor, policy)[0]


def slows_below(cores: float) -> ToyPredictor:
    """Return a predictor whose jobs take longer, in proportion, with fewer cores than `cores`."""
    return ToyPredictor(
        run_time=lambda r: 100.0 * np.maximum(1.0, cores / r[:, 0]), peak=(0.1, 0.1, 0.01, 0.1), known=WIDE
    )


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


@pytest.mark.parametrize("runs", [0, 2])
def test_too_few_measured_runs_leave_the_request(runs: int) -> None:
    answer = one(ToyPredictor(runs=runs, known=WIDE), request())

    assert answer.target == answer.request
    assert set(answer.reasons.values()) == {Reason.COLD_START}
    assert not answer.model_decided
    assert answer.runs == runs


def test_an_unknown_floor_leaves_its_resource_only() -> None:
    answer = one(ToyPredictor(peak=(NAN, 1.0, 0.1, 1.0), known=WIDE), request(4.0, 8.0, 1.0))

    assert answer.target == request(4.0, 4.0, 0.5)
    assert answer.reasons["cpu_cores"] == Reason.NOT_MEASURED


@pytest.mark.parametrize(
    ("card", "gpus"),
    [
        ("Tesla-T4", 0.6),  # 8 GiB x 1.15 / 16 GiB, on the grid of 0.05
        ("NVIDIA-A100-SXM4-80GB", 0.3),  # the GPU itself, not its memory
        ("A100", 0.3),
        (None, 0.3),
    ],
)
def test_a_peak_above_the_request_is_told_with_the_floor_to_raise_it_to(card: str | None, gpus: float) -> None:
    predictor = ToyPredictor(peak=(4.5, 7.5, 0.3, 8.0), known=Knowledge(important=frozenset(RESOURCES)))
    policy = ShrinkPolicy(device_mem_gib=GPU_MEM_GIB_OF_TYPE)
    [answer] = shrink([job("a", request(4.0, 8.0, 0.25), gpu_type=card)], predictor, policy)

    assert answer.target == answer.request, "nothing is ever given more than was requested"
    assert answer.reasons == {
        "cpu_cores": Reason.TOO_LITTLE, "mem_gib": Reason.IMPORTANT, "gpus": Reason.TOO_LITTLE,
    }  # fmt: skip
    assert answer.raise_to.cpu_cores == 4.5
    assert math.isnan(answer.raise_to.mem_gib), "only the margin of the floor is above the request"
    assert answer.raise_to.gpus == gpus


@pytest.mark.parametrize("quiet", [{"opted_out": True}, {"predictor": ToyPredictor(peak=(9.0, 9.0, 1.0, 9.0), runs=2)}])
def test_no_raise_is_told_for_jobs_that_opted_out_or_were_measured_too_rarely(quiet: dict[str, Any]) -> None:
    predictor = quiet.pop("predictor", ToyPredictor(peak=(9.0, 9.0, 1.0, 9.0)))
    answer = one(predictor, request(4.0, 8.0, 0.25), **quiet)

    assert Reason.TOO_LITTLE not in answer.reasons.values()
    assert np.isnan(answer.raise_to.row()).all()


def test_memory_beyond_the_assumed_card_keeps_the_request_of_a_job_on_an_unknown_card() -> None:
    answer = one(ToyPredictor(peak=(1.0, 1.0, 0.1, 29.0), known=WIDE), request(4.0, 8.0, 1.0), gpu_type="A100")

    assert answer.target.gpus == 1.0
    assert answer.reasons["gpus"] != Reason.TOO_LITTLE
    assert math.isnan(answer.raise_to.gpus)


@pytest.mark.parametrize("guard", ["none", "usage"])
def test_a_job_the_model_knows_nothing_about_is_a_cold_start(guard: Any) -> None:
    predictor = ToyPredictor(run_time=lambda r: np.full(len(r), NAN), known=WIDE)

    answer = one(predictor, request(), ShrinkPolicy(guard=guard))

    assert answer.target == answer.request
    assert set(answer.reasons.values()) == {Reason.COLD_START}


@pytest.mark.parametrize("guard", ["none", "usage"])
@pytest.mark.parametrize("run_s", [0.0, -5.0, math.inf])
def test_run_times_that_cannot_be_meant_count_as_unavailable(guard: Any, run_s: float) -> None:
    answer = one(
        ToyPredictor(run_time=lambda r: np.full(len(r), run_s), known=WIDE), request(), ShrinkPolicy(guard=guard)
    )

    assert answer.target == answer.request
    assert set(answer.reasons.values()) == {Reason.PREDICTOR_UNAVAILABLE}


class Raising(ToyPredictor):
    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        raise PredictorUnavailable("the service is away")


class Buggy(ToyPredictor):
    def peak_use(self, jobs: Sequence[Job]) -> Any:
        return {}["nothing"]


class ShortAnswer(ToyPredictor):
    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        return RunTimes(p50=np.ones(len(rows) - 1), p90=np.ones(len(rows)))


class FewPeaks(ToyPredictor):
    def peak_use(self, jobs: Sequence[Job]) -> Any:
        return replace(super().peak_use(jobs), mem_gib=np.ones(len(jobs) + 1))


class NoKnowledge(ToyPredictor):
    def knowledge(self, jobs: Sequence[Job]) -> Any:
        return []


@pytest.mark.parametrize("failing", [Raising, Buggy, ShortAnswer, FewPeaks, NoKnowledge])
def test_a_failing_predictor_leaves_every_request_and_says_so(failing: type[ToyPredictor]) -> None:
    answers = shrink([job("a"), job("b", request(1.0, NAN, 0.0))], failing())

    assert [answer.job_id for answer in answers] == ["a", "b"]
    assert all(answer.target is answer.request for answer in answers)
    assert all(set(answer.reasons.values()) == {Reason.PREDICTOR_UNAVAILABLE} for answer in answers)
    assert set(answers[1].reasons) == {"cpu_cores", "gpus"}
    assert all(answer.note for answer in answers)


def test_an_opted_out_job_keeps_its_request_beside_others() -> None:
    answers = shrink([job("a", opted_out=True), job("b")], ToyPredictor(known=WIDE))

    assert answers[0].target == answers[0].request
    assert set(answers[0].reasons.values()) == {Reason.OPTED_OUT}
    assert answers[1].target != answers[1].request


def test_a_resource_the_trace_lacks_is_left_out() -> None:
    answer = one(ToyPredictor(known=WIDE), request(NAN, NAN, 1.0))

    assert set(answer.reasons) == {"gpus"}
    assert answer.target.gpus == 0.5
    assert math.isnan(answer.target.cpu_cores)
    assert math.isnan(answer.lower_bound.mem_gib)


AMOUNTS = st.one_of(st.just(NAN), st.floats(0.0, 64.0))
MINIMUMS = st.builds(Request, cpu_cores=AMOUNTS, mem_gib=AMOUNTS, gpus=AMOUNTS)


@settings(deadline=None)
@given(
    wants=st.lists(st.tuples(REQUESTS, st.none() | MINIMUMS), min_size=1, max_size=5),
    peak=st.tuples(st.floats(0.0, 64.0), st.floats(0.0, 256.0), st.floats(0.0, 8.0), st.floats(0.0, 128.0)),
    slope=st.floats(-1.0, 1.0),
    low=st.floats(0.0, 20.0),
    width=st.floats(0.0, 60.0),
    guard=st.sampled_from(["none", "usage"]),
)
def test_minimum_and_floor_are_at_most_the_target_and_that_the_request(
    wants: list[tuple[Request, Request | None]],
    peak: tuple[float, float, float, float],
    slope: float,
    low: float,
    width: float,
    guard: Any,
) -> None:
    known = Knowledge(support=dict.fromkeys(RESOURCES, (low, low + width)))
    predictor = ToyPredictor(run_time=lambda r: 100.0 * (r.sum(axis=1) + 1.0) ** slope, peak=peak, known=known)
    policy = ShrinkPolicy(guard=guard)
    jobs = [job(str(i), each, minimum=least) for i, (each, least) in enumerate(wants)]

    for answer, (_, least) in zip(shrink(jobs, predictor, policy), wants, strict=True):
        minimums = np.nan_to_num(request(NAN, NAN, NAN).row() if least is None else least.row())
        rows = (answer.lower_bound.row(), answer.target.row(), answer.request.row())
        for at, (low_bound, target, asked) in enumerate(zip(*rows, strict=True)):
            assert target <= asked
            assert target >= max(policy.first_alpha * asked - 1e-9, min(asked, minimums[at]))
            if guard == "usage":
                assert low_bound <= target + 1e-9
                assert target + 1e-9 >= min(asked, peak[at])
        if guard == "usage":
            assert answer.target.gpus + 1e-9 >= min(answer.request.gpus, peak[3] / policy.assumed_device_mem_gib)
            assert answer.target.mem_gib + 1e-9 >= min(answer.request.mem_gib, peak[1] * (1 + policy.mem_margin))


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


def answering(change: Callable[[Recommendation], Any]) -> Callable[[Sequence[Job]], Any]:
    return lambda jobs: [change(answer) for answer in shrink(jobs, ToyPredictor(known=WIDE))]


def raising(jobs: Sequence[Job]) -> list[Recommendation]:
    raise TimeoutError("slow drip")


def target(answer: Recommendation, **fields: float) -> Recommendation:
    return replace(answer, target=replace(answer.target, **fields))


JOBS = [job(str(at), request(1.0, 1.0, 2.0)) for at in range(2)]


@pytest.mark.parametrize(
    ("scale", "note"),
    [
        (raising, "TimeoutError: slow drip"),
        (lambda jobs: None, "TypeError"),
        (lambda jobs: [], "0 recommendations for 2 jobs"),
        (answering(lambda answer: None), "found a NoneType"),
        (lambda jobs: answering(lambda answer: answer)(jobs[::-1]), "the recommendation of"),
        (answering(lambda answer: target(answer, gpus=float("nan"))), "found the target"),
        (answering(lambda answer: target(answer, gpus=-1.0)), "found the target"),
        (answering(lambda answer: target(answer, gpus=9.0)), "found the target"),
        (answering(lambda answer: replace(answer, run_time_p50_s=-1.0)), "a run time of -1.0 s"),
        (answering(lambda answer: replace(answer, run_time_p50_s=float("inf"))), "a run time of inf s"),
    ],
)
def test_whatever_a_scale_does_the_requests_stand(scale: Any, note: str) -> None:
    answers = advised(JOBS, scale)
    assert [answer.target for answer in answers] == [each.request for each in JOBS]
    for answer in answers:
        assert set(answer.reasons.values()) == {Reason.PREDICTOR_UNAVAILABLE}
        assert note in answer.note


def test_one_answer_that_is_nonsense_costs_only_its_own_job() -> None:
    def half(jobs: Sequence[Job]) -> list[Recommendation]:
        first, second = shrink(jobs, ToyPredictor(known=WIDE), ShrinkPolicy(alpha0=0.5))
        return [target(first, gpus=-1.0), second]

    assert [answer.target.gpus for answer in advised(JOBS, half)] == [2.0, 1.0]
