"""Find recommendations that were not applied, by matching finished jobs that were not shrunk with the logged responses.

No recommendations are made here. Called by `modelserve.learning.modes`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from modelserve.contract.feedback_rules import is_below
from modelserve.store import Store
from modelserve.store.answers import AnswerRecord, Part, named_answers, newest_answers
from modelserve.store.realised import RESOURCES, Ran

ANSWERS_LOOKED_THROUGH: Final = 2_000
"""Maximum number of logged responses searched for jobs by name, newest first."""
ANSWERS_LOOKED_UP: Final = 500
"""Maximum number of logged responses read by the answer id that jobs report."""
READ_BYTES: Final = 64 * 2**20
"""Maximum total size of the records read by id, and of the records searched by name."""
RECOMMENDATION: Final = "recommendation"
_PARTS: Final[tuple[Part, ...]] = ("context", "response")

Name = tuple[str, str, str]
"""Trace, cluster (empty if unknown) and id of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foregone:
    """A job that ran with its full request although less was recommended.

    `hours` are the resource-hours it would have saved, in the order of `RESOURCES`.
    """

    trace: str
    task_type: str
    hours: tuple[float, ...]


def foregone_of(store: Store, ran: Sequence[Ran]) -> list[Foregone]:
    """Return the finished jobs that were not shrunk although less was recommended, and what they would have saved.

    A job's recommendation is taken from the response whose id the job reports, otherwise from the newest response with
    a job of the same trace, cluster and id. A recommendation without a cluster matches if jobs of that id ran on one
    cluster only, since feedback may have filled in the cluster from the virtual cluster.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    wanted: dict[Name, Ran] = {}
    for job in ran:
        if not job.shrunk:
            wanted.setdefault((job.trace, job.cluster, job.job_id), job)
    alone = _named_without_cluster(wanted)
    found: dict[Name, tuple[float | None, ...]] = {}
    for record in _records(store, list(wanted.values())):
        for name, target in _targets(record):
            full = name if name in wanted else alone.get(name)
            if full is not None and full not in found:
                found[full] = target
    foregone = [_foregone(wanted[name], target) for name, target in found.items()]
    return [each for each in foregone if each is not None]


def _named_without_cluster(names: Iterable[Name]) -> dict[Name, Name]:
    """Map each name with an empty cluster to the full name; leave out names for which there are several clusters."""
    met: dict[Name, list[Name]] = {}
    for trace, cluster, job_id in names:
        met.setdefault((trace, "", job_id), []).append((trace, cluster, job_id))
    return {short: full[0] for short, full in met.items() if len(full) == 1}


def _records(store: Store, jobs: Sequence[Ran]) -> Iterator[AnswerRecord]:
    named = list(dict.fromkeys(job.answer_id for job in jobs if job.answer_id is not None))[:ANSWERS_LOOKED_UP]
    for record in named_answers(store, named, parts=_PARTS, limit_bytes=READ_BYTES):
        if record.kind == RECOMMENDATION:
            yield record
    if jobs:
        yield from newest_answers(
            store, parts=_PARTS, kind=RECOMMENDATION, limit=ANSWERS_LOOKED_THROUGH, limit_bytes=READ_BYTES
        )


def _targets(record: AnswerRecord) -> Iterator[tuple[Name, tuple[float | None, ...]]]:
    """Yield the name and recommended target of every job in a record; yield nothing for an unreadable record."""
    try:
        jobs = json.loads(record.context)["body"]["jobs"]
        answers = json.loads(record.response)["recommendations"]
        for job, answer in zip(jobs, answers, strict=True):
            name = (job.get("trace") or record.trace, job.get("cluster") or "", job["job_id"])
            yield name, tuple(answer["target"].get(resource) for resource in RESOURCES)
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def _foregone(job: Ran, target: Sequence[float | None]) -> Foregone | None:
    if not any(is_below(less, asked) for less, asked in zip(target, job.requests, strict=True)):
        return None
    hours = job.run_s * job.instances / 3600.0
    spare = [
        (asked - less) * hours if asked is not None and less is not None else 0.0
        for less, asked in zip(target, job.requests, strict=True)
    ]
    return Foregone(trace=job.trace, task_type=job.task_type, hours=tuple(spare))
