"""Recommendation calls: Algorithm 1 on each job under its type's policy, with evidence, mode and reasons.

No HTTP; the algorithm is `scheduler_core.shrink`, answers are written by `modelserve.contract.writing`. Called by the
service, and by `modelserve.calls.replay` for logged calls.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from modelserve.bundle.predictor import Sources
from modelserve.calls.live import LivePredictor
from modelserve.calls.logged_context import Answered, Call
from modelserve.calls.request_context import RequestContext
from modelserve.contract.fields import Minimums
from modelserve.contract.requests import NO_FLOORS, RecommendBody, RecommendJob, job_of, request_of
from modelserve.contract.writing import answer_of, written
from modelserve.settings import TypePolicy
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import RESOURCES, Job, Predictor, Recommendation, Request

Types = Mapping[str, TypePolicy]


def recommended(context: RequestContext, body: RecommendBody, call: Call, types: Types) -> Answered:
    """Make the answer from the request context; `types` are the policies of the task types in the settings."""
    now = datetime.fromtimestamp(call.now, UTC)
    brakes = [context.braked(row.trace or call.trace or "", row.task_type, row.cluster) for row in body.jobs]
    jobs = []
    for row, brake in zip(body.jobs, brakes, strict=True):
        # A job that must not shrink has its request as minimum.
        least = request_of(row) if brake else _minimum(context, row, call.trace or "", body.floors, types)
        jobs.append(job_of(row, trace=call.trace or "", submitted=now, minimum=least))
    predictor = LivePredictor.seeing(context, jobs)
    sources = [predictor.sources(job) for job in jobs]
    policies = {task_type: policy_of(body, types.get(task_type)) for task_type in {job.task_type for job in jobs}}
    found = decide(jobs, sources, predictor, [policies[job.task_type] for job in jobs])
    recommendations = [
        _braked(answer_of(each, source), brake) | _beside(context, job, source, each, call)
        for job, source, brake, each in zip(jobs, sources, brakes, found, strict=True)
    ]
    return Answered(
        body=written({"answer_id": call.answer_id, "recommendations": recommendations}),
        models=context.cited(),
        counts=_counts(found),
        reclaimed=_reclaimed(jobs, found),
    )


def policy_of(body: RecommendBody, of_type: TypePolicy | None) -> ShrinkPolicy:
    """Return Algorithm 1's parameters for a task type: the call's, else the type's, else the default."""
    called = {"theta": body.theta, "alpha0": body.alpha, "guard": body.guard}
    of_settings = {} if of_type is None else of_type.parameters()
    return replace(POLICY, **of_settings | {name: value for name, value in called.items() if value is not None})


def _beside(context: RequestContext, job: Job, source: Sources, found: Recommendation, call: Call) -> dict[str, object]:
    age_s = None if source.history is None else max(call.now - source.history.timestamp(), 0.0)
    return {
        "mode": context.mode(job.trace, job.task_type, job.group, job.cluster),
        "alpha": found.alpha,
        "model_decided": found.model_decided,
        "evidence": {"measured_runs": found.runs, "history_age_s": age_s},
    }


def _braked(answer: dict[str, object], brake: str | None) -> dict[str, object]:
    notes = [f"not shrunk: {brake}" if brake else None, answer["note"]]
    return answer | {"note": "; ".join(str(note) for note in notes if note) or None}


def _minimum(context: RequestContext, row: RecommendJob, trace: str, of_call: Minimums, types: Types) -> Request | None:
    of_type = types.get(row.task_type)
    floors = (of_call, row.floors, NO_FLOORS if of_type is None else of_type.minimums)
    given = [each for each in floors if each is not NO_FLOORS]
    killed_gib = context.memory_floor_gib(row.trace or trace, row.cluster, row.group, row.role, row.user)
    if math.isnan(killed_gib) and not given:
        return None
    least = {name: [getattr(each, name) for each in given] for name in RESOURCES}
    least["mem_gib"].append(None if math.isnan(killed_gib) else killed_gib)
    return Request(**{name: _largest(values) for name, values in least.items()})


def _largest(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=math.nan)


def _counts(found: Sequence[Recommendation]) -> dict[tuple[str, ...], int]:
    counted: dict[tuple[str, ...], int] = {}
    for each in found:
        for resource, reason in each.reasons.items():
            key = ("recommendation", resource, str(reason))
            counted[key] = counted.get(key, 0) + 1
    return counted


def _reclaimed(jobs: Sequence[Job], found: Sequence[Recommendation]) -> dict[str, tuple[float, float]]:
    totals = {}
    for place, resource in enumerate(RESOURCES):
        known = [(j.instances, f.request.row()[place], f.target.row()[place]) for j, f in zip(jobs, found, strict=True)]
        asked = sum(count * want for count, want, _ in known if want == want)
        given = sum(count * target for count, want, target in known if want == want)
        totals[resource] = (asked, given)
    return totals


POLICY: Final = ShrinkPolicy(device_mem_gib=GPU_MEM_GIB_OF_TYPE)
"""Default parameters of Algorithm 1 in the service."""


def decide(
    jobs: Sequence[Job], sources: Sequence[Sources], predictor: Predictor, policies: Sequence[ShrinkPolicy]
) -> list[Recommendation]:
    """Run Algorithm 1 on each job under its own policy (n, the same object for the same policy), in the order given.

    Jobs go together by policy and by the models that answer, so that a model that fails takes only its own jobs along.
    """
    groups: dict[tuple[str | None, str | None, str | None, int], list[int]] = defaultdict(list)
    for i, (source, policy) in enumerate(zip(sources, policies, strict=True)):
        groups[source.run_time, source.usage, source.failure, id(policy)].append(i)
    found: dict[int, Recommendation] = {}
    for members in groups.values():
        together = shrink([jobs[i] for i in members], predictor, policies[members[0]])
        found.update(zip(members, together, strict=True))
    return [found[i] for i in range(len(jobs))]
