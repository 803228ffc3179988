"""Report ended pods to the service, once or as they end: times, outcome, request and allocation."""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from modelserve.client import Client
from modelserve.contract.feedback import FeedbackRow
from modelserve.errors import ClientError
from pipelines.connect.kubernetes.config import KubernetesConfig, names_of
from pipelines.connect.kubernetes.objects import GIB, Json, container_named, items, mapping, text, time_of
from pipelines.connect.kubernetes.pods import Before, Container, LeftAlone, main_container

__all__ = ["follow_pods", "report_pods"]

TOGETHER: Final = 500
WAITING: Final = 10_000
"""Most reports that wait while the service is down; the oldest are dropped, since a restart reads all pods again."""

REMEMBERED: Final = 100_000

Object = dict[str, Any]  # Any: JSON of Kubernetes
log = logging.getLogger("taut.kubernetes")
OUTCOME_OF_REASON: Final[Mapping[str, str]] = {
    "DeadlineExceeded": "timeout",
    "Evicted": "node_fail",
    "NodeLost": "node_fail",
    "NodeShutdown": "node_fail",
    "Preempting": "cancelled",
    "Shutdown": "node_fail",
    "Terminated": "node_fail",
}
"""Outcomes by the reason in a failed pod's status."""


def report_of(pod: Json, config: KubernetesConfig) -> FeedbackRow | None:
    """Return the report of a pod with GPUs that has ended, or whose main container was killed for memory; else None.

    A pod killed for memory is reported at once, even if it continues in a new container: a job's first report counts.
    """
    metadata, status = mapping(pod.get("metadata")), mapping(pod.get("status"))
    try:
        container, gpus = main_container(mapping(pod.get("spec")), config)
    except LeftAlone:
        return None
    ends = _ends(status, container.name)
    outcome = _outcome(pod, ends)
    if outcome is None or not ends:
        return None
    end = max(ends, key=lambda each: str(each.get("finishedAt")))
    shrunk = Before.of(metadata)
    given = {"cpu_cores": _amount(container, "cpu", 1), "mem_gib": _amount(container, "memory", GIB), "gpus": gpus}
    requested = {"cpu_cores": shrunk.cpu_cores or given["cpu_cores"], "mem_gib": shrunk.mem_gib or given["mem_gib"]}
    created, start = time_of(metadata.get("creationTimestamp")), end.get("startedAt") or status.get("startTime")
    row = {
        **names_of(config, pod, container_named(pod, container.name)),
        "job_id": shrunk.job_id or metadata.get("uid"),
        "answer_id": shrunk.answer_id or None,
        "instances": shrunk.instances,
        # The node's clock may be behind the API server's.
        "submit_ts": min((each for each in (created, time_of(start)) if each), default=None),
        "start_ts": start,
        "end_ts": end.get("finishedAt"),
        "outcome": outcome,
        "request": {**given, **requested},
        "allocation": given,
    }
    try:
        return FeedbackRow.model_validate(row)
    except ValidationError:
        return None


def _ends(status: Json, name: str) -> list[Json]:
    """Return how the runs of a container ended, as far as its status records them."""
    found = []
    for each in map(mapping, items(status.get("containerStatuses"))):
        if each.get("name") == name:
            for state in ("lastState", "state"):
                ended = mapping(mapping(each.get(state)).get("terminated"))
                if time_of(ended.get("finishedAt")) is not None:
                    found.append(ended)
    return found


def _outcome(pod: Json, ends: list[Json]) -> str | None:
    status = mapping(pod.get("status"))
    phase = status.get("phase")
    if any(each.get("reason") == "OOMKilled" for each in ends):
        return "oom"
    if phase == "Succeeded":
        return "completed"
    if phase != "Failed":
        return None
    if mapping(pod.get("metadata")).get("deletionTimestamp"):
        return "cancelled"
    return OUTCOME_OF_REASON.get(text(status.get("reason")) or "", "failed")


def _amount(container: Container, resource: str, unit: int) -> float | None:
    found = container.requests.get(resource)
    return None if found is None else float(found) / unit


def report_pods(pods: Sequence[Object], config: KubernetesConfig, client: Client) -> dict[str, int]:
    """Report all ended pods of a list; return the numbers of pods, of reports, and of the service's results."""
    rows = [row for pod in pods if (row := report_of(pod, config)) is not None]
    answer = client.feedback(rows)
    counts = {name: getattr(answer, name) for name in ("accepted", "duplicates", "conflicts")}
    return {"pods": len(pods), "reports": len(rows), **counts}


def follow_pods(changes: Iterable[tuple[str, Object]], config: KubernetesConfig, client: Client) -> None:
    """Report each pod of a stream of changes when it has ended; return at the end of the stream.

    If the service does not accept a report, it is sent again after a later change. A job is reported once.
    """
    told: OrderedDict[str, None] = OrderedDict()
    waiting: list[FeedbackRow] = []
    for change, pod in changes:
        row = None if change == "RESET" else report_of(pod, config)
        if row is not None and row.job_id not in told:
            told[row.job_id] = None
            waiting.append(row)
        while len(told) > REMEMBERED:
            told.popitem(last=False)
        waiting = _sent(waiting[-WAITING:], client)


def _sent(rows: list[FeedbackRow], client: Client) -> list[FeedbackRow]:
    """Send reports, and return those that the service did not accept."""
    if not rows:
        return []
    try:
        answer = client.feedback(rows[:TOGETHER])
    except ClientError as error:
        log.warning("%s reports wait: %s", len(rows), error)
        return rows
    log.info("reported %s: %s new", len(answer.results), answer.accepted)
    return rows[TOGETHER:]
