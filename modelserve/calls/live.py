"""The predictor of the running service: the models of one snapshot with their current histories.

Shrinking is decided in `scheduler_core.shrink`. Called by recommendations and what-if calls; satisfies
`scheduler_core.types.Predictor`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Final

import numpy as np

from features.online import JobAsked, OnlineHistory
from features.rows import Rows
from modelserve.bundle.alike import held
from modelserve.bundle.card import RUNTIME_TARGET, USAGE_TARGETS
from modelserve.bundle.predictor import Sources, calibrated_run_times, calibrated_use, knowledge_of
from modelserve.calls.request_context import Kind, RequestContext, Whose
from modelserve.contract.requests import JobRow, request_of
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, RunTimes

if TYPE_CHECKING:
    from modelserve.learning.learned import Learned
    from modelserve.loading.models import Snapshot
    from modelserve.loading.served import ServedModel

UNKNOWN: Final = Knowledge()
"""Knowledge about the resources if no model answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePredictor:
    """A predictor over one request context; `places` maps a job object's identity to its position in the call.

    A job is predicted by the model of its workload if there is one, otherwise by that of its task type. Without a model
    the prediction is NaN; if the model could not be loaded or fails, `PredictorUnavailable` is raised with the reason.
    """

    context: RequestContext
    places: Mapping[int, int]
    cited: dict[Whose, Sources] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: "Snapshot", learned: "Learned", jobs: Sequence[Job]) -> "LivePredictor":
        """Return the predictor of the jobs of one call."""
        return cls.seeing(RequestContext(snapshot=snapshot, learned=learned), jobs)

    @classmethod
    def seeing(cls, context: RequestContext, jobs: Sequence[Job]) -> "LivePredictor":
        """Return the predictor of the jobs of one call from its request context."""
        # Jobs of one call may be equal, so object identity is the key; the call keeps the objects alive.
        return cls(context=context, places={id(job): i for i, job in enumerate(jobs)})

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict `len(rows)` run times, one matrix per model: row i is `jobs[rows[i]]` with `requests[i]` (k, 3).

        Raises
        ------
        PredictorUnavailable
            A model cannot answer.
        """
        p50, p90 = np.full((2, len(rows)), np.nan)
        for model, members in self._by_model("runtime", jobs):
            place = np.full(len(jobs), -1, dtype=np.int64)
            place[members] = np.arange(len(members))
            mine = np.flatnonzero(place[rows] >= 0)
            if not len(mine):
                continue
            mine_of_model = place[rows[mine]]
            asked = [asked_of(jobs[i], model) for i in members]
            seen = self.context.rows(model, asked, self._places(jobs, members), counted=False)
            base = Rows(matrix=seen.matrix, reference_log_s=seen.reference_log_s)
            matrix = model.rows.with_requests(base, asked, mine_of_model, requests[mine])
            raw = self.context.margins(model, RUNTIME_TARGET, matrix)
            answer = calibrated_run_times(model.bundle.card, raw, seen.reference_log_s[mine_of_model])
            p50[mine], p90[mine] = answer.p50, answer.p90
        return RunTimes(p50=p50, p90=p90)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Return upper bounds of peak use per instance (n,), and the measured runs behind each.

        Raises
        ------
        PredictorUnavailable
            A model cannot answer.
        """
        use = {target: np.full(len(jobs), np.nan) for target in USAGE_TARGETS}
        runs = np.zeros(len(jobs), dtype=np.int64)
        for model, members in self._by_model("usage", jobs):
            asked = [asked_of(jobs[i], model) for i in members]
            seen = self.context.rows(model, asked, self._places(jobs, members), counted=True)
            card = model.bundle.card
            answer = {t: calibrated_use(card, t, self.context.margins(model, t, seen.matrix)) for t in card.targets}
            counted = seen.runs
            if card.alike_by_key is not None:
                answer, counted = held(card.alike_by_key, [jobs[i] for i in members], answer, counted)
            for target, values in answer.items():
                use[target][members] = values
            runs[members] = counted
        return PeakUse(runs=runs, **use)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return what the training of each job's run-time model showed about the resources (n,)."""
        known = [UNKNOWN] * len(jobs)
        for model, members in self._by_model("runtime", jobs):
            of_model = knowledge_of(model.bundle.card)
            for i in members:
                known[i] = of_model
        return known

    def sources(self, job: Job) -> Sources:
        """Return the models that answer for a job, the end of their history, and the failure if one cannot."""
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


def asked_of(job: Job, model: "ServedModel") -> JobAsked:
    """Return a job as features are built from it; a missing cluster is looked up by VC in the history."""
    request = job.request
    return JobAsked(
        trace=job.trace,
        cluster=job.cluster or model.history.cluster_of(job.vc),
        job_id=job.job_id,
        role=job.role,
        user=job.user,
        vc=job.vc,
        group=job.group,
        workload=job.workload,
        task_type=job.task_type,
        gpu_type=job.gpu_type,
        submit_us=round(job.submit_ts * 1e6),
        instances=job.instances,
        req_cpu_cores=request.cpu_cores,
        req_mem_gib=request.mem_gib,
        req_gpus=request.gpus,
        time_limit_s=np.nan,
        priority=np.nan,
    )


def asked_of_row(row: JobRow, history: OnlineHistory, *, trace: str, now: float) -> JobAsked:
    """Return a job as features are built from it; defaults are `trace`, the cluster of its VC and `now`."""
    request = request_of(row)
    return JobAsked(
        trace=row.trace or trace,
        cluster=row.cluster or history.cluster_of(row.vc),
        job_id=row.job_id,
        role=row.role,
        user=row.user,
        vc=row.vc,
        group=row.group,
        workload=row.workload,
        task_type=row.task_type,
        gpu_type=row.gpu_type,
        submit_us=round((now if row.submit_ts is None else row.submit_ts.timestamp()) * 1e6),
        instances=row.instances,
        req_cpu_cores=request.cpu_cores,
        req_mem_gib=request.mem_gib,
        req_gpus=request.gpus,
        time_limit_s=np.nan,
        priority=np.nan,
    )


def _whose(job: Job) -> Whose:
    return (job.trace, job.workload, job.task_type)


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = LivePredictor
