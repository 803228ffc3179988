"""Explanation and what-if calls: what each feature of a job adds to its predicted run time, and what a request would.

Contributions are exact tree SHAP values from XGBoost.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from features.references import relative_columns
from modelserve.bundle.boosters import contributions
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.run_times import QUANTILE_NAMES, calibrated_run_times
from modelserve.calls.context import Answered, RequestContext, asked_of
from modelserve.calls.recommendations import POLICY, LivePredictor
from modelserve.contract.jobs import MissingReason
from modelserve.contract.requests import ExplainBody, WhatIfBody, job_of
from modelserve.contract.writing import known, moment, written
from modelserve.loading.feature_records import Scored
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.shrink import round_up_gpus
from scheduler_core.types import RESOURCES, FloatArray, Job

if TYPE_CHECKING:
    from modelserve.loading.served import ServedModel

__all__ = ["Shares", "explain_job", "shares_of", "value_of", "what_if"]

LEVELS: Final = {name: level for level, name in QUANTILE_NAMES.items()}
LEAST_LOG: Final = 1e-9
"""Absolute sum of contributions (log units) below which it counts as zero.

Seconds per log unit, otherwise a quotient with this sum, are then the derivative of the run time at the base value.
"""

SMALLEST_SHARE: Final = 0.1
"""First value of the curve divided by its last, if request and training range are a single value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """A predicted run time, and the contributions of k features to it, in log units (`phi`) and in seconds (k,)."""

    run_time_s: float
    base_s: float
    reference_s: float
    phi: FloatArray
    seconds: FloatArray


def explain_job(context: RequestContext, body: ExplainBody) -> Answered:
    """Explain the predicted run time of one job, or return why it cannot be predicted."""
    whose = (body.job.trace or context.trace or "", body.job.workload, body.job.task_type)
    choice, usage = context.choice("runtime", whose), context.choice("usage", whose).model
    roles: dict[str, object] = {} if usage is None else _measured_by_role(usage, body, context)
    if choice.model is None:
        reason: MissingReason = "predictor_unavailable" if choice.failure else "no_model"
        note = choice.failure or f"no run-time model for task type {body.job.task_type[:80]!r}"
        return _answered(body, None, roles, reason, note)
    asked = asked_of(body.job, choice.model.history, context)
    try:
        seen = context.rows(choice.model, [asked], np.zeros(1, dtype=np.int64), counted=False)
        raw = context.outputs(choice.model, seen)[RUNTIME_TARGET]
        shares = shares_of(choice.model, seen, body.quantile, raw)
    except PredictorUnavailable as error:
        return _answered(body, choice.model, roles, "predictor_unavailable", str(error))
    if shares is None:
        note = f"{choice.model.reference} answers no {body.quantile}"
        return _answered(body, choice.model, roles, "no_model", note)
    return _answered(body, choice.model, roles | _explained(choice.model, seen, shares, body.top), None, None)


def _measured_by_role(usage: "ServedModel", body: ExplainBody, context: RequestContext) -> dict[str, object]:
    found = usage.history.measured_by_role(asked_of(body.job, usage.history, context))
    return {"roles": [{"role": role, "measured_runs": runs} for role, runs in found.items()]}


def shares_of(model: "ServedModel", seen: Scored, quantile: Literal["p50", "p90"], raw: FloatArray) -> Shares | None:
    """Split the predicted run time of one row into contributions; None if the model has no such quantile.

    `raw` (1, outputs) is what the trees predict for the row, before calibration.

    Served quantiles are sorted, so the served p90 may come from the p50 trees, if their output is larger. The
    contributions are those of the trees from which the served value comes.
    """
    card = model.bundle.card
    served = sorted(level for level in card.quantiles if level in QUANTILE_NAMES)
    if LEVELS[quantile] not in served:
        return None
    times = calibrated_run_times(card, raw, seen.base_log_s)
    run_time_s = float((times.p50 if quantile == "p50" else times.p90)[0])
    reference = seen.reference_log_s[0]
    added = seen.base_log_s[0] + [card.offsets.get(QUANTILE_NAMES.get(level, ""), 0.0) for level in card.quantiles]
    columns = [i for i, level in enumerate(card.quantiles) if level in QUANTILE_NAMES]
    column = sorted(columns, key=lambda i: raw[0, i] + added[i])[served.index(LEVELS[quantile])]
    parts = contributions(model.bundle.boosters[RUNTIME_TARGET], seen.matrix)[column]
    phi, base_s = parts[:-1], math.exp(parts[-1] + added[column])
    total = float(phi.sum())
    per_log = (run_time_s - base_s) / total if abs(total) > LEAST_LOG else base_s
    return Shares(
        run_time_s=run_time_s,
        base_s=base_s,
        reference_s=math.exp(reference[column]),
        phi=phi,
        seconds=phi * per_log,
    )


def _explained(model: "ServedModel", seen: Scored, shares: Shares, top: int) -> dict[str, object]:
    order = np.argsort(-np.abs(shares.phi), kind="stable")[:top]
    named = float(shares.seconds[order].sum())
    return {
        "run_time_s": shares.run_time_s,
        "base_s": shares.base_s,
        "reference_s": shares.reference_s if model.bundle.card.relative else None,
        "contributions": [
            {
                "feature": model.bundle.contract.names[i],
                "value": value_of(model, seen, int(i)),
                "unit": model.bundle.contract.units[i],
                "factor": math.exp(float(shares.phi[i])),
                "seconds": float(shares.seconds[i]),
            }
            for i in order.tolist()
        ],
        "rest_s": shares.run_time_s - shares.base_s - named,
        "rest_factor": math.exp(float(np.delete(shares.phi, order).sum())),
    }


def value_of(model: "ServedModel", seen: Scored, column: int) -> float | str | None:
    """Return a feature's value for display: a category as text, a run time relative to the reference in seconds."""
    contract, value = model.bundle.contract, float(seen.matrix[0, column])
    name = contract.names[column]
    if math.isnan(value):
        return None
    if name in contract.categories:
        return contract.categories[name][int(value)]
    if model.bundle.card.relative:
        in_seconds, in_logs = relative_columns([name])
        against = value + float(seen.reference_log_s[0, 0])
        return math.exp(against) if in_seconds else against if in_logs else value
    return value


def _answered(
    body: ExplainBody,
    model: "ServedModel | None",
    explained: dict[str, object],
    reason: MissingReason | None,
    note: str | None,
) -> Answered:
    nothing: Sequence[str] = ("run_time_s", "base_s", "reference_s", "rest_s", "rest_factor")
    response = {
        "job_id": body.job.job_id,
        "quantile": body.quantile,
        **dict.fromkeys(nothing),
        "contributions": [],
        "roles": [],
        **explained,
        "model": None if model is None else model.reference,
        "history": None if model is None else moment(model.bundle.card.until),
        "reason": reason,
        "note": note,
    }
    return Answered(body=written(response), models=() if model is None else (model.reference,))


def what_if(context: RequestContext, body: WhatIfBody) -> Answered:
    """Predict the run time of one job for several values of one resource, or return why it cannot be predicted."""
    job = job_of(body.job, trace=context.trace or "", submitted=datetime.fromtimestamp(context.now, UTC))
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
