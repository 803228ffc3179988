"""The predictor of the running service: models of one snapshot, their histories as they are now.

What to do with a prediction is `scheduler_core.shrink`'s to decide, and what is known when is
`modelserve.calls.sight`'s. Called by `modelserve.calls`; satisfies
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
from modelserve.calls.sight import Kind, Sight, Whose
from modelserve.contract.requests import JobRow, request_of
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, RunTimes

if TYPE_CHECKING:
    from modelserve.learning.learned import Learned
    from modelserve.loading.models import Snapshot
    from modelserve.loading.served import ServedModel

UNKNOWN: Final = Knowledge()
"""What is known of the resources where no model answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePredictor:
    """A predictor over what one call sees; `places` says where in the call each job stands, by its identity.

    A job is answered by the model of its workload where there is one, else by that of its task type. A job without a
    model is answered NaN; where its model could not be loaded, or falls over, `PredictorUnavailable` says why.
    """

    sight: Sight
    places: Mapping[int, int]
    cited: dict[Whose, Sources] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: "Snapshot", learned: "Learned", jobs: Sequence[Job]) -> "LivePredictor":
        """Return the predictor of the jobs of one call."""
        return cls.seeing(Sight(snapshot=snapshot, learned=learned), jobs)

    @classmethod
    def seeing(cls, sight: Sight, jobs: Sequence[Job]) -> "LivePredictor":
        """Return the predictor of the jobs of one call that has a view already."""
        # Two jobs of one call may be equal, so they are told apart by identity; the call keeps them alive.
        return cls(sight=sight, places={id(job): i for i, job in enumerate(jobs)})

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
            seen = self.sight.rows(model, asked, self._places(jobs, members), counted=False)
            base = Rows(matrix=seen.matrix, reference_log_s=seen.reference_log_s)
            matrix = model.rows.with_requests(base, asked, mine_of_model, requests[mine])
            raw = self.sight.margins(model, RUNTIME_TARGET, matrix)
            answer = calibrated_run_times(model.bundle.card, raw, seen.reference_log_s[mine_of_model])
            p50[mine], p90[mine] = answer.p50, answer.p90
        return RunTimes(p50=p50, p90=p90)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Bound the use of each job's instances (n,) by those alike and the model, and count the runs behind it.

        Raises
        ------
        PredictorUnavailable
            A model cannot answer.
        """
        use = {target: np.full(len(jobs), np.nan) for target in USAGE_TARGETS}
        runs = np.zeros(len(jobs), dtype=np.int64)
        for model, members in self._by_model("usage", jobs):
            asked = [asked_of(jobs[i], model) for i in members]
            seen = self.sight.rows(model, asked, self._places(jobs, members), counted=True)
            card = model.bundle.card
            answer = {t: calibrated_use(card, t, self.sight.margins(model, t, seen.matrix)) for t in card.targets}
            counted = seen.runs
            if card.alike_by_key is not None:
                answer, counted = held(card.alike_by_key, [jobs[i] for i in members], answer, counted)
            for target, values in answer.items():
                use[target][members] = values
            runs[members] = counted
        return PeakUse(runs=runs, **use)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return what the run-time model behind each job knows about the resources (n,)."""
        known = [UNKNOWN] * len(jobs)
        for model, members in self._by_model("runtime", jobs):
            of_model = knowledge_of(model.bundle.card)
            for i in members:
                known[i] = of_model
        return known

    def sources(self, job: Job) -> Sources:
        """Return which models answer for a job, how far their history reaches, and what is wrong where one cannot."""
        whose = _whose(job)
        found = self.cited.get(whose)
        if found is None:
            found = self.cited[whose] = self._sources(whose)
        return found

    def _sources(self, whose: Whose) -> Sources:
        runtime, usage = self.sight.choice("runtime", whose), self.sight.choice("usage", whose)
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
            choice = self.sight.choice(kind, whose)
            if choice.model is not None:
                members.setdefault(choice.model.reference, (choice.model, []))[1].extend(rows)
            elif choice.failure is not None:
                raise PredictorUnavailable(choice.failure)
        return [(model, sorted(rows)) for model, rows in members.values()]

    def _places(self, jobs: Sequence[Job], members: Sequence[int]) -> IntArray:
        return np.array([self.places.get(id(jobs[i]), i) for i in members], dtype=np.int64)


def asked_of(job: Job, model: "ServedModel") -> JobAsked:
    """Return a job as a model's features see it; one that names no cluster is of that of its VC in the history."""
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
    """Return the job as features see it: what it does not name is of `trace`, of its VC's cluster, submitted `now`."""
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
