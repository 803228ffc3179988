"""Erasure of a user: delete the user's finished jobs and logged responses, and record the erasure in the store.

Because of this record, `modelserve.learning.feed` removes the user's runs from the histories in every worker. Models
loaded later drop the user's jobs submitted up to the erasure. A report sent again after the erasure is stored as new.
"""

import json
from datetime import UTC, datetime

from pydantic_core import to_json

from modelserve.callers import Caller
from modelserve.contract.feedback import ErasureAnswer
from modelserve.errors import BadRequest
from modelserve.learning.feed import Feed
from modelserve.store import Store
from modelserve.store.answer_log import REFUSED_S, AnswerLog
from modelserve.store.answers import AnswerRecord, answers_between, delete_answers, delete_orphans
from modelserve.store.changes import Erasure, write_erasures

__all__ = ["erase_user", "strike_late"]


def erase_user(
    store: Store, log: AnswerLog, feed: Feed, caller: Caller, trace: str, user: str, cluster: str | None, *, at: float
) -> ErasureAnswer:
    """Delete a user's jobs and logged responses in one cluster; without `cluster`, in all that the caller may access.

    `at` is the time of the erasure (Unix, s). The call may be repeated.
    """
    if any("\x00" in name for name in (trace, user, cluster or "")):
        raise BadRequest("user: found a NUL character, expected a name without one")
    clusters = caller.clusters if cluster is None else frozenset({cluster})
    for each in clusters or (None,):
        caller.check_reach(trace, each, field="user")
    marks = [
        Erasure(trace=trace, cluster=each, user=user, before_us=round(at * 1e6), caller=caller.name, at=at)
        for each in (sorted(clusters) if clusters is not None else [""])
    ]
    log.flush()  # so that responses still in the write queue are deleted and counted too
    gone = write_erasures(store, marks)
    named = [each.answer_id for each in answers_between(store, None, None) if any(_names(mark, each) for mark in marks)]
    answers = delete_answers(store, named)
    feed.poll()
    return ErasureAnswer(
        trace=trace,
        user=user,
        clusters=None if clusters is None else tuple(sorted(clusters)),
        before=datetime.fromtimestamp(at, tz=UTC),
        feedback=gone,
        answers=answers,
    )


def strike_late(store: Store, log: AnswerLog, erasure: Erasure) -> None:
    """Delete logged answers about an erased user that were given before the erasure but logged after it."""
    log.refuse(lambda record: record.at <= erasure.at and _names(erasure, record))
    late = answers_between(store, erasure.at - REFUSED_S, erasure.at)
    delete_answers(store, [each.answer_id for each in late if _names(erasure, each)])
    delete_orphans(store, since=erasure.at - REFUSED_S, until=erasure.at)


def _names(erasure: Erasure, record: AnswerRecord) -> bool:
    """Return whether a logged call has a job of the erased user; the whole record is then deleted."""
    mentioned = to_json(erasure.user) in record.context
    if not mentioned and b"\\" not in record.context:  # without escapes, a text search finds every user name
        return False
    try:
        body = json.loads(record.context)["body"]  # the body of every logged call has `jobs`
        default = body.get("trace") or record.trace
        return any(
            job.get("user") == erasure.user
            and (job.get("trace") or default) == erasure.trace
            and erasure.cluster in ("", job.get("cluster") or body.get("cluster"))
            for job in (*body["jobs"], *body.get("running", ()))
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return mentioned  # unknown format: delete rather than keep
