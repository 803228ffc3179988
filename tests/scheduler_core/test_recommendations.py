"""Recommendations of a scale that may fail: whatever it does, each job keeps at least its request."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from scheduler_core.recommendations import advised
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import Job, Reason, Recommendation
from tests.scheduler_core.cases import WIDE, ToyPredictor, job, request


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
