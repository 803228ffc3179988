"""Feedback calls: check the reports of finished jobs, predict the jobs with the current models, and store the reports.

Reports count by their caller. With the scope `accounting` (the cluster's own records) a report is believed. A report of
the caller that got the answer about this job, with the answer's id, is bounded: it counts only for the floor of the
job's group (`modelserve.learning.learned`). Any other report is stored and shown, without effect. Without tokens all
callers count as one, who may also set modes: its reports are believed if they name an answer.
"""

import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np

from features.online import JobAsked
from features.vocabulary import ROLE_WHOLE_JOB
from modelserve.bundle.predictor import Kind, entry_of
from modelserve.bundle.served import ServedModel
from modelserve.callers import ANYONE, Caller
from modelserve.contract.feedback import EARLIEST, FeedbackAnswer, FeedbackBody, FeedbackResult
from modelserve.contract.requests import JobIdentity
from modelserve.errors import BadRequest
from modelserve.learning.feed import Feed
from modelserve.learning.modes import brakes_held
from modelserve.loading.models import Snapshot
from modelserve.store import Store
from modelserve.store.answers import named_answers
from modelserve.store.changes import insert_finished, known_reports, status_of
from modelserve.store.finished import BELIEVED, OOM, Finished, Stored, Trust, reports_of
from scheduler_core.types import FloatArray

__all__ = ["take_feedback"]

AHEAD: Final = timedelta(minutes=5)
"""Maximum time by which a reported end may be ahead of this machine's clock; later ends are rejected."""
AS_REPORTED: Final = (*(JobIdentity.model_fields.keys() - {"trace", "cluster"}), "answer_id", "outcome")
"""Fields of a report that are stored as they are."""
KINDS: Final = ("prediction", "recommendation")
"""Kinds of the answers that reports may name."""
READ_BYTES: Final = 64 * 2**20
"""Maximum total size of the logged answers that are read for one call; reports that name others are only shown."""

ABOUT: Final = ("trace", "job_id", "role", "user", "group", "cluster")
"""Fields that a bounded report shares with the job in the answer; that job may have named no cluster."""
Asked = tuple[str | None, ...]
"""Values of `ABOUT`."""
Figures = Mapping[str, Sequence[float | str | None]]
"""Columns of `Finished`, one value for each job."""
Score = Callable[[ServedModel, Sequence[JobAsked]], Figures]
NUMBERS: Final = ("req_cpu_cores", "req_mem_gib", "req_gpus")
logger = logging.getLogger(__name__)


def take_feedback(
    store: Store,
    feed: Feed,
    snapshot: Snapshot,
    body: FeedbackBody,
    caller: Caller,
    *,
    default_trace: str | None,
    at: float,
) -> FeedbackAnswer:
    """Store the reports of finished jobs and learn from them, after checking all reports of the call."""
    rows = [_finished(body, index, caller, default_trace, at) for index in range(len(body.feedback))]
    rows = _placed(store, rows, snapshot)
    with store.reading("looking for finished jobs") as connection:
        known = known_reports(connection, rows)
    rows = [_overruled(row, known[row.identity]) for row in _trusted(store, rows, caller)]
    statuses = [status_of(row, known) for row in rows]
    new = [row for row, status in zip(rows, statuses, strict=True) if status == "accepted"]
    stored = iter(insert_finished(store, scored_in_hindsight(new, snapshot)))
    statuses = [next(stored) if status == "accepted" else status for status in statuses]
    feed.poll()
    found = {feed.learned.braked(row.trace, row.task_type, row.cluster, row.group, row.user) for row in rows}
    counts = Counter(statuses)
    return FeedbackAnswer(
        accepted=counts["accepted"],
        duplicates=counts["duplicate"],
        conflicts=counts["conflict"],
        results=tuple(
            FeedbackResult(job_id=row.job_id, status=status, trust=row.kind if status == "accepted" else None)
            for row, status in zip(rows, statuses, strict=True)
        ),
        brakes=brakes_held(stop for stop in found if stop),
    )


def _trusted(store: Store, rows: Sequence[Finished], caller: Caller) -> list[Finished]:
    """Return the reports with their trust: by the caller's scope, or by the answers that they name."""
    if caller.believed:
        return list(rows)
    asked: dict[str, set[Asked]] = {}
    ids = {row.answer_id for row in rows if row.answer_id}
    for record in named_answers(store, ids, parts=("context",), limit_bytes=READ_BYTES):
        if record.caller == caller.name and record.kind in KINDS:
            jobs = ({"role": ROLE_WHOLE_JOB, **job} for job in record.jobs())
            asked[record.answer_id] = {tuple(map(job.get, ABOUT)) for job in jobs}

    def trust_in(row: Finished) -> Trust:
        jobs = asked.get(row.answer_id or "")
        if jobs is None:
            return "shown"
        if caller == ANYONE:
            return "believed"
        job = (row.trace, row.job_id, row.role, row.user, row.group)
        return "bounded" if jobs & {(*job, row.cluster), (*job, None)} else "shown"

    return [replace(row, kind=trust_in(row)) for row in rows]


def _overruled(row: Finished, stored: Iterable[Stored]) -> Finished:
    """Return the report as only shown if another reporter's accounting has the job; reports of kills still count."""
    said = any(each.kind == BELIEVED and each.caller != row.caller for each in stored)
    kill = (row.kind, row.outcome) == (BELIEVED, OOM)
    return replace(row, kind="shown") if said and not kill else row


def _placed(store: Store, rows: Sequence[Finished], snapshot: Snapshot) -> list[Finished]:
    """Fill in missing clusters, from the reporter's earlier report, otherwise from the VC in the current history."""
    stored: dict[tuple[str, str, str], list[Stored]] = defaultdict(list)
    if unplaced := {(row.trace, row.job_id) for row in rows if not row.cluster}:
        with store.reading("looking for finished jobs") as connection:
            for report in reports_of(connection, unplaced):
                stored[report.trace, report.job_id, report.role].append(report)
    placed = []
    for row in rows:
        if not row.cluster:
            earlier = _stored_cluster(row, stored.get((row.trace, row.job_id, row.role), ()))
            row = replace(row, cluster=_cluster_of_vc(row, snapshot) if earlier is None else earlier)
        placed.append(row)
    return placed


def _stored_cluster(row: Finished, reports: Sequence[Stored]) -> str | None:
    """Return the cluster in the reporter's earlier report of the job, or None.

    It is preferred to the cluster of the job's virtual cluster (VC), which may have moved to another cluster.
    """
    mine = [each for each in reports if each.caller == row.caller]
    same = [each for each in mine if each.digest == row.digest]
    alike = [each for each in mine if not each.cluster or (each.vc, each.submit_us) == (row.vc, row.submit_us)]
    return next((each.cluster for each in (*same, *alike)), None)


def _cluster_of_vc(row: Finished, snapshot: Snapshot) -> str:
    of_trace = (model.history for model in snapshot.champions.values() if model.bundle.card.trace == row.trace)
    history = next(of_trace, None)
    return (history and history.cluster_of(row.vc)) or ""


def _finished(body: FeedbackBody, index: int, caller: Caller, default_trace: str | None, at: float) -> Finished:
    row = body.feedback[index]
    trace = row.trace or body.trace or default_trace
    if trace is None:
        raise BadRequest(f"feedback.{index}.trace: found none, expected it in the row, the call or TAUT_SERVE_TRACE")
    caller.check_reach(trace, row.cluster, field=f"feedback.{index}")
    if row.end_ts.timestamp() > at + AHEAD.total_seconds():
        raise BadRequest(f"feedback.{index}.end_ts: found {row.end_ts.isoformat()}, expected a time in the past")
    given = row.allocation or row.request
    run_s = row.run_s
    if run_s is None and row.start_ts is not None:
        run_s = (row.end_ts - row.start_ts).total_seconds()
    columns: dict[str, object] = {
        **{name: getattr(row, name) for name in AS_REPORTED},
        "trace": trace,
        "submit_us": _microseconds(row.submit_ts),
        "start_us": None if row.start_ts is None else _microseconds(row.start_ts),
        "end_us": _microseconds(row.end_ts),
        "run_s": run_s,
        **{f"req_{name}": value for name, value in row.request},
        **{f"alloc_{name}": getattr(row.request, name) if value is None else value for name, value in given},
        **{name if "max" in name else f"used_{name}": value for name, value in row.used},
    }
    digest = hashlib.sha256(json.dumps(columns, sort_keys=True).encode()).hexdigest()
    # The digest leaves out the cluster, so that reports with and without the cluster of the same job are equal.
    return Finished(**columns, cluster=row.cluster or "", digest=digest, caller=caller.name, at=at)  # type: ignore[arg-type]  # the keys are columns of `Finished`


def _microseconds(at: datetime) -> int:
    return (at - EARLIEST) // timedelta(microseconds=1)


def scored_in_hindsight(rows: Sequence[Finished], snapshot: Snapshot) -> list[Finished]:
    """Return the jobs with the predictions of the models; None where there is no model or it fails.

    Each job is predicted with its original request, even if it ran with less, from what was known at its submission.
    Errors and drift are computed from these predictions.
    """
    scored = list(rows)
    of_kinds: tuple[tuple[Kind, Score], ...] = (("runtime", _run_times), ("usage", _peaks))
    for kind, score in of_kinds:
        members: dict[int, tuple[ServedModel, list[int]]] = {}
        for i, row in enumerate(rows):
            model = entry_of(snapshot.champions, kind, row.trace, row.workload, row.task_type)
            if model is not None:
                members.setdefault(id(model), (model, []))[1].append(i)
        for model, places in members.values():
            try:
                figures = score(model, [_asked(rows[i], model) for i in places])
            except Exception as error:  # feedback must be stored even if a prediction fails
                logger.warning("%s could not score %d finished jobs: %s", model.reference, len(places), error)
                continue
            for i, *values in zip(places, *figures.values(), strict=True):
                scored[i] = replace(scored[i], **dict(zip(figures, values, strict=True)))
    return scored


def _run_times(model: ServedModel, asked: Sequence[JobAsked]) -> Figures:
    seen = model.look(asked)
    answer = model.run_times(seen)
    forecasts = [None] * len(asked) if seen.forecasts is None else [json.dumps(row) for row in seen.forecasts.tolist()]
    known = {"p50_s": _known(answer.p50), "p90_s": _known(answer.p90)}
    return {"run_time_model": [model.reference] * len(asked), **known, "forecasts": forecasts}


def _peaks(model: ServedModel, asked: Sequence[JobAsked]) -> Figures:
    peaks = {f"peak_{target}": _known(use) for target, use in model.use(model.look(asked)).items()}
    return {"usage_model": [model.reference] * len(asked), **peaks}


def _asked(row: Finished, model: ServedModel) -> JobAsked:
    given: dict[str, Any] = {each.name: getattr(row, each.name, None) for each in fields(JobAsked)}
    given |= {name: np.nan for name in NUMBERS if given[name] is None}
    return JobAsked(**{**given, "cluster": row.cluster or model.history.cluster_of(row.vc)})


def _known(values: FloatArray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
