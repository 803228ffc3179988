"""Prediction calls: the run time and peak use of each job, or the reason why one of them is missing.

Data frames are avoided, so that calls with one job are fast.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from features.online import JobAsked
from modelserve.bundle.card import RUNTIME_TARGET, USAGE_TARGETS
from modelserve.bundle.predictor import calibrated_use
from modelserve.bundle.run_times import basis_of, calibrated_run_times
from modelserve.calls.context import Answered, Kind, RequestContext, asked_of
from modelserve.contract.jobs import MissingReason
from modelserve.contract.requests import JobRow, PredictBody
from modelserve.contract.writing import moment, written
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import IntArray

if TYPE_CHECKING:
    from modelserve.loading.served import ServedModel

__all__ = ["predicted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The run time or the peak use of one job, with its model; if it is missing, the reason why."""

    value: dict[str, float] | None = None
    model: "ServedModel | None" = None
    runs: int = 0
    basis: str | None = None
    ended: int | None = None
    reason: MissingReason | None = None
    note: str | None = None


def predicted(context: RequestContext, body: PredictBody) -> Answered:
    """Return the response to a prediction call."""
    nothing: list[Part | None] = [None] * len(body.jobs)
    wanted = body.outputs
    peaks = _parts(context, "usage", body.jobs, _peak_use) if "peak_use" in wanted else nothing
    # Measured runs are counted with peak use, so they are not counted again with run time.
    score = partial(_run_times, counted="peak_use" not in wanted)
    times = _parts(context, "runtime", body.jobs, score) if "run_time" in wanted else nothing
    predictions = [_prediction(row, time, peak) for row, time, peak in zip(body.jobs, times, peaks, strict=True)]
    return Answered(
        body=written({"answer_id": context.answer_id, "predictions": predictions}),
        models=context.cited(),
        counts=_counts([part for part in (*times, *peaks) if part is not None]),
    )


Found = tuple[dict[str, float], int, tuple[str, int] | None]
"""The predicted values of a job, its number of measured runs, and the basis of a run time with its number of jobs."""
Values = list[Found]
Score = Callable[[RequestContext, "ServedModel", Sequence[JobAsked], IntArray], Values]


def _parts(context: RequestContext, kind: Kind, rows: Sequence[JobRow], score: Score) -> list[Part | None]:
    parts: list[Part | None] = [None] * len(rows)
    members: dict[str, list[int]] = defaultdict(list)
    models: dict[str, ServedModel] = {}
    for i, row in enumerate(rows):
        whose = (row.trace or context.trace or "", row.workload, row.task_type)
        choice = context.choice(kind, whose)
        if choice.model is not None:
            reference = choice.model.reference
            models[reference] = choice.model
            members[reference].append(i)
        elif choice.failure is not None:
            parts[i] = Part(reason="predictor_unavailable", note=choice.failure)
        else:
            parts[i] = Part(reason="no_model", note=f"no model {kind}.{whose[0]}.{row.task_type}"[:400])
    for reference, places in members.items():
        model = models[reference]
        asked = [asked_of(rows[i], model.history, context) for i in places]
        try:
            found = score(context, model, asked, np.array(places, dtype=np.int64))
        except PredictorUnavailable as error:
            for i in places:
                parts[i] = Part(model=model, reason="predictor_unavailable", note=str(error))
            continue
        for i, (value, count, basis) in zip(places, found, strict=True):
            kind_of_basis, ended = basis or (None, None)
            parts[i] = Part(value=value, model=model, runs=count, basis=kind_of_basis, ended=ended)
    return parts


def _run_times(
    context: RequestContext, model: "ServedModel", asked: Sequence[JobAsked], index: IntArray, *, counted: bool
) -> Values:
    seen = context.rows(model, asked, index, counted=counted)
    raw = context.outputs(model, seen)[RUNTIME_TARGET]
    times = calibrated_run_times(model.bundle.card, raw, seen.base_log_s)
    combination = model.learning.start
    members = None if combination is None else combination.members
    bases = [basis_of(members, counts) for counts in seen.evidence.tolist()]
    rows = zip(times.p50.tolist(), times.p90.tolist(), seen.runs.tolist(), bases, strict=True)
    return [({"p50": p50, "p90": p90}, runs, basis) for p50, p90, runs, basis in rows]


def _peak_use(context: RequestContext, model: "ServedModel", asked: Sequence[JobAsked], index: IntArray) -> Values:
    seen = context.rows(model, asked, index, counted=True)
    use = {target: np.full(len(asked), np.nan) for target in USAGE_TARGETS}
    for target, raw in context.outputs(model, seen).items():
        use[target] = calibrated_use(model.bundle.card, target, raw)
    floors = [context.memory_floor_gib(job) for job in asked]
    use["mem_gib"] = np.fmax(use["mem_gib"], floors)
    columns = [use[target].tolist() for target in USAGE_TARGETS]
    rows = zip(zip(*columns, strict=True), seen.runs.tolist(), strict=True)
    return [(dict(zip(USAGE_TARGETS, each, strict=True)), runs, None) for each, runs in rows]


def _prediction(row: JobRow, time: Part | None, peak: Part | None) -> dict[str, object]:
    asked = [part for part in (time, peak) if part is not None]
    until = [part.model.bundle.card.until for part in asked if part.model is not None]
    # Order of reported reasons: failures before missing models; in each case run time before peak use.
    missing = sorted([part for part in asked if part.reason], key=lambda part: part.reason == "no_model")
    notes = [part.note for part in missing if part.note]
    return {
        "job_id": row.job_id,
        "run_time_s": None if time is None else time.value,
        "basis": None if time is None else time.basis,
        "ended_jobs": None if time is None else time.ended,
        "peak_use": None if peak is None else peak.value,
        "measured_runs": max([part.runs for part in asked], default=0),
        "models": {
            "run_time": time.model.reference if time is not None and time.model is not None else None,
            "usage": peak.model.reference if peak is not None and peak.model is not None else None,
        },
        "history": moment(min(until)) if until else None,
        "reason": missing[0].reason if missing else None,
        "note": "; ".join(notes) if notes else None,
    }


def _counts(parts: Sequence[Part]) -> dict[tuple[str, ...], int]:
    counted: dict[tuple[str, ...], int] = defaultdict(int)
    for part in parts:
        bundle = None if part.model is None else part.model.bundle
        name, version = ("", "") if bundle is None else (bundle.card.name, bundle.version or "")
        counted["prediction", name, version, part.reason or "predicted"] += 1
    return counted
