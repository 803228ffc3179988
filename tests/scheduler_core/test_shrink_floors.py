"""Floors, minimums and raises of shrunk requests, and what happens when a predictor fails."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import RESOURCES, FloatArray, IntArray, Job, Knowledge, Reason, Request, RunTimes
from tests.scheduler_core.cases import NAN, REQUESTS, WIDE, ToyPredictor, job, one, request


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
