"""The report of an ended pod to the service: its times, its outcome, what it requested and what it got."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from modelserve.contract.feedback import FeedbackRow
from pipelines.connect.kubernetes.config import KubernetesConfig
from pipelines.connect.kubernetes.names import names_of
from pipelines.connect.kubernetes.patches import GIB
from pipelines.connect.kubernetes.pod_templates import Json, items, mapping, text
from pipelines.connect.kubernetes.pods import SHRUNK, Container, LeftAlone, main_container

__all__ = ["annotated", "raw_container", "report_of"]

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

    A pod killed for memory that goes on in a new container is reported at once, since the first report of a job counts.
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
    shrunk = annotated(metadata)
    given = {"cpu_cores": _amount(container, "cpu", 1), "mem_gib": _amount(container, "memory", GIB), "gpus": gpus}
    requested = {name: value or given[name] for name, value in _requested(shrunk).items()}
    names = names_of(
        config,
        pod,
        raw_container(pod, container.name),
        namespace=text(metadata.get("namespace")) or "",
        username=None,
        role=None,
    )
    row = {
        **{name: value for name, value in names.items() if value is not None},
        "job_id": text(shrunk.get("job_id")) or metadata.get("uid"),
        "answer_id": text(shrunk.get("answer_id")),
        "instances": shrunk.get("instances", 1),
        "submit_ts": metadata.get("creationTimestamp"),
        "start_ts": end.get("startedAt") or status.get("startTime"),
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
    """Return how the runs of a container ended, as far as the status holds them."""
    found = []
    for each in map(mapping, items(status.get("containerStatuses"))):
        if each.get("name") == name:
            for state in ("lastState", "state"):
                ended = mapping(mapping(each.get(state)).get("terminated"))
                if _is_time(ended.get("finishedAt")):
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


def annotated(metadata: Json) -> dict[str, Any]:  # Any: JSON that the webhook wrote
    """Return what the webhook wrote on a pod that it shrank; empty for other pods."""
    try:
        found = json.loads(str(mapping(metadata.get("annotations")).get(SHRUNK, "{}")))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _requested(shrunk: Mapping[str, Any]) -> dict[str, float]:  # Any: JSON that the webhook wrote
    return {name: shrunk[name] for name in ("cpu_cores", "mem_gib") if isinstance(shrunk.get(name), int | float)}


def _amount(container: Container, resource: str, unit: int) -> float | None:
    found = container.requests.get(resource)
    return None if found is None else float(found) / unit


def raw_container(pod: Json, name: str) -> Json:
    """Return a container of a pod by its name; empty if there is none."""
    containers = map(mapping, items(mapping(pod.get("spec")).get("containers")))
    return next((each for each in containers if each.get("name") == name), {})


def _is_time(value: object) -> bool:
    try:
        datetime.fromisoformat(str(value))
    except ValueError:
        return False
    return True
