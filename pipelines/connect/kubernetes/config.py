"""The configuration of the Kubernetes interface, read from a TOML file: modes, names of groups, GPUs and limit ranges.

Webhooks see neither the labels of a namespace nor its LimitRange, so both are stated here.
"""

import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, ValidationError

from modelserve.bundle.card import complaint
from modelserve.contract.fields import Text
from modelserve.errors import BadSettings
from pipelines.connect.kubernetes.quantities import quantity

__all__ = ["KubernetesConfig", "LimitRange", "WebhookMode", "read_config"]

FIELDS: Final = ("annotation", "container", "image", "label", "namespace", "node", "owner", "username")
"""Fields that a template of a name may use; `label`, `annotation` and `node` (node selector) take a key."""

PART: Final = re.compile(r"\{([a-z]+)(?::([^{}]+))?\}")


class WebhookMode(StrEnum):
    """What the webhook does with a pod: nothing, warn what it would shrink, or shrink it."""

    OFF = "off"
    WARN = "warn"
    ENFORCE = "enforce"


def _template(text: str) -> str:
    parts = PART.findall(text)
    left = PART.sub("", text)
    keyed = {"annotation", "label", "node"}
    wrong = [name for name, key in parts if name not in FIELDS or bool(key) != (name in keyed)]
    if wrong or "{" in left or "}" in left or not parts:
        raise ValueError(f"found {text[:60]!r}, expected a template such as {{label:team}}/{{container}}")
    return text


def _exact(value: object) -> Fraction:
    return quantity(value)


Template = Annotated[str, AfterValidator(_template)]
Templates = tuple[Template, ...]
Quantity = Annotated[Fraction, BeforeValidator(_exact)]
Compute = Literal["cpu", "memory"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class LimitRange(_Part):
    """One item of a LimitRange: the least requests, and the largest limit for each unit of request.

    `namespace` None means every namespace.
    """

    namespace: Text | None = None
    type: Literal["Container", "Pod"] = "Container"
    min: Mapping[Compute, Quantity] = {}
    max_limit_request_ratio: Mapping[Compute, Annotated[Quantity, Field(ge=1)]] = {}


class KubernetesConfig(_Part):
    """Everything that the webhook has to know about a cluster.

    Attributes
    ----------
    mode, namespaces
        Mode of namespaces that are not listed, and of those that are. A pod's label may only lower it.
    trace, cluster
        Names of the cluster's jobs in the service.
    group, user, task_type, role, gpu_type
        Templates of a job's names; the first one whose fields all exist is used.
    gpu_types
        Names of GPU types in the service by their names in the cluster.
    gpus
        GPUs that one unit of an extended resource is, for example 0.125 for a slice.
    guaranteed
        Whether pods of QoS class Guaranteed are left alone, or shrunk in requests and limits alike.
    limit_ranges
        The LimitRanges of the namespaces.
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

    def mode_of(self, namespace: str) -> WebhookMode:
        """Return the mode of a namespace."""
        return self.namespaces.get(namespace, self.mode)

    def ranges_of(self, namespace: str) -> list[LimitRange]:
        """Return the items of the LimitRanges of a namespace."""
        return [each for each in self.limit_ranges if each.namespace in (None, namespace)]


def read_config(path: Path) -> KubernetesConfig:
    """Read the configuration from a TOML file."""
    try:
        return KubernetesConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise BadSettings(f"{path}: {complaint(error)}") from error
    except (OSError, UnicodeError) as error:
        raise BadSettings(f"{path}: cannot be read ({type(error).__name__}); expected a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{path}: not TOML: {error}") from error
