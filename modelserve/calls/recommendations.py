"""Recommendations by Algorithm 1 (Yang, Hong and Tang), which shrinks requests: of the service, and without it.

The algorithm is in `scheduler_core.shrink`; the predictions come from the models of the service, or from bundles.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from modelserve.bundle.alike import OWN_RUNS
from modelserve.bundle.predictor import ModelPredictor, Sources
from modelserve.calls.context import Answered, RequestContext, Values, finite, moment, written
from modelserve.contract.fields import RequestRow
from modelserve.contract.requests import NO_FLOORS, JobRow, RecommendBody, RecommendJob, job_of, request_of
from modelserve.settings import TypePolicy
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import RESOURCES, Job, Predictor, Reason, Recommendation, Request

__all__ = ["recommend", "recommended"]

POLICY: Final = ShrinkPolicy(device_mem_gib=GPU_MEM_GIB_OF_TYPE)
"""Default parameters of Algorithm 1 in the service."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NOISE: Final = 1e-12
"""Maximum relative excess over a six-decimal number that counts as floating-point noise and is not rounded up."""
MEASURED: Final = {"cpu_cores": "CPU use", "mem_gib": "peak memory", "gpus": "GPU use or GPU memory"}


def recommended(context: RequestContext, body: RecommendBody) -> Answered:
    """Return the response to a recommendation call."""
    answers, told = advise(context, body)
    return replace(told, body=written({"answer_id": context.answer_id, "recommendations": answers}))


def advise(context: RequestContext, body: RecommendBody) -> tuple[list[Values], Answered]:
    """Return the recommendations as `contract.jobs.Recommended`, and a response without a body: models and counts."""
    now = datetime.fromtimestamp(context.now, UTC)
    brakes = [context.braked(row) for row in body.jobs]
    jobs = []
    for row, brake in zip(body.jobs, brakes, strict=True):
        # The minimum of a job that must not be shrunk is its request.
        least = request_of(row) if brake else minimum_of(context, row, body.floors)
        jobs.append(job_of(row, trace=context.trace or "", submitted=now, minimum=least))
    kinds = [(job.trace, job.workload, job.task_type) for job in jobs]
    known = {kind: context.sources(job) for kind, job in dict(zip(kinds, jobs, strict=True)).items()}
    sources = [known[kind] for kind in kinds]
    policies = {name: policy_of(body, context.types.get(name)) for name in {job.task_type for job in jobs}}
    found = decide(jobs, sources, context, [policies[job.task_type] for job in jobs])
    rows = zip(body.jobs, sources, brakes, found, strict=True)
    answers = [_live(context, row, source, brake, each) for row, source, brake, each in rows]
    return answers, Answered(
        body=b"",
        models=context.cited(),
        counts=Counter(
            ("recommendation", resource, str(reason)) for each in found for resource, reason in each.reasons.items()
        ),
        reclaimed=_reclaimed(jobs, found),
    )


def recommend(
    rows: Sequence[JobRow],
    predictor: ModelPredictor,
    *,
    trace: str,
    now: datetime | None = None,
    policy: ShrinkPolicy = POLICY,
) -> list[Values]:
    """Recommend a smaller request for each job without the service, in the order of `rows`.

    Jobs for which the predictor fails keep their request (reason `predictor_unavailable`). `trace` and `now` are as in
    `jobs_of`.
    """
    jobs, sources = jobs_of(rows, predictor, trace, now)
    found = decide(jobs, sources, predictor, [policy] * len(jobs))
    return [answer_of(each, cited) for each, cited in zip(found, sources, strict=True)]


def jobs_of(
    rows: Sequence[JobRow], predictor: ModelPredictor, trace: str, now: datetime | None
) -> tuple[list[Job], list[Sources]]:
    """Return the jobs with the models that predict them; `trace` is the trace of jobs that name none.

    A job without a submit time is submitted `now`, or if that is None, at the end of the history of its models.
    """
    jobs, sources = [], []
    for row in rows:
        job = job_of(row, trace=trace, submitted=now or EPOCH)
        cited = predictor.sources(job)
        if row.submit_ts is None and now is None and cited.history is not None:
            job = replace(job, submit_ts=cited.history.timestamp())
        jobs.append(job)
        sources.append(cited)
    return jobs, sources


def decide(
    jobs: Sequence[Job], sources: Sequence[Sources], predictor: Predictor, policies: Sequence[ShrinkPolicy]
) -> list[Recommendation]:
    """Run Algorithm 1 on each job with its own policy, and return the recommendations in the order of `jobs`.

    Jobs with the same policy object and the same models are decided together. A model that fails therefore affects only
    its own jobs.
    """
    groups: dict[tuple[str | None, str | None, str | None, int], list[int]] = defaultdict(list)
    for i, (source, policy) in enumerate(zip(sources, policies, strict=True)):
        groups[source.run_time, source.usage, source.failure, id(policy)].append(i)
    found: dict[int, Recommendation] = {}
    for members in groups.values():
        together = shrink([jobs[i] for i in members], predictor, policies[members[0]])
        found.update(zip(members, together, strict=True))
    return [found[i] for i in range(len(jobs))]


def policy_of(body: RecommendBody, of_type: TypePolicy | None) -> ShrinkPolicy:
    """Return Algorithm 1's parameters for a task type: of the call, by default of its settings, then of `POLICY`."""
    called = {"theta": body.theta, "alpha0": body.alpha, "guard": body.guard}
    of_settings = {} if of_type is None else of_type.parameters()
    return replace(POLICY, **of_settings | {name: value for name, value in called.items() if value is not None})


def minimum_of(context: RequestContext, row: RecommendJob, of_call: RequestRow) -> Request | None:
    """Return the largest minimum amounts of a job: of the call, the job, its type, or learnt ones; None without any."""
    of_type = context.types.get(row.task_type)
    floors = (of_call, row.floors, NO_FLOORS if of_type is None else of_type.minimums)
    return largest(floors, context.memory_floor_gib(row))


def largest(floors: Iterable[RequestRow], killed_gib: float = math.nan) -> Request | None:
    """Return the largest of some minimum amounts and the memory at which similar jobs were killed; None if none."""
    given = [each for each in floors if each is not NO_FLOORS]
    if math.isnan(killed_gib) and not given:
        return None
    least = {name: [value for each in given if (value := getattr(each, name)) is not None] for name in RESOURCES}
    if not math.isnan(killed_gib):
        least["mem_gib"].append(killed_gib)
    return Request(**{name: max(values, default=math.nan) for name, values in least.items()})


def _live(
    context: RequestContext, row: RecommendJob, source: Sources, brake: str | None, found: Recommendation
) -> Values:
    answer = answer_of(found, source)
    notes = [f"not shrunk: {brake}" if brake else None, answer["note"]]
    age_s = None if source.history is None else max(context.now - source.history.timestamp(), 0.0)
    return answer | {
        "mode": context.mode(row),
        "alpha": found.alpha,
        "model_decided": found.model_decided,
        "evidence": {"measured_runs": found.runs, "history_age_s": age_s},
        "note": "; ".join(note for note in notes if note) or None,
    }


def answer_of(found: Recommendation, sources: Sources) -> Values:
    """Return a recommendation as a dict with keys of `contract.jobs.Recommended`; unknown values are None.

    Recommended amounts are rounded up (`rounded_up`).
    """
    asked = found.request
    requested = _amounts(asked.row())
    return {
        "job_id": found.job_id,
        "request": requested,
        "target": requested if found.target is asked else _amounts(rounded_up(found.target, asked)),
        "lower_bound": _amounts(rounded_up(found.lower_bound, asked)),
        "run_time_s": {"p50": finite(found.run_time_p50_s), "p90": finite(found.run_time_p90_s)},
        "run_time_change": finite(found.run_time_change),
        "reasons": {name: str(found.reasons[name]) if name in found.reasons else None for name in RESOURCES},
        "judged_by": sources.judged_by,
        "models": {"run_time": sources.run_time, "usage": sources.usage},
        "history": None if sources.history is None else moment(sources.history),
        "measured_runs": found.runs,
        "raise_to": _amounts(found.raise_to.row()),
        "note": _note(found, sources),
    }


def _amounts(row: tuple[float, float, float]) -> dict[str, float | None]:
    cpu_cores, mem_gib, gpus = row
    return {"cpu_cores": finite(cpu_cores), "mem_gib": finite(mem_gib), "gpus": finite(gpus)}


def _note(found: Recommendation, sources: Sources) -> str | None:
    """Return the error of a failed predictor, or why nothing is known about a job or a resource."""
    reasons = found.reasons
    unmeasured = [MEASURED[name] for name, reason in reasons.items() if reason == Reason.NOT_MEASURED]
    if found.note:
        return found.note
    if Reason.COLD_START not in reasons.values():
        return f"not measured in similar jobs: {', '.join(unmeasured)}" if unmeasured else None
    missing = [kind for kind, name in (("run-time", sources.run_time), ("usage", sources.usage)) if name is None]
    if missing:
        return f"no {' and no '.join(missing)} model of this trace and task type"
    needed = f" of {OWN_RUNS}" if found.runs < OWN_RUNS else ""
    return f"{found.runs}{needed} measured runs of this group: too few for a bound"


def rounded_up(amounts: Request, asked: Request) -> tuple[float, float, float]:
    """Return amounts rounded up to six decimals, at most the request; floating-point noise is not rounded up.

    >>> six = Request(cpu_cores=6.0, mem_gib=29.3, gpus=0.5)
    >>> rounded_up(Request(cpu_cores=3.3000000000000003, mem_gib=13.89876543, gpus=0.5), six)
    (3.3, 13.898766, 0.5)
    """
    cpu_cores, mem_gib, gpus = map(_up, amounts.row(), asked.row())
    return cpu_cores, mem_gib, gpus


def _up(value: float, asked: float) -> float:
    if value >= asked or not math.isfinite(value):
        return value
    nearest = round(value, 6)
    rounded = nearest if nearest >= value * (1.0 - NOISE) else math.ceil(value * 1e6) / 1e6
    return min(rounded, asked)


def _reclaimed(jobs: Sequence[Job], found: Sequence[Recommendation]) -> dict[str, tuple[float, float]]:
    totals = {}
    for place, resource in enumerate(RESOURCES):
        known = [(j.instances, f.request.row()[place], f.target.row()[place]) for j, f in zip(jobs, found, strict=True)]
        asked = sum(count * want for count, want, _ in known if want == want)
        given = sum(count * target for count, want, target in known if want == want)
        totals[resource] = (asked, given)
    return totals
