"""Calls for recent recommendations: the newest logged recommendations the caller may see, and their jobs' outcomes.

Users and groups are not shown.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from pydantic import ValidationError

from features.vocabulary import ROLE_WHOLE_JOB
from modelserve.callers import Caller
from modelserve.contract.feedback_rules import shrunk_resources
from modelserve.contract.jobs import RECENT_SHOWN, Amounts, Became, Recent, RecentAnswer
from modelserve.learning.logged import recommendations_of
from modelserve.store import Store
from modelserve.store.answers import AnswerRecord, Part, newest_answers
from modelserve.store.finished import RESOURCES, Finished, named_finished

__all__ = ["recent_recommendations"]

LOOKED_THROUGH: Final = 1000
"""Maximum number of logged responses searched for recommendations, newest first."""
READ_BYTES: Final = 32 * 2**20
"""Maximum total size of the logged responses that are read."""
_PARTS: Final[tuple[Part, ...]] = ("context", "response")


def recent_recommendations(
    store: Store, caller: Caller, trace: str | None = None, task_type: str | None = None
) -> RecentAnswer:
    """Return the newest logged recommendations that the caller may see, filtered by trace and task type if given."""
    records = newest_answers(store, parts=_PARTS, kind="recommendation", limit=LOOKED_THROUGH, limit_bytes=READ_BYTES)
    rows = (row for record in records for row in _rows(record, caller, trace, task_type))
    newest = list(islice(rows, RECENT_SHOWN))
    ran: dict[tuple[str, str, str], list[Finished]] = defaultdict(list)
    for each in named_finished(store, {(row.trace, row.job_id) for row in newest}):
        ran[each.trace, each.job_id, each.role].append(each)
    return RecentAnswer(
        recommendations=tuple(
            row.model_copy(update={"finished": _became(row, ran[row.trace, row.job_id, row.role])}) for row in newest
        )
    )


def _rows(record: AnswerRecord, caller: Caller, trace: str | None, task_type: str | None) -> Iterator[Recent]:
    """Yield a record's recommendations for jobs of a trace and type (None: any) that the caller may see.

    A caller bound to clusters sees no jobs without a cluster. An unreadable record yields nothing.
    """
    try:
        for job, answer in recommendations_of(record):
            of, cluster = job["trace"], job.get("cluster")
            chosen = trace in (None, of) and task_type in (None, job["task_type"])
            if chosen and caller.reaches(of) and (caller.clusters is None or cluster in caller.clusters):
                yield _row(record, job, answer)
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        return


def _row(record: AnswerRecord, job: Mapping[str, Any], answer: Mapping[str, Any]) -> Recent:  # Any: JSON values
    instances, request, target = int(job.get("instances", 1)), answer["request"], answer["target"]
    names = ("mode", "request", "target", "reasons")
    return Recent.model_validate(
        {
            "answer_id": record.answer_id,
            "at": datetime.fromtimestamp(record.at, UTC),
            "trace": job["trace"],
            "cluster": job.get("cluster"),
            "job_id": job["job_id"],
            "role": job.get("role", ROLE_WHOLE_JOB),
            "task_type": job["task_type"],
            "instances": instances,
            **{name: answer[name] for name in names},
            "freed": _less([request[name] for name in RESOURCES], [target[name] for name in RESOURCES], instances),
            "finished": None,
        }
    )


def _became(row: Recent, ran: Sequence[Finished]) -> Became | None:
    """Return the outcome of a recommendation's job; None unless exactly one finished job matches."""
    alike = [each for each in ran if row.cluster in (None, each.cluster) and each.answer_id in (None, row.answer_id)]
    if len(alike) != 1:
        return None
    [job] = alike
    return Became(
        outcome=job.outcome,
        run_s=job.run_s,
        applied=bool(shrunk_resources(job)),
        saved_hours=_less(job.requests, job.allocations, job.run_s * job.instances / 3600.0),
    )


def _less(asked: Sequence[float | None], given: Sequence[float | None], times: float) -> Amounts:
    pairs = zip(RESOURCES, asked, given, strict=True)
    return Amounts.model_validate({name: None if a is None or b is None else (a - b) * times for name, a, b in pairs})
