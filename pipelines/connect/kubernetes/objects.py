"""Kubernetes objects as JSON: their pod templates, and quantities such as `500m`, `1.5Gi` and `2e3`.

The templates of a running job are left out; the webhook sees its pods one by one.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Final

Json = Mapping[str, object]

MIB: Final = 2**20
GIB: Final = 2**30

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_QUANTITY: Final = re.compile(
    r"\+?(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?", re.A
)


class BadQuantity(ValueError):
    """A value that is not a quantity of at least 0."""


def quantity(value: object) -> Fraction:
    """Return the exact number of a quantity, in cores, bytes or units; numbers of JSON are quantities, too.

    >>> [float(quantity(text)) for text in ("500m", "1.5", "2e3", "4Ki", 3)]
    [0.5, 1.5, 2000.0, 4096.0, 3.0]
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadQuantity(f"found {type(value).__name__}, expected a quantity such as 500m or 4Gi")
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        raise BadQuantity(f"found {str(value)[:40]!r}, expected a quantity such as 500m or 4Gi")
    number, suffix, exponent = found.groups()
    scale: Fraction = (
        Fraction(2) ** _BINARY[suffix] if suffix in _BINARY else Fraction(10) ** int(exponent or _DECIMAL[suffix or ""])
    )
    return Fraction(number) * scale


def cores_text(cores: Fraction) -> str:
    """Return an amount of CPU as a quantity, rounded up to a thousandth of a core.

    >>> cores_text(Fraction("1.2601")), cores_text(Fraction(2))
    ('1261m', '2')
    """
    milli = math.ceil(cores * 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def memory_text(size_bytes: Fraction) -> str:
    """Return an amount of memory as a quantity, rounded up to a MiB.

    >>> memory_text(Fraction(3.39) * 2**30), memory_text(Fraction(2**31))
    ('3472Mi', '2Gi')
    """
    mib = math.ceil(size_bytes / MIB)
    return f"{mib}Mi" if mib % 1024 else f"{mib // 1024}Gi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One pod template: its JSON pointer in the object, its content, its number of pods, and the name of its role.

    The content has `metadata` and `spec`, like a pod. With `by_limits`, only resources with a limit shrink; the limit
    stays, as programs count cores by it.
    """

    path: str
    body: Json
    instances: int = 1
    role: str | None = None
    by_limits: bool = False


def mapping(value: object) -> Json:
    """Return a JSON object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """Return a JSON list, or an empty one for any other value."""
    return value if isinstance(value, list) else []


def text(value: object) -> str | None:
    """Return a non-empty text, or None for any other value."""
    return value if isinstance(value, str) and value else None


def time_of(value: object) -> datetime | None:
    """Return a time with its zone, or None for any other value."""
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo else None


def container_named(pod: Json, name: str) -> Json:
    """Return a container of a pod by its name; empty if there is none."""
    containers = map(mapping, items(mapping(pod.get("spec")).get("containers")))
    return next((each for each in containers if each.get("name") == name), {})


def pointer(*parts: str | int) -> str:
    """Return a JSON pointer (RFC 6901).

    >>> pointer("spec", "containers", 0, "nvidia.com/gpu")
    '/spec/containers/0/nvidia.com~1gpu'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def templates_of(group: str, kind: str, found: Json) -> list[Template]:
    """Return the pod templates of an object of an API group and kind; other kinds and running jobs have none."""
    switch, of_kind = KINDS.get((group, kind), ((), None))
    place = found
    for name in switch[:-1]:
        place = mapping(place.get(name))
    if of_kind is None or (switch and place.get(switch[-1]) is not True):
        return []
    return [each for each in of_kind(found) if mapping(each.body.get("spec"))]


def _pod(found: Json) -> Iterator[Template]:
    yield Template(path="", body=found)


def _job(found: Json) -> Iterator[Template]:
    spec = mapping(found.get("spec"))
    body, instances = mapping(spec.get("template")), _count(spec.get("parallelism"))
    yield Template(path=pointer("spec", "template"), body=body, instances=instances)


def _pytorch_job(found: Json) -> Iterator[Template]:
    spec = mapping(found.get("spec"))
    for name, replicas in mapping(spec.get("pytorchReplicaSpecs")).items():
        yield Template(
            path=pointer("spec", "pytorchReplicaSpecs", name, "template"),
            body=mapping(mapping(replicas).get("template")),
            instances=_count(mapping(replicas).get("replicas")),
            role=name.lower(),
        )


def _ray_job(found: Json) -> Iterator[Template]:
    spec = mapping(found.get("spec"))
    cluster = mapping(spec.get("rayClusterSpec"))
    head = mapping(cluster.get("headGroupSpec"))
    path = pointer("spec", "rayClusterSpec", "headGroupSpec", "template")
    # KubeRay sets Ray's number of cores to the container's CPU limit, or to its request if it has no limit.
    yield Template(path=path, body=mapping(head.get("template")), role="head", by_limits=True)
    for i, group in enumerate(map(mapping, items(cluster.get("workerGroupSpecs")))):
        yield Template(
            path=pointer("spec", "rayClusterSpec", "workerGroupSpecs", i, "template"),
            body=mapping(group.get("template")),
            instances=_count(group.get("replicas")),
            role=text(group.get("groupName")) or "worker",
            by_limits=True,
        )


def _job_set(found: Json) -> Iterator[Template]:
    spec = mapping(found.get("spec"))
    for i, replicated in enumerate(map(mapping, items(spec.get("replicatedJobs")))):
        job = mapping(mapping(replicated.get("template")).get("spec"))
        yield Template(
            path=pointer("spec", "replicatedJobs", i, "template", "spec", "template"),
            body=mapping(job.get("template")),
            instances=_count(replicated.get("replicas")) * _count(job.get("parallelism")),
            role=text(replicated.get("name")),
        )


def _count(value: object) -> int:
    """Return a number of pods, from 1 to 1000; 1 for any other value."""
    return min(max(value, 1), 1000) if isinstance(value, int) else 1


_SUSPENDED: Final = ("spec", "suspend")
KINDS: Final[Mapping[tuple[str, str], tuple[tuple[str, ...], Callable[[Json], Iterator[Template]]]]] = {
    ("", "Pod"): ((), _pod),
    ("batch", "Job"): (_SUSPENDED, _job),
    ("kubeflow.org", "PyTorchJob"): (("spec", "runPolicy", "suspend"), _pytorch_job),
    ("ray.io", "RayJob"): (_SUSPENDED, _ray_job),
    ("jobset.x-k8s.io", "JobSet"): (_SUSPENDED, _job_set),
}
"""By API group and kind: the field that is true while an object is suspended, and the function for its templates."""
