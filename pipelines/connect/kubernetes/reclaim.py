"""Resize running pods to their use: one round measures all pods, asks the service, and applies its reservations.

Only CPU and memory of the container with GPUs change, from the LimitRange up to the first request. Guaranteed pods
stay.
"""

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from pydantic import ValidationError

from modelserve.client import Client
from modelserve.contract.reservations import Reserved, RunningJob, Statistics
from pipelines.connect.kubernetes.api import LIMIT_RANGES, ApiServer
from pipelines.connect.kubernetes.config import KubernetesConfig, names_of
from pipelines.connect.kubernetes.objects import (
    GIB,
    BadQuantity,
    Json,
    Template,
    container_named,
    cores_text,
    items,
    mapping,
    memory_text,
    quantity,
    text,
    time_of,
)
from pipelines.connect.kubernetes.pods import Before, LeftAlone, Slot, slot_of
from pipelines.connect.ledger import Ledger
from pipelines.errors import ConnectError
from scheduler_core.reserve import ReservePolicy

__all__ = ["Reclaimer"]

PODS: Final = "/api/v1/pods"
USAGE: Final = "/apis/metrics.k8s.io/v1beta1/pods"

Object = dict[str, Any]  # Any: JSON of Kubernetes
LEAST_CHANGE: Final = Fraction(1, 20)
"""Relative decrease below which a pod is not resized."""


def running_job(
    pod: Json, slot: Slot, usage: Json, now: datetime, known: Statistics | None, config: KubernetesConfig
) -> RunningJob | None:
    """Return a running pod as a job with one sample of its use; None if it does not run.

    `usage` is the pod's entry of the metrics API, `known` are the statistics of its earlier samples.
    """
    metadata, status = mapping(pod.get("metadata")), mapping(pod.get("status"))
    start = time_of(status.get("startTime"))
    if start is None or status.get("phase") != "Running":
        return None
    age_s = max((now - start).total_seconds(), 0.0)
    row = {
        **names_of(config, pod, container_named(pod, slot.container.name)),
        "job_id": metadata.get("uid"),
        "request": {**_first_request(pod, slot), "gpus": slot.gpus},
        "age_s": age_s,
        "samples": _sample(usage, slot.container.name, age_s),
        "statistics": known,
        "held": any(mapping(each).get("restartCount") for each in items(status.get("containerStatuses"))),
    }
    try:
        return RunningJob.model_validate(row)
    except ValidationError:
        return None


def requests_of(pod: Json, slot: Slot, answer: Reserved) -> dict[str, str]:
    """Return the CPU and memory requests that a reservation changes; without measurements, the first requests."""
    first = _first_request(pod, slot)
    cpu, memory = first.get("cpu_cores"), first.get("mem_gib")
    if answer.reason == "measured":
        spread = (answer.spread.cpu_cores or 0.0) * ReservePolicy().z
        cpu = _least(cpu, answer.mean.cpu_cores, spread)
        memory = _least(memory, answer.memory.mem_gib, 0.0)
    texts = {}
    for name, amount, unit, write in (("cpu", cpu, 1, cores_text), ("memory", memory, GIB, memory_text)):
        given = slot.container.requests.get(name)
        if amount is None or not given:
            continue
        least = max(Fraction(str(amount)) * unit, slot.least[name])  # type: ignore[index]  # cpu and memory
        wanted = quantity(write(least))
        limit = slot.container.limits.get(name, wanted)
        if wanted <= limit and (wanted > given or wanted < given * (1 - LEAST_CHANGE)):
            texts[name] = write(least)
    return texts


def _least(first: float | None, reserved: float | None, spread: float) -> float | None:
    return first if first is None or reserved is None else min(first, reserved + spread)


def resized_slot(pod: Json, config: KubernetesConfig) -> Slot | None:
    """Return the container of a pod that may be resized; None if there is none."""
    try:
        found = slot_of(Template(path="", body=pod), text(mapping(pod.get("metadata")).get("namespace")) or "", config)
    except LeftAlone:
        return None
    return None if found.guaranteed else found


def _first_request(pod: Json, found: Slot) -> dict[str, float]:
    """Return the CPU cores and the memory in GiB that the pod requested before it was shrunk."""
    before, asked = Before.of(mapping(pod.get("metadata"))), found.container.requests
    cores = max(before.cpu_cores or 0.0, float(asked.get("cpu", 0)))
    gib = max(before.mem_gib or 0.0, float(asked.get("memory", 0)) / GIB)
    known = {"cpu_cores": cores if "cpu" in asked else 0.0, "mem_gib": gib if "memory" in asked else 0.0}
    return {name: value for name, value in known.items() if value}


def _sample(usage: Json, name: str, age_s: float) -> Mapping[str, object] | None:
    """Return a container's use in the metrics API as one sample; None without it."""
    used = next((mapping(each) for each in items(usage.get("containers")) if mapping(each).get("name") == name), {})
    amounts = mapping(used.get("usage"))
    try:
        cpu, memory = (float(quantity(amounts[key])) for key in ("cpu", "memory"))
    except (BadQuantity, KeyError):
        return None
    return {"at_s": [age_s], "cpu_cores": [cpu], "mem_gib": [memory / GIB]}


class Reclaimer:
    """Measures and resizes the pods of a cluster, round by round; it keeps the statistics of each pod's samples.

    Pods are resized if `enforce` is true and the service's mode is `enforce`; otherwise resizes are only listed.
    """

    def __init__(self, server: ApiServer, client: Client, config: KubernetesConfig, *, enforce: bool) -> None:
        self._server, self._client, self._config, self._enforce = server, client, config, enforce
        self._ledger = Ledger()

    def round(self, now: datetime) -> list[dict[str, object]]:
        """Measure all pods once, and return a row for each pod that is, or would be, resized."""
        config = self._config.with_limit_ranges(self._server.listed(LIMIT_RANGES)[0])
        pods, usage = self._server.listed(PODS)[0], {_name(each): each for each in self._server.listed(USAGE)[0]}
        asked = []
        for pod in pods:
            slot = resized_slot(pod, config)
            if slot is not None:
                known = self._ledger.known(pod["metadata"]["uid"]).statistics
                job = running_job(pod, slot, usage.get(_name(pod), {}), now, known, self._config)
                if job is not None:
                    asked.append((pod, slot, job))
        answers = self._ledger.reserved(self._client, [job for _, _, job in asked])
        return [
            self._resized(pod, slot, wanted, answer)
            for (pod, slot, _), answer in zip(asked, answers, strict=True)
            if (wanted := requests_of(pod, slot, answer))
        ]

    def _resized(self, pod: Object, slot: Slot, wanted: Mapping[str, str], answer: Reserved) -> dict[str, object]:
        namespace, name = _name(pod)
        row = {"namespace": namespace, "pod": name, "cpu": wanted.get("cpu"), "memory": wanted.get("memory")}
        if not self._enforce or answer.mode != "enforce":
            return row | {"reason": answer.reason, "done": False, "note": f"service {answer.mode}"}
        try:
            self._server.resize(namespace, name, slot.container.name, wanted)
        except ConnectError as error:
            return row | {"reason": answer.reason, "done": False, "note": str(error)}
        return row | {"reason": answer.reason, "done": True, "note": None}


def _name(found: Mapping[str, Any]) -> tuple[str, str]:  # Any: JSON of Kubernetes
    metadata = found.get("metadata") or {}
    return str(metadata.get("namespace")), str(metadata.get("name"))
