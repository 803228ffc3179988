"""Calls for placements and for explanations of waiting jobs: the cluster of a call in, decisions with reasons out.

The decisions are `scheduler_core.decisions` and `scheduler_core.explain`; no model is used.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from modelserve.calls.context import Answered, RequestContext, Values, finite, written
from modelserve.contract.placements import MAX_EXPLAINED, ClusterBody, PendingBody, QueuedRow
from modelserve.contract.requests import amounts_of
from modelserve.errors import BadRequest
from scheduler_core.cluster import Machine
from scheduler_core.decisions import Decision, place_queue
from scheduler_core.errors import BadInput
from scheduler_core.explain import Change, Explained, explain_waiting
from scheduler_core.queueing import Discipline
from scheduler_core.snapshot import MachineState, QueuedJob, RunningJob, Snapshot, Spot
from scheduler_core.types import RESOURCES, Request

__all__ = ["explain", "explained", "place", "placed"]

MOST_INSTANCES: Final = 20_000
"""Maximum number of instances of all waiting jobs of a call."""


def placed(context: RequestContext, body: ClusterBody) -> Answered:
    """Return the response to a placement call."""
    rows = place(body)
    return Answered(body=written({"answer_id": context.answer_id, "placements": rows}), counts=counts_of(rows))


def counts_of(rows: Sequence[Values]) -> Counter[tuple[str, ...]]:
    """Count the reasons of placements, as `Answered.counts`."""
    return Counter(("placement", row["reason"]["code"]) for row in rows)


def explained(context: RequestContext, body: PendingBody) -> Answered:
    """Return the response to a call for explanations of waiting jobs."""
    return Answered(body=written({"answer_id": context.answer_id, "pending": explain(body)}))


def place(body: ClusterBody) -> list[Values]:
    """Return where each job of the queue starts now and why, with the keys of `contract.placements.Placed`."""
    return place_jobs(body, [queued(row) for row in waiting(body)])


def place_jobs(body: ClusterBody, jobs: Sequence[QueuedJob]) -> list[Values]:
    """Return where each of these jobs starts now and why, as `place` of the jobs of the call."""
    try:
        return [_decision(each) for each in place_queue(_snapshot(body, jobs))]
    except BadInput as error:
        raise BadRequest(str(error)) from error


def explain(body: PendingBody) -> list[Values]:
    """Return why jobs wait and what would start them, with the keys of `contract.placements.PendingJob`."""
    jobs = [queued(row) for row in waiting(body)]
    try:
        return [_explained(each) for each in explain_waiting(_snapshot(body, jobs), body.explain, MAX_EXPLAINED)]
    except BadInput as error:
        raise BadRequest(str(error)) from error


def waiting(body: ClusterBody) -> Sequence[QueuedRow]:
    """Return the waiting jobs of a call; refuse a job of another trace or cluster, and too many instances."""
    for i, job in enumerate(body.jobs):
        for name, own, common in (("trace", job.trace, body.trace), ("cluster", job.cluster, body.cluster)):
            if own not in (None, common):
                raise BadRequest(f"jobs.{i}.{name}: found {own[:40]!r}, expected none or that of the call")
    instances = sum(job.instances for job in body.jobs)
    if instances > MOST_INSTANCES:
        raise BadRequest(f"jobs: found {instances} instances in all, expected at most {MOST_INSTANCES}")
    return body.jobs


def queued(row: QueuedRow, request: Request | None = None, run_time_s: float | None = None) -> QueuedJob:
    """Return a waiting job for the core, with another request and expected run time (s) if they are given."""
    expected_s = row.run_time_s if run_time_s is None else run_time_s
    return QueuedJob(
        job_id=row.job_id,
        request=amounts_of(row.request) if request is None else request,
        instances=row.instances,
        gpu_type=row.gpu_type,
        machines=row.machines,
        device_mem_gib=row.device_mem_gib,
        user=row.user,
        priority=row.priority,
        waited_s=row.waited_s,
        run_time_s=math.nan if expected_s is None else expected_s,
    )


def _snapshot(body: ClusterBody, jobs: Sequence[QueuedJob]) -> Snapshot:
    return Snapshot(
        machines=tuple(
            MachineState(
                machine=Machine(
                    name=row.machine, cpu_cores=row.cpu_cores, mem_gib=row.mem_gib, gpus=row.gpus, gpu_type=row.gpu_type
                ),
                device_mem_gib=math.nan if row.device_mem_gib is None else row.device_mem_gib,
                free=amounts_of(row.free),
                free_devices=row.free.devices,
                closed=row.closed,
            )
            for row in body.machines
        ),
        running=tuple(
            RunningJob(
                job_id=row.job_id,
                request=amounts_of(row.request),
                spots=tuple(Spot(machine=on.machine, instances=on.instances, devices=on.devices) for on in row.on),
                user=row.user,
                ends_in_s=math.inf if row.ends_in_s is None else row.ends_in_s,
            )
            for row in body.running
        ),
        jobs=tuple(jobs),
        rules=Discipline(
            policy=body.policy,
            placement=body.placement,
            sharing=body.sharing,
            backfill=body.backfill,
            overtakes=body.overtakes,
        ),
    )


def _decision(found: Decision) -> Values:
    on = [{"machine": s.machine, "instances": s.instances, "devices": s.devices} for s in found.spots]
    names = ("code", "text", "measure", "value", "other", "other_value", "short")
    reason = {name: getattr(found, name) for name in names}
    return {"job_id": found.job_id, "starts": bool(on), "on": on, "reason": reason}


def _explained(found: Explained) -> Values:
    missing = None if found.missing is None else dict(zip(RESOURCES, found.missing.row(), strict=True))
    return {
        "job_id": found.job_id,
        "hold": str(found.hold),
        "place": found.place,
        "head": found.head,
        "text": found.text,
        "instances": found.instances,
        "hosted": found.hosted,
        "short": found.short,
        "nearest": None if found.nearest is None else {"machine": found.nearest, "missing": missing},
        "must_end": found.must_end,
        "room_in_s": finite(found.room_in_s),
        "expected_wait_s": finite(found.expected_wait_s),
        "changes": [_change(each) for each in found.changes],
    }


def _change(found: Change) -> Values:
    job, field = found.job, found.field
    request = {name: finite(value) for name, value in zip(RESOURCES, job.request.row(), strict=True)}
    if field == "wait":
        to, when = {}, f"in {found.in_s:.0f} s" if math.isfinite(found.in_s) else "at an unknown time"
        text = f"wait until {_listed(found.ended)} end{'s' if len(found.ended) == 1 else ''}, expected {when}"
    elif field == "request":
        to = request
        text = f"request {', '.join(f'{value:g} {_UNITS[name]}' for name, value in to.items() if value)} per instance"
    elif field in RESOURCES:
        to = {field: request[field]}
        text = f"request {request[field]:g} {_UNITS[field]} per instance"
    elif field == "machines":
        to, text = {"machines": None}, "allow any machine"
    else:
        to = {field: getattr(job, field)}
        text = f"{_WORDS[field]} {to[field]}"
    return {"field": field, "text": text, "to": to, "ended": found.ended, "in_s": finite(found.in_s)}


def _listed(names: tuple[str, ...], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


_UNITS: Final = {"cpu_cores": "cores", "mem_gib": "GiB of memory", "gpus": "GPUs"}
_WORDS: Final = {
    "instances": "number of instances:",
    "gpu_type": "GPU type:",
    "device_mem_gib": "least GiB of memory of each GPU:",
}
