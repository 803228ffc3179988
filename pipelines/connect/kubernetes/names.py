"""The names under which a pod is a job of the service: group, user, task type, role and GPU type, by templates."""

from collections.abc import Mapping, Sequence
from typing import Final

from features.vocabulary import ROLE_WHOLE_JOB, TaskType
from pipelines.connect.kubernetes.config import PART, KubernetesConfig
from pipelines.connect.kubernetes.pod_templates import Json, items, mapping, text

__all__ = ["names_of"]

NAME_LENGTH: Final = 256
"""Longest name that the service takes."""


def names_of(
    config: KubernetesConfig, pod: Json, container: Json, *, namespace: str, username: str | None, role: str | None
) -> dict[str, str | None]:
    """Return the fields of a job that name it: trace, cluster, group, user, task type, role and GPU type.

    `pod` has metadata and spec; `role` is used if the configuration's templates name none.
    """
    fields = _fields(pod, container, namespace=namespace, username=username)

    def named(templates: Sequence[str]) -> str | None:
        return next((name for each in templates if (name := _filled(each, fields)) is not None), None)

    gpu_type = named(config.gpu_type)
    return {
        "trace": config.trace,
        "cluster": config.cluster,
        "group": named(config.group),
        "user": named(config.user),
        "task_type": named(config.task_type) or str(TaskType.OTHER),
        "role": named(config.role) or role or ROLE_WHOLE_JOB,
        "gpu_type": None if gpu_type is None else config.gpu_types.get(gpu_type, gpu_type),
    }


def _fields(pod: Json, container: Json, *, namespace: str, username: str | None) -> Mapping[str, Json]:
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
        "namespace": {"": namespace},
        "owner": {"": owner},
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
