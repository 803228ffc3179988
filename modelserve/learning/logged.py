"""Logged answers: the jobs of a logged call, and what was recommended for them."""

import json
from collections.abc import Mapping
from typing import Any

from modelserve.store.answers import AnswerRecord
from modelserve.store.finished import RESOURCES

__all__ = ["recommendations_of"]

Json = Mapping[str, Any]  # Any: JSON values
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""Errors of reading a record that another version of the service wrote."""


def jobs_of(record: AnswerRecord) -> list[Json]:
    """Return the jobs of a logged call, each with its trace; none of an unreadable record."""
    try:
        jobs = json.loads(record.context)["body"]["jobs"]
        return [{**job, "trace": job.get("trace") or record.trace} for job in jobs]
    except UNREADABLE:
        return []


def recommendations_of(record: AnswerRecord) -> list[tuple[Json, Json]]:
    """Return every job of a logged recommendation call with its answer; nothing of an unreadable record."""
    try:
        pairs = zip(jobs_of(record), json.loads(record.response)["recommendations"], strict=True)
        return [(job, answer) for job, answer in pairs if job["job_id"] and answer["target"].keys() >= set(RESOURCES)]
    except UNREADABLE:
        return []
