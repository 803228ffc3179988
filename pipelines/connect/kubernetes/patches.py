"""The JSON patch (RFC 6902) that shrinks containers, and the texts that say what it changes.

A patch lowers requests, never raises them, and never lowers a limit unless the pod stays Guaranteed by it. Pure
functions.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pipelines.connect.kubernetes.pod_templates import mapping, pointer
from pipelines.connect.kubernetes.pods import COMPUTE, SHRUNK, Compute, Slot
from pipelines.connect.kubernetes.quantities import cores_text, memory_text, quantity
from scheduler_core.types import Request

__all__ = ["GIB", "Shrunk", "patch_of", "shrunk", "warning_of"]

GIB: Final = 2**30
LEAST: Final[Mapping[Compute, Fraction]] = {"cpu": Fraction(1, 1000), "memory": Fraction(2**20)}
WARNING_LENGTH: Final = 200

Operation = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """A slot, the quantities that its container's resources get (at least one), and the ids of its job and answer."""

    slot: Slot
    amounts: Mapping[Compute, str]
    job_id: str
    answer_id: str


def shrunk(slot: Slot, target: Request, *, job_id: str, answer_id: str) -> Shrunk | None:
    """Return the requests of a slot that become smaller under a target; None if none does."""
    amounts: dict[Compute, str] = {}
    for resource, value in zip(COMPUTE, (target.cpu_cores, target.mem_gib), strict=True):
        asked = slot.container.requests.get(resource, Fraction(0))
        if asked <= 0 or not math.isfinite(value):
            continue
        # The text of a float is the decimal that was sent; its binary value may be a little more, and be rounded up.
        size = Fraction(str(value)) * (GIB if resource == "memory" else 1)
        least = max(size, slot.least[resource], LEAST[resource])
        if resource == "cpu" and slot.guaranteed and asked.denominator == 1:
            least = Fraction(math.ceil(least))  # whole cores of a Guaranteed pod may be pinned
        text = memory_text(least) if resource == "memory" else cores_text(least)
        if quantity(text) < asked:
            amounts[resource] = text
    return Shrunk(slot=slot, amounts=amounts, job_id=job_id, answer_id=answer_id) if amounts else None


def patch_of(changes: Sequence[Shrunk]) -> list[Operation]:
    """Return the operations that shrink containers and annotate their pods."""
    return [operation for each in changes for operation in (*_resources(each), *_annotation(each))]


def _resources(change: Shrunk) -> list[Operation]:
    slot = change.slot
    path = slot.template.path + slot.container.path + pointer("resources")
    done: list[Operation] = [] if slot.container.written else [_add(path + pointer("requests"), {})]
    for resource, amount in change.amounts.items():
        done.append(_add(path + pointer("requests", resource), amount))
        if slot.guaranteed:
            done.append(_add(path + pointer("limits", resource), amount))
    return done


def _annotation(change: Shrunk) -> list[Operation]:
    slot = change.slot
    path, body = slot.template.path, slot.template.body
    metadata = body.get("metadata")
    done: list[Operation] = [] if isinstance(metadata, dict) else [_add(path + pointer("metadata"), {})]
    if not isinstance(mapping(metadata).get("annotations"), dict):
        done.append(_add(path + pointer("metadata", "annotations"), {}))
    said = {
        "answer_id": change.answer_id,
        "job_id": change.job_id,
        "container": slot.container.name,
        "instances": slot.template.instances,
        "cpu_cores": float(slot.container.requests.get("cpu", 0)),
        "mem_gib": float(slot.container.requests.get("memory", 0)) / GIB,
    }
    return [*done, _add(path + pointer("metadata", "annotations", SHRUNK), json.dumps(said))]


def _add(path: str, value: object) -> Operation:
    # `add` replaces a member that exists, so it applies in either case; a patch that does not apply refuses the pod.
    return {"op": "add", "path": path, "value": value}


def warning_of(change: Shrunk, *, done: bool) -> str:
    """Return one line on what a change does, or would do."""
    slot = change.slot
    parts = []
    for resource, amount in change.amounts.items():
        asked = slot.container.requests[resource]
        before = memory_text(asked) if resource == "memory" else cores_text(asked)
        parts.append(f"{resource} {before} -> {amount}")
    name = "".join(c if c.isprintable() and c.isascii() else "?" for c in slot.container.name[:63])
    return f"taut {'shrank' if done else 'would shrink'} container {name}: {', '.join(parts)}"[:WARNING_LENGTH]
