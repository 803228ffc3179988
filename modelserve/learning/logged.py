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
    """Return the jobs of a logged call, each with its trace and cluster; none of an unreadable record."""
    try:
        body = json.loads(record.context)["body"]
        of_call = {"cluster": body["cluster"]} if body.get("cluster") else {}
        return [{**of_call, **job, "trace": job.get("trace") or record.trace} for job in body["jobs"]]
    except UNREADABLE:
        return []


def recommendations_of(record: AnswerRecord) -> list[tuple[Json, Json]]:
    """Return every job of a logged recommendation or schedule with its answer; nothing of an unreadable record."""
    try:
        response = json.loads(record.response)
        pairs = zip(jobs_of(record), response.get("schedule") or response["recommendations"], strict=True)
        return [(job, answer) for job, answer in pairs if job["job_id"] and answer["target"].keys() >= set(RESOURCES)]
    except UNREADABLE:
        return []
