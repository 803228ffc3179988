"""Recommendation calls: run Algorithm 1 on each job with the service's models (`LivePredictor`).

Algorithm 1 (Yang, Hong and Tang) shrinks requests; it is in `scheduler_core.shrink`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from modelserve.bundle.alike import held
from modelserve.bundle.card import RUNTIME_TARGET, USAGE_TARGETS
from modelserve.bundle.predictor import Sources, calibrated_use, knowledge_of
from modelserve.bundle.run_times import calibrated_run_times
from modelserve.calls.context import Answered, Kind, RequestContext, Whose, asked_of
from modelserve.contract.fields import Minimums
from modelserve.contract.requests import NO_FLOORS, RecommendBody, RecommendJob, job_of, request_of
from modelserve.contract.writing import Values, answer_of, written
from modelserve.settings import TypePolicy
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import (
    RESOURCES,
    FloatArray,
    IntArray,
    Job,
    Knowledge,
    PeakUse,
    Predictor,
    Recommendation,
    Request,
    RunTimes,
)

if TYPE_CHECKING:
    from modelserve.loading.served import ServedModel

__all__ = ["POLICY", "LivePredictor", "decide", "minimum_of", "recommended"]

UNKNOWN: Final = Knowledge()
"""Knowledge about a job without a run-time model: no important resources and no training range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePredictor:
    """A predictor for the jobs of one call, with the models and feature rows of the call's request context.

    A job is predicted by the model of its workload if there is one, otherwise by the model of its task type. Without a
    model, the prediction is NaN. If the model could not be loaded or fails, `PredictorUnavailable` is raised with the
    reason. `places` maps the `id` of each job object to the job's position in the call.
    """

    context: RequestContext
    places: Mapping[int, int]
    cited: dict[Whose, Sources] = field(default_factory=dict)

    @classmethod
    def seeing(cls, context: RequestContext, jobs: Sequence[Job]) -> "LivePredictor":
        """Return a predictor for the jobs of one call, with the call's request context."""
        # Two jobs of a call may be equal, so the key is `id(job)`; it is unique because the call keeps the jobs alive.
        return cls(context=context, places={id(job): i for i, job in enumerate(jobs)})

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict k run times; the i-th is the run time of `jobs[rows[i]]` with the request `requests[i]`.

        `rows` has shape (k,), `requests` (k, 3). Each model scores all its rows as one matrix.
        """
        p50, p90 = np.full((2, len(rows)), np.nan)
        for model, members in self._by_model("runtime", jobs):
            place = np.full(len(jobs), -1, dtype=np.int64)
            place[members] = np.arange(len(members))
            mine = np.flatnonzero(place[rows] >= 0)
            if not len(mine):
                continue
            mine_of_model = place[rows[mine]]
            asked = [asked_of(jobs[i], model.history, self.context) for i in members]
            seen = self.context.rows(model, asked, self._places(jobs, members), counted=False)
            matrix = model.rows.with_requests(seen.matrix, asked, mine_of_model, requests[mine])
            raw = self.context.margins(model, RUNTIME_TARGET, matrix)
            answer = calibrated_run_times(model.bundle.card, raw, seen.base_log_s[mine_of_model])
            p50[mine], p90[mine] = answer.p50, answer.p90
        return RunTimes(p50=p50, p90=p90)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Return upper bounds on each job's peak use per instance (n,), and the number of measured runs behind each."""
        use = {target: np.full(len(jobs), np.nan) for target in USAGE_TARGETS}
        runs = np.zeros(len(jobs), dtype=np.int64)
        for model, members in self._by_model("usage", jobs):
            asked = [asked_of(jobs[i], model.history, self.context) for i in members]
            seen = self.context.rows(model, asked, self._places(jobs, members), counted=True)
            card = model.bundle.card
            raw = self.context.outputs(model, seen)
            answer = {target: calibrated_use(card, target, raw[target]) for target in card.targets}
            counted = seen.runs
            if card.alike_by_key is not None:
                answer, counted = held(card.alike_by_key, [jobs[i] for i in members], answer, counted)
            for target, values in answer.items():
                use[target][members] = values
            runs[members] = counted
        return PeakUse(runs=runs, **use)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return the important resources and the training range of requests of each job's run-time model (n,)."""
        known = [UNKNOWN] * len(jobs)
        for model, members in self._by_model("runtime", jobs):
            of_model = knowledge_of(model.bundle.card)
            for i in members:
                known[i] = of_model
        return known

    def sources(self, job: Job) -> Sources:
        """Return the models that predict a job, the end of their history, and why a model could not be loaded."""
        whose = _whose(job)
        found = self.cited.get(whose)
        if found is None:
            found = self.cited[whose] = self._sources(whose)
        return found

    def _sources(self, whose: Whose) -> Sources:
        runtime, usage = self.context.choice("runtime", whose), self.context.choice("usage", whose)
        models = [choice.model for choice in (runtime, usage) if choice.model is not None]
        return Sources(
            run_time=None if runtime.model is None else runtime.model.reference,
            usage=None if usage.model is None else usage.model.reference,
            history=min((model.bundle.card.until.astimezone(UTC) for model in models), default=None),
            failure=runtime.failure or usage.failure,
        )

    def _by_model(self, kind: Kind, jobs: Sequence[Job]) -> "list[tuple[ServedModel, list[int]]]":
        alike: dict[Whose, list[int]] = defaultdict(list)
        for i, job in enumerate(jobs):
            alike[_whose(job)].append(i)
        members: dict[str, tuple[ServedModel, list[int]]] = {}
        for whose, rows in alike.items():
            choice = self.context.choice(kind, whose)
            if choice.model is not None:
                members.setdefault(choice.model.reference, (choice.model, []))[1].extend(rows)
            elif choice.failure is not None:
                raise PredictorUnavailable(choice.failure)
        return [(model, sorted(rows)) for model, rows in members.values()]

    def _places(self, jobs: Sequence[Job], members: Sequence[int]) -> IntArray:
        return np.array([self.places.get(id(jobs[i]), i) for i in members], dtype=np.int64)


def _whose(job: Job) -> Whose:
    return (job.trace, job.workload, job.task_type)


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = LivePredictor


def recommended(context: RequestContext, body: RecommendBody) -> Answered:
    """Return the response to a recommendation call."""
    now = datetime.fromtimestamp(context.now, UTC)
    brakes = [context.braked(row) for row in body.jobs]
    jobs = []
    for row, brake in zip(body.jobs, brakes, strict=True):
        # The minimum of a job that must not be shrunk is its request.
        least = request_of(row) if brake else minimum_of(context, row, body.floors)
        jobs.append(job_of(row, trace=context.trace or "", submitted=now, minimum=least))
    predictor = LivePredictor.seeing(context, jobs)
    sources = [predictor.sources(job) for job in jobs]
    policies = {name: policy_of(body, context.types.get(name)) for name in {job.task_type for job in jobs}}
    found = decide(jobs, sources, predictor, [policies[job.task_type] for job in jobs])
    recommendations = [
        _braked(answer_of(each, source), brake) | _beside(context, row, source, each)
        for row, source, brake, each in zip(body.jobs, sources, brakes, found, strict=True)
    ]
    return Answered(
        body=written({"answer_id": context.answer_id, "recommendations": recommendations}),
        models=context.cited(),
        counts=Counter(
            ("recommendation", resource, str(reason)) for each in found for resource, reason in each.reasons.items()
        ),
        reclaimed=_reclaimed(jobs, found),
    )


def policy_of(body: RecommendBody, of_type: TypePolicy | None) -> ShrinkPolicy:
    """Return Algorithm 1's parameters for a task type: from the call, else the type's settings, else `POLICY`."""
    called = {"theta": body.theta, "alpha0": body.alpha, "guard": body.guard}
    of_settings = {} if of_type is None else of_type.parameters()
    return replace(POLICY, **of_settings | {name: value for name, value in called.items() if value is not None})


def _beside(context: RequestContext, row: RecommendJob, source: Sources, found: Recommendation) -> Values:
    age_s = None if source.history is None else max(context.now - source.history.timestamp(), 0.0)
    return {
        "mode": context.mode(row),
        "alpha": found.alpha,
        "model_decided": found.model_decided,
        "evidence": {"measured_runs": found.runs, "history_age_s": age_s},
    }


def _braked(answer: Values, brake: str | None) -> Values:
    notes = [f"not shrunk: {brake}" if brake else None, answer["note"]]
    return answer | {"note": "; ".join(str(note) for note in notes if note) or None}


def minimum_of(context: RequestContext, row: RecommendJob, of_call: Minimums) -> Request | None:
    """Return the minimum amounts of a job, or None: the largest of the call's, its own, its type's and the learnt."""
    of_type = context.types.get(row.task_type)
    floors = (of_call, row.floors, NO_FLOORS if of_type is None else of_type.minimums)
    given = [each for each in floors if each is not NO_FLOORS]
    killed_gib = context.memory_floor_gib(row)
    if math.isnan(killed_gib) and not given:
        return None
    least = {name: [getattr(each, name) for each in given] for name in RESOURCES}
    least["mem_gib"].append(None if math.isnan(killed_gib) else killed_gib)
    return Request(**{name: _largest(values) for name, values in least.items()})


def _largest(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=math.nan)


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
