"""Schedules: recommend a request for each waiting job, then place all jobs with the requests that they are given.

The result is that of a recommendation call and a placement call, but from one snapshot of the models.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from modelserve.bundle.predictor import ModelPredictor
from modelserve.calls.context import Answered, RequestContext, Values, written
from modelserve.calls.placements import counts_of, place_jobs, queued, waiting
from modelserve.calls.recommendations import advise, answer_of, decide, jobs_of, largest, policy_of
from modelserve.contract.placements import ScheduleBody
from scheduler_core.types import Request

__all__ = ["schedule", "scheduled"]


def scheduled(context: RequestContext, body: ScheduleBody) -> Answered:
    """Return the response to a call for a schedule."""
    body = _of_cluster(body)
    answers, told = advise(context, body)
    rows = _placed(body, answers)
    response = written({"answer_id": context.answer_id, "schedule": rows})
    return replace(told, body=response, counts={**told.counts, **counts_of(rows)})


def schedule(body: ScheduleBody, predictor: ModelPredictor, *, trace: str, now: datetime | None = None) -> list[Values]:
    """Shrink and place the jobs of a cluster without the service; every target is applied.

    `trace` and `now` are as in `jobs_of`. The rows have the keys of `contract.placements.Scheduled` that
    `recommendations.recommend` knows, and those of the placement.
    """
    body = _of_cluster(body)
    jobs, sources = jobs_of(body.jobs, predictor, trace, now)
    least = [largest((body.floors, row.floors)) for row in body.jobs]
    jobs = [replace(job, minimum=each) for job, each in zip(jobs, least, strict=True)]
    found = decide(jobs, sources, predictor, [policy_of(body, None)] * len(jobs))
    return _placed(body, [answer_of(each, cited) for each, cited in zip(found, sources, strict=True)])


def _of_cluster(body: ScheduleBody) -> ScheduleBody:
    """Return the call with its cluster set for each job."""
    rows = waiting(body)
    if body.cluster is None:
        return body
    return body.model_copy(update={"jobs": tuple(row.model_copy(update={"cluster": body.cluster}) for row in rows)})


def _placed(body: ScheduleBody, answers: Sequence[Values]) -> list[Values]:
    """Return each recommendation with the request that its job is given, and where the job starts or why it waits."""
    given = [answer["request"] if answer.get("mode") == "observe" else answer["target"] for answer in answers]
    times = [
        answer["run_time_s"]["p50"] if row.run_time_s is None else row.run_time_s
        for row, answer in zip(body.jobs, answers, strict=True)
    ]
    jobs = [
        queued(row, request=_request(amounts), run_time_s=run_time_s)
        for row, amounts, run_time_s in zip(body.jobs, given, times, strict=True)
    ]
    placed = place_jobs(body, jobs)
    rows = zip(answers, given, placed, strict=True)
    return [answer | {"given": amounts} | where for answer, amounts, where in rows]


def _request(amounts: Values) -> Request:
    return Request(**{name: math.nan if amount is None else amount for name, amount in amounts.items()})
