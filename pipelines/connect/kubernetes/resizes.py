"""Running pods as jobs of the service with a sample of their use, and the patch that resizes one to its reservation.

Only requests of CPU and memory of the container with GPUs are resized, between the LimitRange and what was requested
first. Pods of QoS class Guaranteed are left alone. Pure functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Final

from pydantic import ValidationError

from modelserve.contract.reservations import Reserved, RunningJob, Statistics
from pipelines.connect.kubernetes.config import KubernetesConfig
from pipelines.connect.kubernetes.names import names_of
from pipelines.connect.kubernetes.patches import GIB
from pipelines.connect.kubernetes.pod_templates import Json, Template, items, mapping, text
from pipelines.connect.kubernetes.pods import LeftAlone, Slot, slot_of
from pipelines.connect.kubernetes.quantities import BadQuantity, cores_text, memory_text, quantity
from pipelines.connect.kubernetes.reports import annotated, raw_container
from scheduler_core.reserve import ReservePolicy

__all__ = ["Resizes"]

LEAST_CHANGE: Final = Fraction(1, 20)
"""Relative decrease below which a pod is not resized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizes:
    """What pods are to the service, and what its reservations change of them, by the configuration of a cluster."""

    config: KubernetesConfig

    def job(self, pod: Json, usage: Json, now: datetime, known: Statistics | None) -> RunningJob | None:
        """Return a running pod as a job with one sample of its use; None if it is not to be resized.

        `usage` is the pod's entry of the metrics API, `known` are the statistics of its earlier samples.
        """
        found = _slot(pod, self.config)
        start = _time(mapping(pod.get("status")).get("startTime"))
        if found is None or start is None or mapping(pod.get("status")).get("phase") != "Running":
            return None
        metadata, container = mapping(pod.get("metadata")), found.container
        names = names_of(
            self.config, pod, raw_container(pod, container.name), namespace=text(metadata.get("namespace")) or "",
            username=None, role=None,
        )  # fmt: skip
        age_s = max((now - start).total_seconds(), 0.0)
        row = {
            **{name: value for name, value in names.items() if value is not None},
            "job_id": metadata.get("uid"),
            "request": {**_first_request(pod, found), "gpus": found.gpus},
            "age_s": age_s,
            "samples": _sample(usage, container.name, age_s),
            "statistics": known,
            "held": any(
                mapping(each).get("restartCount") for each in items(mapping(pod.get("status")).get("containerStatuses"))
            ),
        }
        try:
            return RunningJob.model_validate(row)
        except ValidationError:
            return None

    def requests(self, pod: Json, answer: Reserved) -> dict[str, str] | None:
        """Return the requests that a pod's container should get, None if they are to stay.

        A reservation without measurements gives the first request back.
        """
        found = _slot(pod, self.config)
        if found is None:
            return None
        first = _first_request(pod, found)
        cpu, memory = first.get("cpu_cores"), first.get("mem_gib")
        if answer.reason == "measured":
            spread = (answer.spread.cpu_cores or 0.0) * ReservePolicy().z
            cpu = _least(cpu, answer.mean.cpu_cores, spread)
            memory = _least(memory, answer.memory.mem_gib, 0.0)
        texts = {}
        for name, amount, unit, write in (("cpu", cpu, 1, cores_text), ("memory", memory, GIB, memory_text)):
            given = found.container.requests.get(name)
            if amount is None or not given:
                continue
            least = max(Fraction(str(amount)) * unit, found.least[name])  # type: ignore[index]  # cpu and memory
            wanted = quantity(write(least))
            limit = found.container.limits.get(name, wanted)
            if wanted <= limit and (wanted > given or wanted < given * (1 - LEAST_CHANGE)):
                texts[name] = write(least)
        return texts or None

    def container(self, pod: Json) -> str:
        """Return the name of the container that is resized; "" if there is none."""
        found = _slot(pod, self.config)
        return "" if found is None else found.container.name


def _least(first: float | None, reserved: float | None, spread: float) -> float | None:
    return first if first is None or reserved is None else min(first, reserved + spread)


def _slot(pod: Json, config: KubernetesConfig) -> Slot | None:
    namespace = text(mapping(pod.get("metadata")).get("namespace")) or ""
    try:
        found = slot_of(Template(path="", body=pod), namespace, config)
    except LeftAlone:
        return None
    return None if found.guaranteed else found


def _first_request(pod: Json, found: Slot) -> dict[str, float]:
    """Return CPU cores and GiB that the pod requested before it was shrunk."""
    written = annotated(mapping(pod.get("metadata")))
    asked = found.container.requests
    now = {"cpu_cores": float(asked.get("cpu", 0)), "mem_gib": float(asked.get("memory", 0)) / GIB}
    return {name: max(float(written.get(name) or 0.0), value) for name, value in now.items() if value}


def _sample(usage: Json, name: str, age_s: float) -> Mapping[str, object] | None:
    """Return a container's use in the metrics API as one sample; None without it."""
    used = next((mapping(each) for each in items(usage.get("containers")) if mapping(each).get("name") == name), {})
    amounts = mapping(used.get("usage"))
    try:
        cpu, memory = (float(quantity(amounts[key])) for key in ("cpu", "memory"))
    except (BadQuantity, KeyError):
        return None
    return {"at_s": [age_s], "cpu_cores": [cpu], "mem_gib": [memory / GIB]}


def _time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo else None
