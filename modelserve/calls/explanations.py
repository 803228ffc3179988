"""Explanation and what-if calls: the effect of each feature, and of other requests, on a job's predicted run time.

Contributions are exact tree SHAP values from XGBoost.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import numpy as np

from features.references import relative_columns
from modelserve.bundle.boosters import contributions
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.served import QUANTILE_NAMES, Scored, ServedModel, calibrated_run_times
from modelserve.calls.context import Answered, RequestContext, Values, moment, written
from modelserve.calls.recommendations import POLICY
from modelserve.contract.requests import ExplainBody, WhatIfBody, job_of
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.shrink import round_up_gpus
from scheduler_core.types import RESOURCES, FloatArray, Job

__all__ = ["Shares", "explain_job", "shares_of", "value_of", "what_if"]

LEVELS: Final = {name: level for level, name in QUANTILE_NAMES.items()}
LEAST_LOG: Final = 1e-9
"""Absolute sum of contributions (log units) below which it counts as zero.

Seconds per log unit, otherwise a quotient by this sum, are then the derivative of the run time at the base value.
"""

SMALLEST_SHARE: Final = 0.1
"""First value of the curve divided by its last value; used if the request and the training range are one value."""


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
    model, failure = context.choice("runtime", body.job)
    response: Values = {
        "job_id": body.job.job_id,
        "quantile": body.quantile,
        **dict.fromkeys(("run_time_s", "base_s", "reference_s", "rest_s", "rest_factor")),
        "contributions": [],
        "roles": [],
        **_model_fields(model, failure, body.job.task_type),
    }
    usage, _ = context.choice("usage", body.job)
    if usage is not None:
        measured = usage.history.measured_by_role(context.asked(body.job, usage.history))
        response["roles"] = [{"role": role, "measured_runs": runs} for role, runs in measured.items()]
    if model is not None:
        try:
            _, seen = context.rows(model, [body.job])
            raw = context.attempt(model, lambda: model.scored(seen))[RUNTIME_TARGET]
            shares = shares_of(model, seen, body.quantile, raw)
            if shares is None:
                response |= {"reason": "no_model", "note": f"{model.reference} answers no {body.quantile}"}
            else:
                response |= _explained(model, seen, shares, body.top)
        except PredictorUnavailable as error:
            response |= {"reason": "predictor_unavailable", "note": str(error)}
    return Answered(body=written(response), models=() if model is None else (model.reference,))


def _model_fields(model: ServedModel | None, failure: str | None, task_type: str) -> Values:
    """Return the fields of an answer about its run-time model, or why there is none."""
    missing = (None, None) if model is not None else ("no_model", f"no run-time model for task type {task_type[:80]!r}")
    reason, note = missing if failure is None else ("predictor_unavailable", failure)
    return {
        "model": None if model is None else model.reference,
        "history": None if model is None else moment(model.bundle.known_until),
        "reason": reason,
        "note": note,
    }


def shares_of(model: ServedModel, seen: Scored, quantile: Literal["p50", "p90"], raw: FloatArray) -> Shares | None:
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
    reference = seen.rows.reference_log_s[0]
    added = seen.base_log_s[0] + [card.offsets.get(QUANTILE_NAMES.get(level, ""), 0.0) for level in card.quantiles]
    columns = [i for i, level in enumerate(card.quantiles) if level in QUANTILE_NAMES]
    column = sorted(columns, key=lambda i: raw[0, i] + added[i])[served.index(LEVELS[quantile])]
    parts = contributions(model.bundle.boosters[RUNTIME_TARGET], seen.rows.matrix)[column]
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


def _explained(model: ServedModel, seen: Scored, shares: Shares, top: int) -> Values:
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


def value_of(model: ServedModel, seen: Scored, column: int) -> float | str | None:
    """Return a feature's value for display: a category as text, a run time relative to the reference in seconds."""
    contract, value = model.bundle.contract, float(seen.rows.matrix[0, column])
    name = contract.names[column]
    if math.isnan(value):
        return None
    if name in contract.categories:
        return contract.categories[name][int(value)]
    if model.bundle.card.relative:
        in_seconds, in_logs = relative_columns([name])
        against = value + float(seen.rows.reference_log_s[0, 0])
        return math.exp(against) if in_seconds else against if in_logs else value
    return value


def what_if(context: RequestContext, body: WhatIfBody) -> Answered:
    """Return the curve of the predicted run time along one resource, or why there is none."""
    job = job_of(body.job, trace=context.trace or "", submitted=datetime.fromtimestamp(context.now, UTC))
    model, failure = context.choice("runtime", job)
    response: Values = {
        "job_id": job.job_id,
        "resource": body.resource,
        "requested": job.request.row()[RESOURCES.index(body.resource)],
        "support": None,
        "silent": True,
        "important": False,
        "points": [],
        **_model_fields(model, failure, job.task_type),
    }
    if model is not None:
        try:
            response |= _curve(context, job, body)
        except PredictorUnavailable as error:
            response |= {"reason": "predictor_unavailable", "note": str(error)}
    return Answered(body=written(response), models=context.cited())


def _curve(context: RequestContext, job: Job, body: WhatIfBody) -> Values:
    [knowledge] = context.knowledge([job])
    at = RESOURCES.index(body.resource)
    asked, ends = job.request.row()[at], knowledge.support.get(body.resource)
    values = values_along(asked, ends, body.points, shared=body.resource == "gpus")
    requests = np.tile(np.array(job.request.row()), (len(values), 1))
    requests[:, at] = values
    times = context.run_times([job], np.zeros(len(values), dtype=np.int64), requests)
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
