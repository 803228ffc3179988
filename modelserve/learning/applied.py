"""Find recommendations that were not applied: finished jobs with their full request, matched with the logged answers.

Nothing is recommended here. Called by `modelserve.learning.modes`.
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
"""Number of newest logged recommendations searched for a job by name."""
ANSWERS_LOOKED_UP: Final = 500
"""Number of logged recommendations read by answer id."""
READ_BYTES: Final = 64 * 2**20
"""Total size of the records read in each way."""
RECOMMENDATION: Final = "recommendation"
_PARTS: Final[tuple[Part, ...]] = ("context", "response")

Name = tuple[str, str, str]
"""Trace, cluster (empty where none was named) and job id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foregone:
    """A job that ran with its request although less was recommended; `hours` are in the order of `RESOURCES`."""

    trace: str
    task_type: str
    hours: tuple[float, ...]


def foregone_of(store: Store, ran: Sequence[Ran]) -> list[Foregone]:
    """Return the finished jobs that could have been shrunk, and by how much.

    A job is found in the answer whose id it reports, otherwise by name, cluster and trace in the newest answer that
    contains it. An answer without a cluster matches too if jobs of that name ran on one cluster only, since feedback
    may fill in the cluster from the virtual cluster.

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
    """Map each name without its cluster to the full name; leave out names that match several jobs."""
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
    """Yield the target of every job of a recommendation; nothing for an unreadable record."""
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
