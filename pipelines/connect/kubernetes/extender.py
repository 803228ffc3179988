"""The scheduler extender: filters and scores the nodes that a scheduler considers for a pod.

After a deadline it returns all nodes with equal scores, and the scheduler decides by its own scores. An unknown node
passes the filter; if no node would pass, all pass.
"""

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final, TypeVar

import numpy as np
from pydantic_core import from_json
from starlette.applications import Starlette

from pipelines.connect.kubernetes.objects import MIB, BadQuantity, Json, items, mapping, quantity, text
from pipelines.connect.kubernetes.pods import containers_of
from pipelines.connect.kubernetes.serving import app_of
from scheduler_core.cluster import Demand
from scheduler_core.fragmentation import node_ranks
from scheduler_core.target import target_of
from scheduler_core.types import IntArray

__all__ = ["open_extender"]

DEADLINE_S: Final = 0.14
"""Seconds after which the extender gives up; its answer then arrives within 150 ms, and the scheduler waits 200 ms."""

MOST_SCORE: Final = 10
TARGET_POPULARITY: Final = 0.95
"""Share of the pods whose shapes count as the target workload, as in the published FGD."""

ENDED: Final = ("Succeeded", "Failed")

Units = tuple[int, int, int]
"""Milli-cores, MiB and milli-GPUs."""

Found = TypeVar("Found")
log = logging.getLogger("taut.kubernetes")


class NodeView:
    """The free amounts of each node, kept up to date with events of the API server; safe to use from several threads.

    A node has its allocatable amounts, a pod takes its requests; `gpus` holds the extended resources that are GPUs.
    """

    def __init__(self, gpus: Sequence[str]) -> None:
        self._gpus = tuple(gpus)
        self._lock = threading.Lock()
        self._nodes: dict[str, Units] = {}
        self._pods: dict[str, tuple[str, Units]] = {}
        self._used: dict[str, IntArray] = {}

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
        amounts = mapping(mapping(found.get("status")).get("allocatable"))
        self._nodes.pop(name, None)
        if change != "DELETED":
            self._nodes[name] = _units_of({key: quantity(value) for key, value in amounts.items()}, self._gpus)

    def _apply_pod(self, change: str, uid: str, found: Json) -> None:
        if (before := self._pods.pop(uid, None)) is not None:
            self._used[before[0]] -= np.array(before[1])
        host = text(mapping(found.get("spec")).get("nodeName"))
        if change != "DELETED" and host is not None and mapping(found.get("status")).get("phase") not in ENDED:
            units = self.demand(found).units
            self._pods[uid] = host, units
            self._used[host] = self._used.get(host, np.zeros(3, dtype=np.int64)) + np.array(units)

    def room(self, names: Iterable[str]) -> tuple[list[str], IntArray, IntArray]:
        """Return the n known nodes, in order, with their free units and their capacity (each of shape (n, 3))."""
        with self._lock:
            known = [name for name in names if name in self._nodes]
            capacity = np.array([self._nodes[name] for name in known], dtype=np.int64).reshape(-1, 3)
            used = np.array([self._used.get(name, (0, 0, 0)) for name in known], dtype=np.int64).reshape(-1, 3)
        return known, np.maximum(capacity - used, 0), capacity

    def demands(self) -> list[Demand]:
        """Return the distinct demands of the pods on all nodes, with their numbers as instances."""
        with self._lock:
            counts = Counter(units for _, units in self._pods.values())
        return [Demand(units=units, instances=count) for units, count in counts.items()]

    def demand(self, pod: Json) -> Demand:
        """Return what a pod takes of a node: the sum over its containers, or its largest init container if larger.

        Init containers that keep running beside the others add to both.
        """
        spec = mapping(pod.get("spec"))
        beside = [mapping(each).get("restartPolicy") == "Always" for each in items(spec.get("initContainers"))]
        first = [each.requests for each in containers_of(spec, "initContainers")]
        together = [each.requests for each in containers_of(spec, "containers")]
        together += [each for each, stays in zip(first, beside, strict=True) if stays]
        total = _folded(
            [_folded(together, sum), *(each for each, on in zip(first, beside, strict=True) if not on)], max
        )
        own = mapping(mapping(spec.get("resources")).get("requests"))
        total |= {name: quantity(value) for name, value in own.items()}
        overhead = {name: quantity(value) for name, value in mapping(spec.get("overhead")).items()}
        return Demand(units=_units_of(_folded([total, overhead], sum), self._gpus), instances=1)


def _folded(
    amounts: Sequence[Mapping[str, Fraction]], fold: Callable[[list[Fraction]], Fraction | int]
) -> dict[str, Fraction]:
    """Return the sum or the largest of the amounts, by name."""
    return {
        name: Fraction(fold([each.get(name, Fraction(0)) for each in amounts])) for each in amounts for name in each
    }


def _units_of(amounts: Mapping[str, Fraction], gpus: Sequence[str]) -> Units:
    cores, memory = amounts.get("cpu", Fraction(0)), amounts.get("memory", Fraction(0))
    return int(cores * 1000), int(memory / MIB), int(sum(amounts.get(name, Fraction(0)) for name in gpus)) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The arguments of a call: the pod, the names of the nodes, and the nodes themselves if they were sent."""

    pod: Json
    names: Sequence[str]
    nodes: Json | None

    @classmethod
    def read(cls, body: bytes) -> "Asked":
        """Read the arguments; raise `ValueError` if they are no JSON object with a pod and nodes."""
        found = mapping(from_json(body))
        nodes = found.get("Nodes")
        listed = nodes if isinstance(nodes, dict) else None
        given = items(found.get("NodeNames"))
        names = [_name(each) for each in items((listed or {}).get("items"))]
        pod = mapping(found.get("Pod"))
        if not pod or (listed is None and "NodeNames" not in found):
            raise ValueError("found no Pod with Nodes or NodeNames")
        return cls(pod=pod, names=[name for each in given or names if (name := text(each))], nodes=listed)


def _name(node: object) -> str:
    return text(mapping(mapping(node).get("metadata")).get("name")) or ""


def failed(view: NodeView, asked: Asked) -> dict[str, str]:
    """Return the nodes without room for a pod, with the reason; none if no other node is left."""
    names, free, _ = view.room(asked.names)
    fits = np.asarray((free >= np.array(view.demand(asked.pod).units)).all(axis=1))
    lacking = [name for name, fit in zip(names, fits.tolist(), strict=True) if not fit]
    return dict.fromkeys(
        lacking if len(lacking) < len(asked.names) else (), "taut: not enough free CPU, memory or GPUs"
    )


def scores(view: NodeView, asked: Asked) -> dict[str, int]:
    """Return a score from 0 to 10 for every node; 0 for nodes that are not known or lack room."""
    demand, (names, free, capacity) = view.demand(asked.pod), view.room(asked.names)
    left = free - np.array(demand.units)
    fits = np.asarray((left >= 0).all(axis=1))
    found = dict.fromkeys(asked.names, 0)
    if fits.any():
        left_over = (left[fits] / np.maximum(capacity[fits].max(axis=0), 1)).sum(axis=1)
        target = target_of([demand, *view.demands()], TARGET_POPULARITY)
        ranks = node_ranks(demand, free[fits], left_over, target)
        kept = (name for name, fit in zip(names, fits.tolist(), strict=True) if fit)
        found |= {name: int(rank * MOST_SCORE) for name, rank in zip(kept, ranks.tolist(), strict=True)}
    return found


def open_extender(gpus: Sequence[str], changes: Sequence[Iterable[tuple[str, Json]]]) -> Starlette:
    """Return the extender's application, whose view follows streams of changes of nodes and pods, each in a thread."""
    view = NodeView(gpus)

    def follow(stream: Iterable[tuple[str, Json]]) -> None:
        for change, found in stream:
            try:
                view.apply(change, found)
            except BadQuantity as error:
                log.warning("a node or pod does not count: %s", error)
            except Exception:  # any error: one object must not stop the stream
                log.exception("a change of a node or pod was not understood")

    for each in changes:
        threading.Thread(target=follow, args=(each,), daemon=True).start()
    return extender_app(view)


def extender_app(view: NodeView) -> Starlette:
    """Return the application: `/kubernetes/filter`, `/kubernetes/prioritize` and `/healthz`."""
    return app_of(
        {
            "/kubernetes/filter": partial(_answered, decide=partial(failed, view), write=_filtered),
            "/kubernetes/prioritize": partial(_answered, decide=partial(scores, view), write=_prioritized),
        }
    )


async def _answered(
    body: bytes, decide: Callable[[Asked], Mapping[str, Found]], write: Callable[[Asked, Mapping[str, Found]], object]
) -> bytes:
    """Decide in a thread within the deadline, and return the decision; a late or failed one is empty."""
    try:
        asked = Asked.read(body)
    except ValueError as error:
        raise ValueError(f"not the arguments of an extender: {str(error)[:80]}") from error
    found: Mapping[str, Found] = {}
    try:
        found = await asyncio.wait_for(asyncio.to_thread(decide, asked), DEADLINE_S)
    except TimeoutError:
        log.warning("gave up after %g s with %s nodes", DEADLINE_S, len(asked.names))
    except Exception:  # any error: the scheduler must go on
        log.exception("a call failed")
    return json.dumps(write(asked, found)).encode()


def _filtered(asked: Asked, failed: Mapping[str, str]) -> object:
    answer: dict[str, object] = {"FailedNodes": failed, "Error": ""}
    if asked.nodes is None:
        return answer | {"NodeNames": [name for name in asked.names if name not in failed], "Nodes": None}
    kept = [each for each in items(asked.nodes.get("items")) if _name(each) not in failed]
    return answer | {"Nodes": {**asked.nodes, "items": kept}, "NodeNames": None}


def _prioritized(asked: Asked, scores: Mapping[str, int]) -> object:
    return [{"Host": name, "Score": scores.get(name, 0)} for name in asked.names]
