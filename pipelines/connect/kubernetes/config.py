"""The configuration of the Kubernetes interface, a TOML file, and the names that it gives pods in the service.

Webhooks do not see the labels of a namespace, so its mode is stated here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat

from features.vocabulary import ROLE_WHOLE_JOB, TaskType
from modelserve.contract.fields import Text
from pipelines.connect.files import settings_in
from pipelines.connect.kubernetes.objects import Json, items, mapping, quantity, text
from pipelines.connect.names import normalised

__all__ = ["read_config"]

FIELDS: Final = ("annotation", "container", "image", "label", "namespace", "node", "owner", "username")
"""Fields that a template of a name may use; `label`, `annotation` and `node` (node selector) take a key."""

PART: Final = re.compile(r"\{([a-z]+)(?::([^{}]+))?\}")


class WebhookMode(StrEnum):
    """What the webhook does with a pod: leave it alone, warn what it would shrink, or shrink it."""

    OFF = "off"
    WARN = "warn"
    ENFORCE = "enforce"


def _template(value: str) -> str:
    parts = PART.findall(value)
    left = PART.sub("", value)
    keyed = {"annotation", "label", "node"}
    wrong = [name for name, key in parts if name not in FIELDS or bool(key) != (name in keyed)]
    if wrong or "{" in left or "}" in left or not parts:
        raise ValueError(f"found {value[:60]!r}, expected a template such as {{label:team}}/{{container}}")
    return value


Template = Annotated[str, AfterValidator(_template)]
Templates = tuple[Template, ...]
Quantity = Annotated[Fraction, BeforeValidator(quantity)]
Compute = Literal["cpu", "memory"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class LimitRange(_Part):
    """One item of a LimitRange: the smallest requests, and the largest ratio of limit to request.

    `namespace` None means every namespace.
    """

    namespace: Text | None = None
    type: Literal["Container", "Pod"] = "Container"
    min: Mapping[Compute, Quantity] = {}
    max_limit_request_ratio: Mapping[Compute, Annotated[Quantity, Field(ge=1)]] = {}


class KubernetesConfig(_Part):
    """The webhook's settings for a cluster.

    Attributes
    ----------
    mode, namespaces
        The default mode, and the mode by namespace. A pod's label may only lower the mode.
    trace, cluster
        Names of the cluster's jobs in the service.
    group, user, task_type, role, gpu_type
        Templates of a job's names; the first one whose fields all exist is used.
    gpu_types
        Names of GPU types in the service by their names in the cluster.
    gpus
        GPUs per unit of an extended resource, for example 0.125 for a slice.
    guaranteed
        Whether pods of QoS class Guaranteed stay as they are, or their requests and limits shrink together.
    limit_ranges
        The LimitRanges of the namespaces, for a webhook that cannot read them from an API server.
    """

    trace: Text
    cluster: Text | None = None
    mode: WebhookMode = WebhookMode.WARN
    namespaces: Mapping[str, WebhookMode] = {}
    group: Templates = ("{label:taut.dev/group}", "{label:app.kubernetes.io/name}")
    user: Templates = ("{label:taut.dev/user}", "{username}")
    task_type: Templates = ("{label:taut.dev/task-type}",)
    role: Templates = ("{label:taut.dev/role}", "{label:training.kubeflow.org/replica-type}")
    gpu_type: Templates = ("{node:nvidia.com/gpu.product}",)
    gpu_types: Mapping[str, Text] = {}
    gpus: Mapping[str, PositiveFloat] = {"nvidia.com/gpu": 1.0, "amd.com/gpu": 1.0}
    guaranteed: Literal["leave", "shrink"] = "leave"
    limit_ranges: tuple[LimitRange, ...] = ()

    def with_limit_ranges(self, found: Iterable[Json]) -> Self:
        """Return the configuration with LimitRanges of an API server added."""
        read = []
        for each in found:
            namespace = mapping(each.get("metadata")).get("namespace")
            for item in map(mapping, items(mapping(each.get("spec")).get("limits"))):
                if item.get("type") in ("Container", "Pod"):
                    ratio = _compute(item.get("maxLimitRequestRatio"))
                    row = {"type": item["type"], "min": _compute(item.get("min")), "max_limit_request_ratio": ratio}
                    read.append(LimitRange.model_validate({"namespace": namespace, **row}))
        return self.model_copy(update={"limit_ranges": (*self.limit_ranges, *read)})

    def mode_of(self, namespace: str) -> WebhookMode:
        """Return the mode of a namespace."""
        return self.namespaces.get(namespace, self.mode)

    def ranges_of(self, namespace: str) -> list[LimitRange]:
        """Return the items of the LimitRanges of a namespace."""
        return [each for each in self.limit_ranges if each.namespace in (None, namespace)]


def _compute(amounts: object) -> dict[str, object]:
    return {name: value for name, value in mapping(amounts).items() if name in ("cpu", "memory")}


def read_config(path: Path) -> KubernetesConfig:
    """Read the configuration from a TOML file."""
    return settings_in(path, KubernetesConfig, expected="a TOML file")


NAME_LENGTH: Final = 256
"""Longest name that the service takes."""


def names_of(
    config: KubernetesConfig,
    pod: Json,
    container: Json,
    *,
    namespace: str | None = None,
    username: str | None = None,
    role: str | None = None,
) -> dict[str, str]:
    """Return a job's known naming fields: trace, cluster, group, user, task type, role and GPU type.

    `pod` has metadata and spec; `namespace` is by default the one in its metadata. `role` is used if no template of the
    configuration names one.
    """
    fields = _fields(pod, container, namespace=namespace, username=username)

    def named(templates: Sequence[str]) -> str | None:
        return next((name for each in templates if (name := _filled(each, fields)) is not None), None)

    gpu_type = named(config.gpu_type)
    found = {
        "trace": config.trace,
        "cluster": config.cluster,
        "group": named(config.group),
        "user": named(config.user),
        "task_type": named(config.task_type) or str(TaskType.OTHER),
        "role": named(config.role) or role or ROLE_WHOLE_JOB,
        "gpu_type": None if gpu_type is None else config.gpu_types.get(gpu_type, gpu_type),
    }
    return {name: value for name, value in found.items() if value is not None}


def _fields(pod: Json, container: Json, *, namespace: str | None, username: str | None) -> Mapping[str, Json]:
    """Return the values of every field by its key; fields without a key have the key ""."""
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    owners = [mapping(each) for each in items(metadata.get("ownerReferences"))]
    owner = next((text(each.get("name")) for each in owners if each.get("controller") is True), None)
    system = username is None or username.startswith("system:")
    return {
        "annotation": mapping(metadata.get("annotations")),
        "label": mapping(metadata.get("labels")),
        "node": mapping(spec.get("nodeSelector")),
        "container": {"": container.get("name")},
        "image": {"": container.get("image")},
        "namespace": {"": text(metadata.get("namespace")) if namespace is None else namespace},
        "owner": {"": None if owner is None else normalised(owner)},
        "username": {"": None if system else username},
    }


def _filled(template: str, fields: Mapping[str, Json]) -> str | None:
    """Return a template with its fields filled in, or None if one of them is missing.

    >>> _filled("{label:team}/{namespace}", {"label": {"team": "nlp"}, "namespace": {"": "ml"}})
    'nlp/ml'
    """
    values = [text(fields[field].get(key)) for field, key in PART.findall(template)]
    found = [value for value in values if value is not None]
    if len(found) < len(values):
        return None
    rest = iter(found)
    return PART.sub(lambda _: next(rest), template)[:NAME_LENGTH]
