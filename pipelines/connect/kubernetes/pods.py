"""The requests of one pod template and their lowest allowed amounts; or the reason to leave the template alone.

Only the container with the GPUs is shrunk, in CPU and memory; all others stay as they are. Pure functions on JSON.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from pipelines.connect.kubernetes.config import Compute, KubernetesConfig, LimitRange
from pipelines.connect.kubernetes.objects import (
    BadQuantity,
    Json,
    Template,
    items,
    mapping,
    pointer,
    quantity,
    text,
)

COMPUTE: Final[tuple[Compute, ...]] = ("cpu", "memory")
"""The resources that are shrunk."""

SHRUNK: Final = "taut.dev/shrunk"
"""Annotation of a pod that was shrunk; such a pod is never shrunk again."""


class Before(BaseModel):
    """Content of a shrunk pod's annotation: the ids of the answer and its job, and the original request."""

    model_config = ConfigDict(frozen=True)

    answer_id: str | None = None
    job_id: str | None = None
    container: str | None = None
    instances: int = 1
    cpu_cores: float | None = None
    mem_gib: float | None = None

    @classmethod
    def of(cls, metadata: Json) -> Self:
        """Read the annotation in a pod's metadata; without a valid one all fields are unknown."""
        try:
            return cls.model_validate_json(str(mapping(metadata.get("annotations")).get(SHRUNK, "{}")))
        except ValidationError:
            return cls()


class LeftAlone(Exception):
    """A pod that is not shrunk; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container: its JSON pointer in the pod, and its requests and limits by resource.

    Without a request, `requests` holds the resource's limit, as in Kubernetes. `written` names the explicit requests.
    """

    name: str
    path: str
    requests: Mapping[str, Fraction]
    limits: Mapping[str, Fraction]
    written: frozenset[str]

    @property
    def guaranteed(self) -> bool:
        """Whether requests and limits of CPU and memory are set and equal."""
        return all(each in self.limits and self.requests[each] == self.limits[each] for each in COMPUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The container of a template that may be shrunk, with the least amount of each resource.

    If `guaranteed` is true, the limits change with the requests.
    """

    template: Template
    container: Container
    gpus: float
    least: Mapping[Compute, Fraction]
    guaranteed: bool


def slot_of(template: Template, namespace: str, config: KubernetesConfig) -> Slot:
    """Return the container of a pod template that may be shrunk, with the lowest allowed amounts of its requests."""
    spec = mapping(template.body.get("spec"))
    if spec.get("resources"):
        raise LeftAlone("pod-level resources")
    if any("restartPolicy" in mapping(each) for each in items(spec.get("initContainers"))):
        raise LeftAlone("restartable init container")
    main, gpus = main_container(spec, config)
    try:
        containers = list(containers_of(spec, "containers"))
        first = list(containers_of(spec, "initContainers"))
    except BadQuantity as error:
        raise LeftAlone(f"invalid quantity: {error}") from error
    if any(main.requests[each] > main.limits.get(each, main.requests[each]) for each in main.requests):
        raise LeftAlone("a request above its limit")
    guaranteed = all(each.guaranteed for each in (*containers, *first))
    if guaranteed and (config.guaranteed == "leave" or template.by_limits):
        raise LeftAlone("QoS class Guaranteed")
    others = [each for each in containers if each.path != main.path]
    ranges = config.ranges_of(namespace)
    return Slot(
        template=template,
        container=main,
        gpus=gpus,
        least={
            each: main.requests.get(each, Fraction(0))
            if template.by_limits and each not in main.limits
            else _least(each, main, others, first, ranges, guaranteed=guaranteed)
            for each in COMPUTE
        },
        guaranteed=guaranteed,
    )


def containers_of(spec: Json, field: str) -> Iterator[Container]:
    """Return the containers in a field of a pod's specification."""
    for i, each in enumerate(map(mapping, items(spec.get(field)))):
        resources = mapping(each.get("resources"))
        limits = {name: quantity(value) for name, value in mapping(resources.get("limits")).items()}
        written = {name: quantity(value) for name, value in mapping(resources.get("requests")).items()}
        yield Container(
            name=text(each.get("name")) or str(i),
            path=pointer("spec", field, i),
            requests={**limits, **written},
            limits=limits,
            written=frozenset(written),
        )


def main_container(spec: Json, config: KubernetesConfig) -> tuple[Container, float]:
    """Return the only container with GPUs, and its number of GPUs."""
    try:
        found = [each for each in containers_of(spec, "containers") if _gpus(each, config)]
    except BadQuantity as error:
        raise LeftAlone(f"invalid quantity: {error}") from error
    if len(found) != 1:
        raise LeftAlone("GPUs in several containers" if found else "no GPU")
    if not any(found[0].requests.get(each) for each in COMPUTE):
        raise LeftAlone("neither CPU nor memory requested")
    return found[0], _gpus(found[0], config)


def _gpus(container: Container, config: KubernetesConfig) -> float:
    return sum(float(container.requests.get(name, 0)) * unit for name, unit in config.gpus.items())


def _least(
    resource: Compute,
    main: Container,
    others: Sequence[Container],
    first: Sequence[Container],
    ranges: Sequence[LimitRange],
    *,
    guaranteed: bool,
) -> Fraction:
    """Return the lowest request of the main container that all LimitRanges accept; 0 without LimitRanges."""
    beside = sum((each.requests.get(resource, Fraction(0)) for each in others), Fraction(0))
    limits = [each.limits.get(resource, Fraction(0)) for each in (main, *others)]
    of_pod = max([sum(limits, Fraction(0)), *(each.limits.get(resource, Fraction(0)) for each in first)])
    least = Fraction(0)
    for each in ranges:
        minimum, ratio = each.min.get(resource, Fraction(0)), each.max_limit_request_ratio.get(resource)
        limit, taken = (limits[0], Fraction(0)) if each.type == "Container" else (of_pod, beside)
        by_ratio = limit / ratio if ratio is not None and not guaranteed else Fraction(0)
        least = max(least, minimum - taken, by_ratio - taken)
    return least
