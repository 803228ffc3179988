"""Erasure: delete a user's finished jobs and logged answers, and leave a mark by which histories drop the user's runs.

Models loaded later drop the user's jobs that were submitted up to the erasure; a report sent again afterwards is stored
as new. Histories are changed by `modelserve.learning.feed` in every worker. Called by the service and the feed.
"""

import json
from datetime import UTC, datetime

from pydantic_core import to_json

from modelserve.callers import Caller
from modelserve.contract.learning import ErasureAnswer
from modelserve.errors import BadRequest
from modelserve.learning.feed import Feed
from modelserve.store import Store
from modelserve.store.answer_log import REFUSED_S, AnswerLog
from modelserve.store.answers import answer_contexts, delete_answers
from modelserve.store.comparisons import delete_orphans
from modelserve.store.controls import Erasure, write_erasures

__all__ = ["erase_user", "strike_late"]


def erase_user(
    store: Store, log: AnswerLog, feed: Feed, caller: Caller, trace: str, user: str, cluster: str | None, *, at: float
) -> ErasureAnswer:
    """Delete a user's history in one cluster, or in all within the caller's reach; repeating it is harmless.

    `at` is the time of the erasure (Unix, s).

    Raises
    ------
    BadRequest
        A name contains a NUL character.
    Forbidden
        The trace or cluster is out of the caller's reach.
    StoreError
        Feedback was not deleted, or not every answer; repeat the call.
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
    log.flush()  # waiting answers are deleted and counted too
    gone = write_erasures(store, marks)
    named = [
        answer_id for answer_id, of, context in answer_contexts(store) if any(_names(m, of, context) for m in marks)
    ]
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
    """Delete answers that name an erased user and were given before the erasure but written after it.

    Raises
    ------
    StoreError
        Not all of it was deleted.
    """
    log.refuse(lambda record: record.at <= erasure.at and _names(erasure, record.trace, record.context))
    late = answer_contexts(store, since=erasure.at - REFUSED_S, until=erasure.at)
    delete_answers(store, [answer_id for answer_id, trace, context in late if _names(erasure, trace, context)])
    delete_orphans(store, since=erasure.at - REFUSED_S, until=erasure.at)


def _names(erasure: Erasure, trace: str, context: bytes) -> bool:
    """Return whether an answer names the user; such an answer is deleted whole."""
    mentioned = to_json(erasure.user) in context
    if not mentioned and b"\\" not in context:  # logged bodies are unchanged JSON, in which any letter may be escaped
        return False
    try:
        body = json.loads(context)["body"]  # every logged call has a list of jobs
        default = body.get("trace") or trace
        return any(
            job.get("user") == erasure.user
            and (job.get("trace") or default) == erasure.trace
            and erasure.cluster in ("", job.get("cluster"))
            for job in body["jobs"]
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return mentioned  # unknown format: delete rather than keep
