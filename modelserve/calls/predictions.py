"""Predictions: the run time and peak use of each job, or the reason why one of them is missing.

`predict` predicts without the service.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import numpy as np

from modelserve.bundle.card import USAGE_TARGETS
from modelserve.bundle.predictor import Kind, ModelPredictor
from modelserve.bundle.served import ServedModel
from modelserve.calls.context import Answered, RequestContext, Values, finite, moment, written
from modelserve.calls.recommendations import jobs_of
from modelserve.contract.jobs import MissingReason
from modelserve.contract.requests import JobRow, PredictBody
from scheduler_core.errors import PredictorUnavailable

__all__ = ["predict", "predicted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The run time or the peak use of one job, with its model; if it is missing, the reason why.

    `basis` is what a run time comes from, with its number of ended jobs.
    """

    value: Mapping[str, float] | None = None
    model: ServedModel | None = None
    runs: int = 0
    basis: tuple[str | None, int | None] = (None, None)
    reason: MissingReason | None = None
    note: str | None = None


NOTHING = Part()
"""An output that was not requested."""
Score = Callable[[RequestContext, ServedModel, Sequence[JobRow]], Sequence[Part]]


def predicted(context: RequestContext, body: PredictBody) -> Answered:
    """Return the response to a prediction call."""
    wanted, nothing = body.outputs, [NOTHING] * len(body.jobs)
    peaks = _parts(context, "usage", body.jobs, _peak_use) if "peak_use" in wanted else nothing
    # Measured runs are counted with peak use, so they are not counted again with run time.
    score = partial(_run_times, counted="peak_use" not in wanted)
    times = _parts(context, "runtime", body.jobs, score) if "run_time" in wanted else nothing
    predictions = [_prediction(row, time, peak) for row, time, peak in zip(body.jobs, times, peaks, strict=True)]
    return Answered(
        body=written({"answer_id": context.answer_id, "predictions": predictions}),
        models=context.cited(),
        counts=Counter(_counted(part) for part in (*times, *peaks) if part is not NOTHING),
    )


def _parts(context: RequestContext, kind: Kind, rows: Sequence[JobRow], score: Score) -> list[Part]:
    parts = [NOTHING] * len(rows)
    members: dict[str, tuple[ServedModel, list[int]]] = {}
    for i, row in enumerate(rows):
        model, failure = context.choice(kind, row)
        if model is not None:
            members.setdefault(model.reference, (model, []))[1].append(i)
        elif failure is not None:
            parts[i] = Part(reason="predictor_unavailable", note=failure)
        else:
            name = f"{kind}.{row.trace or context.trace or ''}.{row.task_type}"
            parts[i] = Part(reason="no_model", note=f"no model {name}"[:400])
    for model, places in members.values():
        try:
            scored = score(context, model, [rows[i] for i in places])
        except PredictorUnavailable as error:
            scored = [Part(model=model, reason="predictor_unavailable", note=str(error))] * len(places)
        for i, part in zip(places, scored, strict=True):
            parts[i] = part
    return parts


def _run_times(context: RequestContext, model: ServedModel, jobs: Sequence[JobRow], *, counted: bool) -> list[Part]:
    _, seen = context.rows(model, jobs)
    times = context.attempt(model, lambda: model.run_times(seen))
    measured = seen.rows.runs.tolist() if counted else [0] * len(jobs)
    rows = zip(times.p50.tolist(), times.p90.tolist(), measured, seen.rows.evidence.tolist(), strict=True)
    return [
        Part(value={"p50": p50, "p90": p90}, model=model, runs=runs, basis=model.basis(counts))
        for p50, p90, runs, counts in rows
    ]


def _peak_use(context: RequestContext, model: ServedModel, jobs: Sequence[JobRow]) -> list[Part]:
    asked, seen = context.rows(model, jobs)
    unknown = {target: np.full(len(asked), np.nan) for target in USAGE_TARGETS}
    use = unknown | context.attempt(model, lambda: model.use(seen))
    use["mem_gib"] = np.fmax(use["mem_gib"], [context.memory_floor_gib(job) for job in asked])
    columns = [use[target].tolist() for target in USAGE_TARGETS]
    rows = zip(zip(*columns, strict=True), seen.rows.runs.tolist(), strict=True)
    return [Part(value=dict(zip(USAGE_TARGETS, each, strict=True)), model=model, runs=runs) for each, runs in rows]


def _prediction(row: JobRow, time: Part, peak: Part) -> Values:
    until = [part.model.bundle.known_until for part in (time, peak) if part.model is not None]
    # Order of reported reasons: failures before missing models; in each case run time before peak use.
    missing = sorted([part for part in (time, peak) if part.reason], key=lambda part: part.reason == "no_model")
    basis, ended_jobs = time.basis
    return {
        "job_id": row.job_id,
        "run_time_s": time.value,
        "basis": basis,
        "ended_jobs": ended_jobs,
        "verdict": None if time.model is None else time.model.bundle.card.verdict,
        "peak_use": peak.value,
        "measured_runs": max(time.runs, peak.runs),
        "models": {
            "run_time": None if time.model is None else time.model.reference,
            "usage": None if peak.model is None else peak.model.reference,
        },
        "history": moment(min(until)) if until else None,
        "reason": missing[0].reason if missing else None,
        "note": "; ".join(part.note for part in missing if part.note) or None,
    }


def _counted(part: Part) -> tuple[str, ...]:
    bundle = None if part.model is None else part.model.bundle
    name, version = ("", "") if bundle is None else (bundle.card.name, bundle.version or "")
    return "prediction", name, version, part.reason or "predicted"


def predict(
    rows: Sequence[JobRow], predictor: ModelPredictor, *, trace: str, now: datetime | None = None
) -> list[Values]:
    """Predict run time and peak use of each job with its own request, as flat rows in the order of `rows`.

    `trace` and `now` are as in `jobs_of`, `basis` and `ended_jobs` as in `Prediction`. Unknown values are None.
    """
    jobs, sources = jobs_of(rows, predictor, trace, now)
    peak = predictor.peak_use(jobs)
    names = ("run_time_p50_s", "run_time_p90_s", "basis", "ended_jobs", "verdict")
    found: list[Values] = [dict.fromkeys(names)] * len(jobs)
    for model, members in predictor.by_model("runtime", jobs):
        _, seen = predictor.rows(model, [jobs[i] for i in members])
        times = predictor.attempt(model, partial(model.run_times, seen))
        for i, p50, p90, counts in zip(members, times.p50, times.p90, seen.rows.evidence.tolist(), strict=True):
            values = (finite(p50), finite(p90), *model.basis(counts), model.bundle.card.verdict)
            found[i] = dict(zip(names, values, strict=True))
    return [
        {
            "job_id": job.job_id,
            "trace": job.trace,
            "task_type": job.task_type,
            **found[i],
            **{f"peak_{target}": finite(getattr(peak, target)[i]) for target in USAGE_TARGETS},
            "measured_runs": int(peak.runs[i]),
            "model_run_time": sources[i].run_time,
            "model_usage": sources[i].usage,
            "history": None if sources[i].history is None else moment(sources[i].history),
        }
        for i, job in enumerate(jobs)
    ]
