"""Reports of ended pods: outcomes, times and requests; sent once, and again while the service is away."""

import copy
import json
from typing import Any

import pytest

from modelserve.contract.feedback import FeedbackRow
from modelserve.errors import ServiceUnavailable
from pipelines.connect.kubernetes.config import KubernetesConfig
from pipelines.connect.kubernetes.feedback import follow_pods, report_of
from tests.pipelines.connect.kubernetes.advising import answer
from tests.pipelines.connect.kubernetes.api_server import admitted, recorded

Json = dict[str, Any]
CONFIG = KubernetesConfig.model_validate({"trace": "pai", "cluster": "c1", "group": ["{label:team}"]})
RAN = {"startedAt": "2026-11-22T18:06:00Z", "finishedAt": "2026-11-22T19:06:00Z"}


def ended(uid: str = "u1", phase: str = "Succeeded", *, shrunk: bool = True, **changes: Any) -> Json:
    """Return a recorded pod as it is after its end, shrunk by the webhook before."""
    review = recorded("pod-of-job")
    found = admitted(review, answer(review))[1] if shrunk else copy.deepcopy(review["request"]["object"])
    found["metadata"] |= {"uid": uid, "creationTimestamp": "2026-11-22T18:05:24Z"}
    terminated = {**RAN, "exitCode": 0, "reason": "Completed", **changes.pop("terminated", {})}
    states = [{"name": "main", "state": changes.pop("state", {"terminated": terminated}), **changes.pop("more", {})}]
    found["status"] = {"phase": phase, "containerStatuses": states, **changes}
    return found


def test_a_shrunk_pod_is_reported_with_its_request_and_its_answer() -> None:
    row = report_of(ended(), CONFIG)

    assert row is not None
    assert (row.job_id, row.answer_id) == (f"{recorded('pod-of-job')['request']['uid']}-0", "a1")
    assert (row.trace, row.cluster, row.group, row.outcome) == ("pai", "c1", "nlp", "completed")
    assert row.request.model_dump() == {"cpu_cores": 6.0, "mem_gib": 29.0, "gpus": 1.0}
    assert row.allocation is not None
    assert row.allocation.model_dump() == {"cpu_cores": 1.5, "mem_gib": 7.25, "gpus": 1.0}
    assert row.start_ts is not None
    assert (row.end_ts - row.start_ts).total_seconds() == 3600


def test_other_pods_are_reported_by_their_uid_as_they_asked() -> None:
    row = report_of(ended("u7", shrunk=False), CONFIG)

    assert row is not None
    assert (row.job_id, row.answer_id) == ("u7", None)
    assert row.request == row.allocation


def test_a_node_whose_clock_is_behind_the_servers_loses_no_report() -> None:
    pod = ended()
    pod["metadata"]["creationTimestamp"] = "2026-11-22T18:06:02Z"

    row = report_of(pod, CONFIG)

    assert row is not None
    assert row.submit_ts == row.start_ts


OUTCOMES = [
    ({"phase": "Failed"}, "failed"),
    ({"phase": "Failed", "terminated": {"reason": "OOMKilled", "exitCode": 137}}, "oom"),
    ({"phase": "Failed", "reason": "DeadlineExceeded"}, "timeout"),
    ({"phase": "Failed", "reason": "Evicted"}, "node_fail"),
    ({"phase": "Running"}, None),
    (
        {
            "phase": "Running",
            "state": {"running": {}},
            "more": {"lastState": {"terminated": {**RAN, "reason": "OOMKilled"}}},
        },
        "oom",
    ),
    (
        {
            "phase": "Running",
            "state": {"running": {}},
            "more": {"lastState": {"terminated": {**RAN, "reason": "Error"}}},
        },
        None,
    ),
    ({"phase": "Pending", "state": {"waiting": {}}}, None),
    ({"phase": "Succeeded", "terminated": {"finishedAt": None}}, None),
    ({"phase": "Succeeded", "terminated": {"finishedAt": "soon"}}, None),
]


@pytest.mark.parametrize(("changes", "outcome"), OUTCOMES)
def test_the_outcome_is_what_the_status_says(changes: Json, outcome: str | None) -> None:
    row = report_of(ended(**changes), CONFIG)

    assert (None if row is None else row.outcome) == outcome


def test_a_deleted_pod_was_cancelled_and_one_without_gpus_is_no_job() -> None:
    deleted = ended(phase="Failed")
    deleted["metadata"]["deletionTimestamp"] = "2026-11-22T19:06:00Z"
    row = report_of(deleted, CONFIG)
    assert row is not None
    assert row.outcome == "cancelled"
    assert report_of(recorded("pod-no-resources")["request"]["object"], CONFIG) is None


@pytest.mark.parametrize("annotation", ["{", "[]", '{"instances": "x"}', '{"cpu_cores": -1}'])
def test_an_annotation_that_was_changed_does_no_harm(annotation: str) -> None:
    found = ended()
    found["metadata"]["annotations"]["taut.dev/shrunk"] = annotation

    row = report_of(found, CONFIG)

    assert row is None or row.answer_id is None


class Service:
    """A client that keeps reports, or is away for the first calls."""

    def __init__(self, *, away: int = 0) -> None:
        self.away, self.rows, self.accepted = away, [], 0
        self.duplicates = self.conflicts = 0

    def feedback(self, rows: list[FeedbackRow]) -> Any:
        if self.away:
            self.away -= 1
            raise ServiceUnavailable("away")
        self.rows += rows
        self.accepted, self.results = len(rows), rows
        return self


def shown(row: FeedbackRow) -> str:
    return json.loads(row.model_dump_json())["job_id"]


def test_each_pod_is_reported_once_and_waits_while_the_service_is_away() -> None:
    service = Service(away=2)
    changes = [
        ("RESET", {"kind": "Pod"}),
        ("ADDED", ended("a", shrunk=False)),
        ("MODIFIED", ended("a", shrunk=False)),
        ("MODIFIED", ended("b", shrunk=False)),
        ("DELETED", ended("a", shrunk=False)),
    ]

    follow_pods(changes, CONFIG, service)

    assert [shown(row) for row in service.rows] == ["a", "b"]
