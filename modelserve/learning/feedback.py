"""Feedback calls: check the reports of finished jobs, predict them with the current models, and store each job once."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from modelserve.callers import Caller
from modelserve.contract.feedback import EARLIEST, FeedbackBody
from modelserve.contract.learning import FeedbackAnswer, FeedbackResult, RowStatus
from modelserve.contract.requests import JobIdentity
from modelserve.errors import BadRequest
from modelserve.learning.feed import Feed
from modelserve.learning.hindsight import scored_in_hindsight
from modelserve.learning.modes import brakes_held
from modelserve.learning.trust import with_trust
from modelserve.loading.models import Snapshot
from modelserve.store import Store
from modelserve.store.changes import insert_finished
from modelserve.store.finished import OOM, Finished, Identity, Stored, known_digests, reports_of

__all__ = ["take_feedback"]

AHEAD: Final = timedelta(minutes=5)
"""Maximum time by which a reported end may be ahead of this machine's clock; later ends are rejected."""
AS_REPORTED: Final = (*(JobIdentity.model_fields.keys() - {"trace", "cluster"}), "answer_id", "outcome")
"""Fields of a report that are stored as they are."""


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
        known = known_digests(connection, {row.identity for row in rows})
    first = _counted(rows, known)
    judged = with_trust(store, scored_in_hindsight(list(first.values()), snapshot), believed=caller.believed)
    earlier = insert_finished(store, judged)
    feed.poll()
    learned = feed.learned
    found = {learned.braked(row.trace, row.task_type, row.cluster, row.group, row.user) for row in rows}
    taken = _answer(rows, earlier | {key: known[key] for key in known.keys() - first.keys()}, first, judged)
    return taken.model_copy(update={"brakes": brakes_held(stop for stop in found if stop)})


def _counted(rows: Sequence[Finished], known: Mapping[Identity, str]) -> dict[Identity, Finished]:
    """Return the report that counts of each job: the first, but a kill for memory before any other."""
    counted: dict[Identity, Finished] = {}
    for row in rows:
        kill, held = row.outcome == OOM, counted.get(row.identity)
        if held is None:
            new = row.identity not in known or (kill and known[row.identity] != row.digest)
        else:
            new = kill and held.outcome != OOM
        if new:
            counted[row.identity] = row
    return counted


def _placed(store: Store, rows: Sequence[Finished], snapshot: Snapshot) -> list[Finished]:
    """Fill in missing clusters, from an earlier report of the job, otherwise from its VC in the current history."""
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
    """Return the cluster in an earlier report of the job, or None.

    It is preferred to the cluster of the job's virtual cluster (VC), which may have moved to another cluster.
    """
    same = [each for each in reports if each.digest == row.digest]
    alike = [each for each in reports if not each.cluster or (each.vc, each.submit_us) == (row.vc, row.submit_us)]
    return next((each.cluster for each in (*same, *alike)), None)


def _cluster_of_vc(row: Finished, snapshot: Snapshot) -> str:
    models = (*snapshot.champions.values(), *snapshot.challengers.values())
    history = next((model.history for model in models if model.bundle.card.trace == row.trace), None)
    cluster = None if history is None else history.cluster_of(row.vc)
    return cluster or ""


def _answer(
    rows: Sequence[Finished], earlier: dict[Identity, str], first: dict[Identity, Finished], judged: Sequence[Finished]
) -> FeedbackAnswer:
    results, trust = [], {row.identity: row.trust for row in judged}
    for row in rows:
        mine = row.identity not in earlier and first[row.identity] is row
        digest = earlier.get(row.identity) or first[row.identity].digest
        status: RowStatus = "accepted" if mine else "duplicate" if row.digest == digest else "conflict"
        results.append(FeedbackResult(job_id=row.job_id, status=status, trust=trust[row.identity] if mine else None))
    counts = Counter(each.status for each in results)
    return FeedbackAnswer(
        accepted=counts["accepted"],
        duplicates=counts["duplicate"],
        conflicts=counts["conflict"],
        results=tuple(results),
    )


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
