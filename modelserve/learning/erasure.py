"""Erasure: a user's finished jobs and logged answers deleted, and a mark left by which every history forgets them.

Histories are made to forget by `modelserve.learning.feed`, in every worker, and again whenever a model is loaded.
Called by the routes of the service.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from modelserve.callers import Caller
from modelserve.errors import BadRequest
from modelserve.store.answers import answer_contexts, delete_answers
from modelserve.store.controls import Erasure, write_erasures

if TYPE_CHECKING:
    from modelserve.service import Service


class ErasureAnswer(BaseModel):
    """What was deleted; runs of the user that ended before `before` are forgotten, also by models loaded later."""

    model_config = ConfigDict(frozen=True)

    trace: str
    user: str
    clusters: tuple[str, ...] | None
    before: datetime
    feedback: int
    answers: int


def erase_user(service: "Service", caller: Caller, trace: str, user: str, cluster: str | None = None) -> ErasureAnswer:
    """Delete a user's history in one cluster, or in all within the caller's reach; a second time finds nothing left.

    Raises
    ------
    BadRequest
        A name that no store could hold.
    Forbidden
        The trace or cluster is out of the caller's reach.
    StoreError
        Feedback was not deleted, or not every answer; ask again.
    """
    if any("\x00" in name for name in (trace, user, cluster or "")):
        raise BadRequest("user: found a NUL character, expected a name without one")
    clusters = caller.clusters if cluster is None else frozenset({cluster})
    for each in clusters or (None,):
        caller.check_reach(trace, each, field="user")
    at = service.clock()
    marks = [
        Erasure(trace=trace, cluster=each, user=user, before_us=round(at * 1e6), caller=caller.name, at=at)
        for each in (sorted(clusters) if clusters is not None else [""])
    ]
    gone = write_erasures(service.store, marks)
    service.feed.poll()
    named = list(_answers_naming(service, trace, user, clusters))
    return ErasureAnswer(
        trace=trace,
        user=user,
        clusters=None if clusters is None else tuple(sorted(clusters)),
        before=datetime.fromtimestamp(at, tz=UTC),
        feedback=gone,
        answers=delete_answers(service.store, named),
    )


def _answers_naming(service: "Service", trace: str, user: str, clusters: frozenset[str] | None) -> Iterator[str]:
    """Yield the ids of logged answers that name the user within the clusters: such an answer goes whole."""
    mention = to_json(user)
    for answer_id, of_trace, context in answer_contexts(service.store):
        if mention not in context:
            continue
        body = json.loads(context)["body"]  # an object with jobs: the log takes no other calls
        default = body.get("trace") or of_trace
        for job in body["jobs"]:
            if job.get("user") == user and (job.get("trace") or default) == trace and _is_within(job, clusters):
                yield answer_id
                break


def _is_within(job: Mapping[str, object], clusters: frozenset[str] | None) -> bool:
    return clusters is None or job.get("cluster") in clusters
