"""The scheduler extender: filters and scores the nodes that a scheduler considers for a pod.

It gives up after a deadline, with all nodes and equal scores; the scheduler then goes on by its own scores. A node that
is not known passes, and if no node would be left, all pass.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np
from pydantic_core import from_json
from starlette.applications import Starlette

from pipelines.connect.kubernetes.nodes import NodeView
from pipelines.connect.kubernetes.objects import Json, items, mapping, text
from pipelines.connect.kubernetes.serving import app_of
from scheduler_core.cluster import Demand
from scheduler_core.node_scores import node_ranks
from scheduler_core.target import target_of
from scheduler_core.types import BoolArray

__all__ = ["open_extender"]

DEADLINE_S: Final = 0.14
"""Seconds after which it gives up, so that its answer arrives within 150 ms; the scheduler waits for 200 ms."""

MOST_SCORE: Final = 10
TARGET_POPULARITY: Final = 0.95
"""Share of the pods whose shapes count as the target workload, as in the published FGD."""

Found = TypeVar("Found")
log = logging.getLogger("taut.kubernetes")


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


class Extender:
    """Filters and scores nodes by the free room in a view of the cluster."""

    def __init__(self, view: NodeView) -> None:
        self._view = view

    def failed(self, asked: Asked) -> dict[str, str]:
        """Return the nodes without room for a pod, with the reason; none if no other node is left."""
        names = self._view.known(asked.names)
        fits = self._fits(self._view.demand(asked.pod), names)
        found = {
            name: "taut: not enough free CPU, memory or GPUs" for name, fit in zip(names, fits, strict=True) if not fit
        }
        return found if len(found) < len(asked.names) else {}

    def scores(self, asked: Asked) -> dict[str, int]:
        """Return a score from 0 to 10 for every node; 0 for nodes that are not known or lack room."""
        demand, known = self._view.demand(asked.pod), self._view.known(asked.names)
        fits = self._fits(demand, known)
        names = [name for name, fit in zip(known, fits, strict=True) if fit]
        scores = dict.fromkeys(asked.names, 0)
        if names:
            found = self._view.free(names)
            left = found.free - np.array(demand.units)
            left_over = (left / np.maximum(found.capacity.max(axis=0), 1)).sum(axis=1)
            target = target_of([demand, *self._view.demands()], TARGET_POPULARITY)
            ranks = node_ranks(demand, found.free, left_over, target)
            scores |= {name: int(rank * MOST_SCORE) for name, rank in zip(names, ranks.tolist(), strict=True)}
        return scores

    def _fits(self, demand: Demand, names: Sequence[str]) -> BoolArray:
        free = self._view.free(names).free
        return np.asarray((free >= np.array(demand.units)).all(axis=1), dtype=np.bool_)


def open_extender(gpus: Sequence[str], changes: Sequence[Iterable[tuple[str, Json]]]) -> Starlette:
    """Return the extender's application, whose view follows streams of changes of nodes and pods, each in a thread."""
    view = NodeView(gpus)

    def follow(stream: Iterable[tuple[str, Json]]) -> None:
        for change, found in stream:
            try:
                view.apply(change, found)
            except Exception:  # any error: one object must not stop the stream
                log.exception("a change of a node or pod was not understood")

    for each in changes:
        threading.Thread(target=follow, args=(each,), daemon=True).start()
    return extender_app(view)


def extender_app(view: NodeView) -> Starlette:
    """Return the application: `/kubernetes/filter`, `/kubernetes/prioritize` and `/healthz`."""
    extender = Extender(view)

    return app_of(
        {
            "/kubernetes/filter": partial(_answered, decide=extender.failed, write=_filtered),
            "/kubernetes/prioritize": partial(_answered, decide=extender.scores, write=_prioritized),
        }
    )


async def _answered(
    body: bytes, decide: Callable[[Asked], Mapping[str, Found]], write: Callable[[Asked, Mapping[str, Found]], object]
) -> bytes:
    """Decide in a thread within the deadline, and write the decision, or an empty one if it is late or fails."""
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
        log.exception("%s failed", decide.__name__)
    return json.dumps(write(asked, found)).encode()


def _filtered(asked: Asked, failed: Mapping[str, str]) -> object:
    answer: dict[str, object] = {"FailedNodes": failed, "Error": ""}
    if asked.nodes is None:
        return answer | {"NodeNames": [name for name in asked.names if name not in failed], "Nodes": None}
    kept = [each for each in items(asked.nodes.get("items")) if _name(each) not in failed]
    return answer | {"Nodes": {**asked.nodes, "items": kept}, "NodeNames": None}


def _prioritized(asked: Asked, scores: Mapping[str, int]) -> object:
    return [{"Host": name, "Score": scores.get(name, 0)} for name in asked.names]
