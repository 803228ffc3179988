"""What is free on each node, kept up to date with events of the API server.

A node is known by its allocatable amounts, a pod by its requests. Safe from several threads.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from pipelines.connect.kubernetes.objects import MIB, BadQuantity, Json, items, mapping, quantity, text
from pipelines.connect.kubernetes.pods import Container, containers_of
from scheduler_core.cluster import Demand
from scheduler_core.types import IntArray

ENDED: Final = ("Succeeded", "Failed")

Units = tuple[int, int, int]
"""Milli-cores, MiB and milli-GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Free milli-cores, MiB and milli-GPUs of n nodes (n, 3), and their capacity (n, 3)."""

    free: IntArray
    capacity: IntArray


class NodeView:
    """The free room of a cluster's nodes; `gpus` holds the extended resources that are GPUs."""

    def __init__(self, gpus: Sequence[str]) -> None:
        self._gpus = tuple(gpus)
        self._lock = threading.Lock()
        self._nodes: dict[str, Units] = {}
        self._pods: dict[str, tuple[str, Units]] = {}
        self._used: dict[str, list[int]] = {}

    def apply(self, change: str, found: Json) -> None:
        """Apply an event of a watch on nodes or pods: its type (ADDED, MODIFIED, DELETED) and its object.

        RESET forgets all objects of the kind.
        """
        metadata, node = mapping(found.get("metadata")), found.get("kind") == "Node"
        with self._lock:
            if change == "RESET":
                for each in (self._nodes,) if node else (self._pods, self._used):
                    each.clear()
            elif node:
                self._apply_node(change, text(metadata.get("name")) or "", found)
            else:
                self._apply_pod(change, text(metadata.get("uid")) or "", found)

    def _apply_node(self, change: str, name: str, found: Json) -> None:
        try:
            units = self._units(mapping(mapping(found.get("status")).get("allocatable")))
        except BadQuantity:
            change = "DELETED"
        if change == "DELETED":
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = units

    def _apply_pod(self, change: str, uid: str, found: Json) -> None:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._count(*before, sign=-1)
        host = text(mapping(found.get("spec")).get("nodeName"))
        over = change == "DELETED" or mapping(found.get("status")).get("phase") in ENDED
        if over or host is None:
            return
        try:
            units = demand_of_pod(found, self._gpus).units
        except BadQuantity:
            return
        self._pods[uid] = host, units
        self._count(host, units, sign=1)

    def _count(self, host: str, units: Units, *, sign: int) -> None:
        used = self._used.setdefault(host, [0, 0, 0])
        for at, amount in enumerate(units):
            used[at] += sign * amount

    def _units(self, amounts: Json) -> Units:
        return _units_of({name: quantity(value) for name, value in amounts.items()}, self._gpus)

    def known(self, names: Sequence[str]) -> list[str]:
        """Return the names of the nodes that are known, in order."""
        return [name for name in names if name in self._nodes]

    def free(self, names: Sequence[str]) -> Free:
        """Return the free room of known nodes."""
        with self._lock:
            found = [self._nodes[name] for name in names]
            used = [self._used.get(name, (0, 0, 0)) for name in names]
        capacity = np.array(found, dtype=np.int64).reshape(-1, 3)
        free = np.maximum(capacity - np.array(used, dtype=np.int64).reshape(-1, 3), 0)
        return Free(free=free, capacity=capacity)

    def demands(self) -> list[Demand]:
        """Return the distinct demands of the pods on all nodes, with their numbers as instances."""
        with self._lock:
            counts = Counter(units for _, units in self._pods.values())
        return [Demand(units=units, instances=count) for units, count in counts.items()]

    def demand(self, pod: Json) -> Demand:
        """Return the demand of a pod."""
        return demand_of_pod(pod, self._gpus)


def demand_of_pod(pod: Json, gpus: Sequence[str]) -> Demand:
    """Return what a pod takes of a node: the sum over its containers, or its largest init container if that is more."""
    spec = mapping(pod.get("spec"))
    asked = list(items(spec.get("initContainers")))
    beside = [i for i, each in enumerate(asked) if mapping(each).get("restartPolicy") == "Always"]
    first = list(containers_of(spec, "initContainers"))
    together = _sum([*containers_of(spec, "containers"), *(first[i] for i in beside)])
    alone = [each.requests for i, each in enumerate(first) if i not in beside]
    names = {name for each in (together, *alone) for name in each}
    total = {name: max(each.get(name, Fraction(0)) for each in (together, *alone)) for name in names}
    own = mapping(mapping(spec.get("resources")).get("requests"))
    total |= {name: quantity(value) for name, value in own.items()}
    for name, value in mapping(spec.get("overhead")).items():
        total[name] = total.get(name, Fraction(0)) + quantity(value)
    return Demand(units=_units_of(total, gpus), instances=1)


def _sum(containers: Sequence[Container]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for each in containers:
        for name, value in each.requests.items():
            total[name] = total.get(name, Fraction(0)) + value
    return total


def _units_of(amounts: Mapping[str, Fraction], gpus: Sequence[str]) -> Units:
    cores, memory = amounts.get("cpu", Fraction(0)), amounts.get("memory", Fraction(0))
    whole = sum((amounts.get(name, Fraction(0)) for name in gpus), Fraction(0))
    return int(cores * 1000), int(memory / MIB), int(whole) * 1000
