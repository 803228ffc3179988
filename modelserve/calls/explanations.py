"""Explanation calls: how many seconds each feature of one job adds to its predicted run time.

Contributions are exact tree SHAP values from XGBoost. No HTTP and no charts here. Called by the service.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from features.references import relative_columns
from modelserve.bundle.boosters import contributions
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.run_times import QUANTILE_NAMES, calibrated_run_times
from modelserve.callers import Caller, check_jobs
from modelserve.calls.logged_context import Answered
from modelserve.calls.request_context import RequestContext, asked_of_row
from modelserve.contract.jobs import MissingReason
from modelserve.contract.requests import ExplainBody
from modelserve.contract.writing import moment, written
from modelserve.loading.feature_records import Scored
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import FloatArray

if TYPE_CHECKING:
    from modelserve.loading.served import ServedModel

__all__ = ["Shares", "explain_job", "shares_of", "value_of"]

LEVELS: Final = {name: level for level, name in QUANTILE_NAMES.items()}
LEAST_LOG: Final = 1e-9
"""Absolute sum of contributions (log units) below which it counts as zero.

Seconds per log unit, otherwise a quotient with this sum, are then the derivative of the run time at the base value.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """A predicted run time, and the contributions of k features to it, in log units (`phi`) and in seconds (k,)."""

    run_time_s: float
    base_s: float
    reference_s: float
    phi: FloatArray
    seconds: FloatArray


def explain_job(
    context: RequestContext, body: ExplainBody, caller: Caller, *, default_trace: str | None, now: float
) -> Answered:
    """Explain the predicted run time of one job, or return why it cannot be predicted. Nothing is logged.

    Raises
    ------
    BadRequest
        Neither the job nor the call names a trace, and there is no default.
    Forbidden
        The caller may not access the job's trace or cluster.
    """
    trace = body.trace or default_trace
    check_jobs([body.job], trace, caller, field="job")
    whose = (body.job.trace or trace or "", body.job.workload, body.job.task_type)
    choice, usage = context.choice("runtime", whose), context.choice("usage", whose).model
    roles: dict[str, object] = {} if usage is None else _measured_by_role(usage, body, trace or "", now)
    if choice.model is None:
        reason: MissingReason = "predictor_unavailable" if choice.failure else "no_model"
        note = choice.failure or f"no run-time model for task type {body.job.task_type[:80]!r}"
        return _answered(body, None, roles, reason, note)
    asked = asked_of_row(body.job, choice.model.history, trace=trace or "", now=now)
    try:
        seen = context.rows(choice.model, [asked], np.zeros(1, dtype=np.int64), counted=False)
        shares = shares_of(choice.model, seen, body.quantile, context)
    except PredictorUnavailable as error:
        return _answered(body, choice.model, roles, "predictor_unavailable", str(error))
    if shares is None:
        note = f"{choice.model.reference} answers no {body.quantile}"
        return _answered(body, choice.model, roles, "no_model", note)
    return _answered(body, choice.model, roles | _explained(choice.model, seen, shares, body.top), None, None)


def _measured_by_role(usage: "ServedModel", body: ExplainBody, trace: str, now: float) -> dict[str, object]:
    found = usage.history.measured_by_role(asked_of_row(body.job, usage.history, trace=trace, now=now))
    return {"roles": [{"role": role, "measured_runs": runs} for role, runs in found.items()]}


def shares_of(
    model: "ServedModel", seen: Scored, quantile: Literal["p50", "p90"], context: RequestContext
) -> Shares | None:
    """Split the predicted run time of one row into contributions; None if the model has no such quantile.

    Served quantiles are sorted, so the served p90 may come from the p50 trees, if their output is larger. The
    contributions are those of the trees from which the served value comes.
    """
    card = model.bundle.card
    served = sorted(level for level in card.quantiles if level in QUANTILE_NAMES)
    if LEVELS[quantile] not in served:
        return None
    raw = context.outputs(model, seen)[RUNTIME_TARGET]
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
