"""What-if calls: the predicted run time of one job for several values of one requested resource.

Each value is marked as inside or outside the range seen in training. No HTTP here. Called by the service.
"""

import math
from datetime import UTC, datetime
from typing import Final

import numpy as np

from modelserve.callers import Caller, check_jobs
from modelserve.calls.logged_context import Answered
from modelserve.calls.recommendations import POLICY, LivePredictor
from modelserve.calls.request_context import RequestContext
from modelserve.contract.requests import WhatIfBody, job_of
from modelserve.contract.writing import known, moment, written
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.shrink import round_up_gpus
from scheduler_core.types import RESOURCES, FloatArray, Job

__all__ = ["what_if"]

SMALLEST_SHARE: Final = 0.1
"""First value of the curve divided by its last, if request and training range are a single value."""


def what_if(
    context: RequestContext, body: WhatIfBody, caller: Caller, *, default_trace: str | None, now: float
) -> Answered:
    """Predict the run time of one job for several values of one resource, or return why it cannot be predicted.

    Nothing is logged.

    Raises
    ------
    BadRequest
        Neither the job nor the call names a trace, and there is no default.
    Forbidden
        The caller may not access the job's trace or cluster.
    """
    trace = body.trace or default_trace
    check_jobs([body.job], trace, caller, field="job")
    job = job_of(body.job, trace=trace or "", submitted=datetime.fromtimestamp(now, UTC))
    choice = context.choice("runtime", (job.trace, job.workload, job.task_type))
    response: dict[str, object] = {
        "job_id": job.job_id,
        "resource": body.resource,
        "requested": known(job.request.row()[RESOURCES.index(body.resource)]),
        "support": None,
        "silent": True,
        "important": False,
        "points": [],
        "model": None if choice.model is None else choice.model.reference,
        "history": None if choice.model is None else moment(choice.model.bundle.card.until),
        "reason": None,
        "note": None,
    }
    if choice.model is None and choice.failure is None:
        response |= {"reason": "no_model", "note": f"no run-time model for task type {job.task_type[:80]!r}"}
    else:
        try:
            response |= _curve(LivePredictor.seeing(context, [job]), job, body)
        except PredictorUnavailable as error:
            response |= {"reason": "predictor_unavailable", "note": str(error)}
    return Answered(body=written(response), models=context.cited())


def _curve(predictor: LivePredictor, job: Job, body: WhatIfBody) -> dict[str, object]:
    [knowledge] = predictor.knowledge([job])
    at = RESOURCES.index(body.resource)
    asked, ends = job.request.row()[at], knowledge.support.get(body.resource)
    values = values_along(asked, ends, body.points, shared=body.resource == "gpus")
    requests = np.tile(np.array(job.request.row()), (len(values), 1))
    requests[:, at] = values
    times = predictor.run_times([job], np.zeros(len(values), dtype=np.int64), requests)
    return {
        "support": ends,
        "silent": ends is None or ends[0] >= ends[1],
        "important": body.resource in knowledge.important,
        "points": [
            {
                "value": value,
                "run_time_s": {"p50": p50, "p90": p90},
                "supported": ends is not None and ends[0] <= value <= ends[1],
                "requested": value == asked,
            }
            for value, p50, p90 in zip(values.tolist(), times.p50.tolist(), times.p90.tolist(), strict=True)
        ],
    }


def values_along(requested: float, ends: tuple[float, float] | None, points: int, *, shared: bool) -> FloatArray:
    """Return about `points` ascending values that cover the training range (`ends`: lowest, highest) and the request.

    GPU counts (`shared`) are rounded up to allowed GPU shares.

    Examples
    --------
    >>> values_along(6.0, (2.0, 8.0), 4, shared=False).tolist()
    [2.0, 4.0, 6.0, 8.0]
    >>> values_along(0.5, (0.25, 1.0), 20, shared=True).tolist()[:4]
    [0.25, 0.3, 0.35, 0.4]
    """
    marks = [value for value in (requested, *(ends or ())) if math.isfinite(value)]
    if not marks:
        return np.array([])
    low, high = min(marks), max(marks)
    even = np.linspace(low if low < high else SMALLEST_SHARE * high, high, points)
    if shared:
        even = round_up_gpus(even, POLICY.gpu_grid)
    elif math.isfinite(requested):
        # Replace the nearest value by the request.
        even[np.argmin(np.abs(even - requested))] = requested
    asked = [requested] if math.isfinite(requested) else []
    return np.unique(np.append(even, asked))
