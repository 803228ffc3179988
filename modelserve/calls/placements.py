"""Calls for placements, explanations and routes of waiting jobs: a cluster or sites in, decisions with reasons out.

The decisions are `scheduler_core.decisions`, `explain` and `planning.sites`; no model is used.
"""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np

from modelserve.bundle.routing_policy import RoutingPolicy
from modelserve.calls.context import Answered, RequestContext, Values, finite, written
from modelserve.contract.placements import (
    MAX_EXPLAINED,
    ClusterBody,
    PendingBody,
    QueuedRow,
    RouteBody,
    RoutedJob,
    SiteRow,
)
from modelserve.contract.requests import amounts_of
from modelserve.errors import BadRequest
from scheduler_core.cluster import Machine
from scheduler_core.decisions import Decision, place_queue
from scheduler_core.errors import BadInput
from scheduler_core.explain import Change, Explained, explain_waiting
from scheduler_core.planning.sites import SiteState, WaitingJobs, route
from scheduler_core.queueing import Discipline
from scheduler_core.snapshot import MachineState, QueuedJob, RunningJob, Snapshot, Spot
from scheduler_core.types import RESOURCES, FloatArray, IntArray, Request

__all__ = ["explain", "explained", "place", "placed", "routed"]

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
    """Return where each of these jobs starts now and why, in the form of `place`."""
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
    reason = {name: getattr(found, name) for name in ("code", "text", "short")}
    return {"job_id": found.job_id, "starts": bool(on), "on": on, "reason": reason}


def _explained(found: Explained) -> Values:
    return {
        "job_id": found.job_id,
        "hold": str(found.hold),
        "place": found.place,
        "head": found.head,
        "text": found.text,
        "instances": found.instances,
        "hosted": found.hosted,
        "short": found.short,
        "must_end": found.must_end,
        "room_in_s": finite(found.room_in_s),
        "expected_wait_s": finite(found.expected_wait_s),
        "changes": [_change(each) for each in found.changes],
    }


def _change(found: Change) -> Values:
    job, field = found.job, found.field
    if field in RESOURCES:
        to = {field: getattr(job.request, field)}
        text = f"request {to[field]:g} {_UNITS[field]} per instance"
    elif field == "machines":
        to, text = {"machines": None}, "allow any machine"
    else:
        to = {field: getattr(job, field)}
        text = f"{_WORDS[field]} {to[field]}"
    return {"field": field, "text": text, "to": to}


_UNITS: Final = {"cpu_cores": "cores", "mem_gib": "GiB of memory", "gpus": "GPUs"}
_WORDS: Final = {
    "instances": "number of instances:",
    "gpu_type": "GPU type:",
    "device_mem_gib": "least GiB of memory of each GPU:",
}


STEP_S: Final = 900.0
DAY_S: Final = 86_400.0
G_PER_T: Final = 1e6
ROUTED: Final = ("job_id", "site", "reason", "gain_usd", "safe_mode")


def routed(context: RequestContext, body: RouteBody) -> Answered:
    """Return the response to a call for routes."""
    rules = context.routing or RoutingPolicy()
    names = [each.site for each in body.sites]
    at = {name: place for place, name in enumerate(names)}
    if len(at) < len(names):
        raise BadRequest(f"sites: found {len(names)} sites with {len(at)} names, expected a name for each")
    for each in body.jobs:
        if each.site not in at:
            raise BadRequest(f"jobs: {each.job_id[:40]!r} is at {each.site[:40]!r}, expected one of the call's sites")
    origin = np.array([at[each.site] for each in body.jobs], dtype=np.int64)
    state = _state(body.sites, body.at or datetime.fromtimestamp(context.now, UTC))
    found = route(
        _waiting(body.jobs, origin, state, rules),
        state,
        rules.policy,
        worth_usd_per_gpu_h=rules.worth_usd_per_gpu_h,
        carbon_usd_per_t=rules.carbon_usd_per_t,
        miss_usd=rules.miss_usd,
        support=rules.support,
    )
    sites = [names[site] if site >= 0 else None for site in found.site.tolist()]
    ids = [each.job_id for each in body.jobs]
    columns = zip(ids, sites, found.reason, found.gain_usd.tolist(), found.safe.tolist(), strict=True)
    answers = [dict(zip(ROUTED, row, strict=True)) for row in columns]
    return Answered(
        body=written({"answer_id": context.answer_id, "policy": rules.policy.name, "routes": answers}),
        counts=Counter(("route", reason) for reason in found.reason),
    )


def _state(rows: Sequence[SiteRow], moment: datetime) -> SiteState:
    second = moment.timestamp() % DAY_S
    return SiteState(
        free=_whole([row.free for row in rows]),
        capacity=_whole([row.gpus for row in rows]),
        gpu_kw=np.array([row.gpu_kw for row in rows]),
        price=np.array([row.price_usd_per_kwh for row in rows]),
        carbon=np.array([row.carbon_g_per_kwh for row in rows]),
        now_step=int(second // STEP_S),
    )


def _waiting(rows: Sequence[RoutedJob], origin: IntArray, state: SiteState, rules: RoutingPolicy) -> WaitingJobs:
    energy = (state.price + state.carbon * rules.carbon_usd_per_t / G_PER_T).mean(axis=1)
    usd: FloatArray = np.array([row.data_gb for row in rows])
    usd = usd * (rules.egress_usd_per_gb + rules.kwh_per_gb * energy[origin])
    away = np.arange(len(state.free))[None, :] != origin[:, None]
    return WaitingJobs(
        gpus=_whole([row.gpus for row in rows]),
        steps=np.ceil(np.array([row.run_time_s for row in rows]) / STEP_S).astype(np.int64),
        due_in=np.floor(np.array([row.due_in_s for row in rows]) / STEP_S).astype(np.int64),
        origin=origin,
        move_usd=usd[:, None] * away,
    )


def _whole(values: object) -> IntArray:
    return np.array(values, dtype=np.int64)
