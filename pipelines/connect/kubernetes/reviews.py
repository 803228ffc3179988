"""Turn an AdmissionReview into jobs for the service, and the service's advice into the answer to the API server.

Every answer allows the object. A patch (RFC 6902) lowers requests, and limits only of a Guaranteed pod. Pure functions.
"""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pydantic_core import from_json

from pipelines.connect.kubernetes.config import Compute, KubernetesConfig, WebhookMode, names_of
from pipelines.connect.kubernetes.objects import (
    GIB,
    Json,
    Template,
    container_named,
    cores_text,
    mapping,
    memory_text,
    pointer,
    quantity,
    templates_of,
    text,
)
from pipelines.connect.kubernetes.pods import COMPUTE, SHRUNK, Before, LeftAlone, Slot, slot_of
from scheduler_core.types import Job, Request

if TYPE_CHECKING:
    from modelserve.client import Advice

MODE_LABEL: Final = "taut.dev/mode"
REASON_LENGTH: Final = 300
LEAST: Final[Mapping[Compute, Fraction]] = {"cpu": Fraction(1, 1000), "memory": Fraction(2**20)}
WARNING_LENGTH: Final = 200

Operation = dict[str, object]


class BadReview(ValueError):
    """Raised for a body that is no AdmissionReview, so that there is no uid to answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The parts of an AdmissionReview that a decision depends on."""

    uid: str
    group: str
    kind: str
    namespace: str
    found: Json
    username: str | None
    created: bool
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The slots of an object that may be shrunk, a job for each slot in the same order, and the mode."""

    mode: WebhookMode
    slots: tuple[Slot, ...]
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer to the API server: a patch, warnings, and the reason, which goes to its audit log."""

    reason: str
    patch: Sequence[dict[str, object]] = ()
    warnings: Sequence[str] = ()


def read_review(body: bytes) -> Review:
    """Read an AdmissionReview of version v1."""
    try:
        review = mapping(from_json(body))
    except ValueError as error:
        raise BadReview(f"not JSON: {str(error)[:80]}") from error
    request = mapping(review.get("request"))
    uid = text(request.get("uid"))
    if review.get("kind") != "AdmissionReview" or review.get("apiVersion") != "admission.k8s.io/v1" or uid is None:
        raise BadReview("found no AdmissionReview of admission.k8s.io/v1 with a uid")
    kind, found = mapping(request.get("kind")), mapping(request.get("object"))
    return Review(
        uid=uid,
        group=text(kind.get("group")) or "",
        kind=text(kind.get("kind")) or "",
        namespace=text(request.get("namespace")) or "",
        found=found,
        username=text(mapping(request.get("userInfo")).get("username")),
        created=request.get("operation") == "CREATE" and not request.get("subResource"),
        dry_run=request.get("dryRun") is not False,
    )


def planned(review: Review, config: KubernetesConfig) -> Plan:
    """Return which containers of an object may be shrunk, and the jobs to ask about."""
    if not review.created:
        raise LeftAlone("not a creation")
    if review.dry_run:
        raise LeftAlone("dry run")
    mode = config.mode_of(review.namespace)
    templates = templates_of(review.group, review.kind, review.found)
    if not templates:
        raise LeftAlone(f"{review.kind[:60] or 'no kind'}, expected a pod or a suspended job with a template")
    slots, reasons = [], []
    for template in templates:
        try:
            if lowered(mode, review.found, template.body) is WebhookMode.OFF:
                raise LeftAlone("mode off")
            if SHRUNK in mapping(mapping(template.body.get("metadata")).get("annotations")):
                raise LeftAlone("shrunk before")
            slots.append(slot_of(template, review.namespace, config))
        except LeftAlone as reason:
            reasons.append(str(reason))
    if not slots:
        raise LeftAlone("; ".join(dict.fromkeys(reasons)))
    modes = [lowered(mode, review.found, each.template.body) for each in slots]
    return Plan(
        mode=min(modes, key=list(WebhookMode).index),
        slots=tuple(slots),
        jobs=tuple(_job(i, slot, review, config) for i, slot in enumerate(slots)),
    )


def lowered(mode: WebhookMode, *objects: Json) -> WebhookMode:
    """Return the lowest of a mode and the modes in the objects' labels; an unknown label counts as off."""
    for each in objects:
        label = mapping(mapping(each.get("metadata")).get("labels")).get(MODE_LABEL)
        if label is not None:
            labelled = next((each for each in WebhookMode if each == label), WebhookMode.OFF)
            mode = min(mode, labelled, key=list(WebhookMode).index)
    return mode


def _job(i: int, slot: Slot, review: Review, config: KubernetesConfig) -> Job:
    template, container = slot.template, slot.container
    names = names_of(
        config,
        _with_names(review.found, template),
        container_named(template.body, container.name),
        namespace=review.namespace,
        username=review.username,
        role=template.role,
    )
    cpu, memory = container.requests.get("cpu"), container.requests.get("memory")
    return Job(
        job_id=f"{review.uid[:200]}-{i}",
        request=Request(
            cpu_cores=math.nan if not cpu else float(cpu),
            mem_gib=math.nan if not memory else float(memory) / GIB,
            gpus=slot.gpus,
        ),
        # GPUs are whole and their number stays, so a shrunk number must not count in the predicted run time.
        minimum=Request(
            cpu_cores=float(slot.least["cpu"]) or math.nan,
            mem_gib=float(slot.least["memory"]) / GIB or math.nan,
            gpus=slot.gpus,
        ),
        instances=template.instances,
        **names,  # type: ignore[arg-type]
    )


def _with_names(found: Json, template: Template) -> Json:
    """Return a pod template with its owner's labels and annotations added; those of the template take precedence."""
    if not template.path:
        return found
    outer, inner = mapping(found.get("metadata")), mapping(template.body.get("metadata"))
    joined = {name: {**mapping(outer.get(name)), **mapping(inner.get(name))} for name in ("labels", "annotations")}
    return {"metadata": {**outer, **joined}, "spec": template.body.get("spec")}


def decided(plan: Plan, advice: Sequence["Advice"]) -> Decision:
    """Return the decision by the service's advice on the plan's jobs.

    A pod shrinks only if the service's mode and the webhook's mode are both `enforce`.
    """
    found: list[tuple[Shrunk, Advice]] = []
    for slot, job, each in zip(plan.slots, plan.jobs, advice, strict=True):
        change = shrunk(slot, each.careful_target, job_id=job.job_id, answer_id=each.answer_id)
        if change is not None:
            found.append((change, each))
    if not found:
        notes = dict.fromkeys(each.note or "nothing to shrink" for each in advice)
        answered = any(each.answer_id for each in advice)
        return Decision(reason=f"{'unchanged' if answered else 'failed'}: {'; '.join(notes)}")
    enforced = plan.mode is WebhookMode.ENFORCE
    applied = [change for change, each in found if enforced and each.mode == "enforce"]
    return Decision(
        reason="shrunk" if applied else f"would shrink; mode {plan.mode}, service {found[0][1].mode}",
        patch=patch_of(applied),
        warnings=[warning_of(change, done=change in applied) for change, _ in found],
    )


def allowed(uid: str, decision: Decision) -> bytes:
    """Return an AdmissionReview that allows the object, with the decision's patch and warnings."""
    response: dict[str, object] = {
        "uid": uid,
        "allowed": True,
        "auditAnnotations": {"reason": decision.reason[:REASON_LENGTH]},
    }
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(decision.patch).encode()).decode()
    if decision.warnings:
        response["warnings"] = list(decision.warnings)
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """A slot, the new quantities of its container's resources (at least one), and the ids of its job and answer."""

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
    said = Before(
        answer_id=change.answer_id,
        job_id=change.job_id,
        container=slot.container.name,
        instances=slot.template.instances,
        cpu_cores=float(slot.container.requests.get("cpu", 0)),
        mem_gib=float(slot.container.requests.get("memory", 0)) / GIB,
    )
    return [*done, _add(path + pointer("metadata", "annotations", SHRUNK), said.model_dump_json())]


def _add(path: str, value: object) -> Operation:
    # `add` replaces a member that exists, so it applies in either case; a patch that does not apply refuses the pod.
    return {"op": "add", "path": path, "value": value}


def warning_of(change: Shrunk, *, done: bool) -> str:
    """Return one line about a change that is, or would be, made."""
    slot = change.slot
    parts = []
    for resource, amount in change.amounts.items():
        asked = slot.container.requests[resource]
        before = memory_text(asked) if resource == "memory" else cores_text(asked)
        parts.append(f"{resource} {before} -> {amount}")
    name = "".join(c if c.isprintable() and c.isascii() else "?" for c in slot.container.name[:63])
    return f"taut {'shrank' if done else 'would shrink'} container {name}: {', '.join(parts)}"[:WARNING_LENGTH]
