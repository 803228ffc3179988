"""Find the pod templates in a Kubernetes object: a pod itself, or the templates of a suspended job.

The templates of a running job stay as they are; the webhook sees its pods one by one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Template", "items", "mapping", "pointer", "templates_of", "text"]

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One pod template: its JSON pointer in the object, its content, its number of pods, and the name of its role.

    The content has `metadata` and `spec`, as a pod has. With `by_limits`, a resource may shrink only below a limit that
    stays, since the program in the pod counts its cores by the template.
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
    """Return a text that is not empty, or None for any other value."""
    return value if isinstance(value, str) and value else None


def pointer(*parts: str | int) -> str:
    """Return a JSON pointer (RFC 6901).

    >>> pointer("spec", "containers", 0, "nvidia.com/gpu")
    '/spec/containers/0/nvidia.com~1gpu'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def templates_of(group: str, kind: str, found: Json) -> list[Template]:
    """Return the pod templates of an object of an API group and kind; none for other kinds, and for running jobs."""
    of_kind = KINDS.get((group, kind))
    return [] if of_kind is None else [each for each in of_kind(found) if mapping(each.body.get("spec"))]


def _pod(found: Json) -> Iterator[Template]:
    yield Template(path="", body=found)


def _job(found: Json) -> Iterator[Template]:
    spec = mapping(found.get("spec"))
    if spec.get("suspend") is True:
        yield Template(
            path=pointer("spec", "template"),
            body=mapping(spec.get("template")),
            instances=_count(spec.get("parallelism")),
        )


def _pytorch_job(found: Json) -> Iterator[Template]:
    spec = mapping(found.get("spec"))
    if mapping(spec.get("runPolicy")).get("suspend") is not True:
        return
    for name, replicas in mapping(spec.get("pytorchReplicaSpecs")).items():
        yield Template(
            path=pointer("spec", "pytorchReplicaSpecs", name, "template"),
            body=mapping(mapping(replicas).get("template")),
            instances=_count(mapping(replicas).get("replicas")),
            role=name.lower(),
        )


def _ray_job(found: Json) -> Iterator[Template]:
    spec = mapping(found.get("spec"))
    if spec.get("suspend") is not True:
        return
    cluster = mapping(spec.get("rayClusterSpec"))
    head = mapping(cluster.get("headGroupSpec"))
    path = pointer("spec", "rayClusterSpec", "headGroupSpec", "template")
    # KubeRay starts Ray with the limits of a container as its number of cores; without limits, with the requests.
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
    if spec.get("suspend") is not True:
        return
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


KINDS: Final[Mapping[tuple[str, str], Callable[[Json], Iterator[Template]]]] = {
    ("", "Pod"): _pod,
    ("batch", "Job"): _job,
    ("kubeflow.org", "PyTorchJob"): _pytorch_job,
    ("ray.io", "RayJob"): _ray_job,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
}
"""Kinds with pod templates, by API group and kind."""
