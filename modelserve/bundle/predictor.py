"""Predictions for Algorithm 1, from models in this process; implements `scheduler_core.types.Predictor`.

`InProcessPredictor` predicts from bundles; in the service, the context of a call does (`modelserve.calls.context`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from features.errors import FeatureError
from features.online import JobAsked, OnlineHistory
from modelserve.bundle.alike import held
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import USAGE_TARGETS, Card
from modelserve.bundle.served import Scored, ServedModel, calibrated_run_times
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import RESOURCES, FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, RunTimes

__all__ = ["InProcessPredictor", "Kind", "ModelPredictor", "Sources", "asked_of", "entry_of"]

Kind = Literal["runtime", "usage"]
Held = TypeVar("Held")
Made = TypeVar("Made")


def asked_of(job: Any, history: OnlineHistory, *, trace: str = "", now: float = 0.0) -> JobAsked:  # a job, or its row
    """Convert a job to the form from which features are built; `trace` and `now` (Unix, s) are for one that has none.

    A missing cluster is looked up by VC in the history.
    """
    at, request = job.submit_ts, job.request
    if at is None or isinstance(at, datetime):
        at = now if at is None else at.timestamp()
    return JobAsked(
        trace=job.trace or trace,
        cluster=job.cluster or history.cluster_of(job.vc),
        job_id=job.job_id,
        role=job.role,
        user=job.user,
        vc=job.vc,
        group=job.group,
        workload=job.workload,
        task_type=job.task_type,
        gpu_type=job.gpu_type,
        submit_us=round(at * 1e6),
        instances=job.instances,
        req_cpu_cores=np.nan if request.cpu_cores is None else request.cpu_cores,
        req_mem_gib=np.nan if request.mem_gib is None else request.mem_gib,
        req_gpus=np.nan if request.gpus is None else request.gpus,
    )


def entry_of(held: Mapping[str, Held], kind: Kind, trace: str, workload: str | None, task_type: str) -> Held | None:
    """Return what `held` has for a job: by the model name of its workload if present, else of its task type."""
    names = (f"{kind}.{trace}.{part}" for part in (workload, task_type) if part is not None)
    return next((held[name] for name in names if name in held), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The models that predict a job (`<name>@<version>`, None if there is none), and the end of their history.

    `failure` is the reason why a model that exists for this job cannot be read; `judged_by` that of the run-time
    model's card.
    """

    run_time: str | None
    usage: str | None
    history: datetime | None
    failure: str | None = None
    judged_by: str | None = None


class ModelPredictor(ABC):
    """A predictor that groups jobs by model, so that each model scores all its jobs as one matrix.

    A job is predicted by the model of its trace and workload, otherwise by the model of its trace and task type. A job
    without a model gets NaN, so its request is kept (`cold_start`). If the model of a job cannot be read or fails, the
    methods raise `PredictorUnavailable` with the reason. A subclass finds the models.
    """

    @abstractmethod
    def choice(self, kind: Kind, job: Job) -> tuple[ServedModel | None, str | None]:
        """Return the model of a job; None without a model, with the reason if it cannot be read."""

    @abstractmethod
    def rows(self, model: ServedModel, jobs: Sequence[Job]) -> tuple[Sequence[JobAsked], Scored]:
        """Return jobs in the form from which features are built, and their feature rows."""

    @abstractmethod
    def attempt(self, model: ServedModel, work: Callable[[], Made]) -> Made:
        """Do a model's work; raise `PredictorUnavailable` if it fails."""

    def candidates(self, model: ServedModel, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict k run times with one model; the i-th is of `jobs[rows[i]]` with the request `requests[i]` (k, 3)."""
        asked, seen = self.rows(model, jobs)
        raw = self.attempt(model, lambda: model.changed(asked, seen, rows, requests))
        return calibrated_run_times(model.bundle.card, raw, seen.base_log_s[rows])

    def use(self, model: ServedModel, jobs: Sequence[Job]) -> tuple[dict[str, FloatArray], Scored]:
        """Return upper bounds (n,) on the use of jobs by target, and what was measured of similar jobs."""
        _, seen = self.rows(model, jobs)
        return self.attempt(model, lambda: model.use(seen)), seen

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict k run times; the i-th is the run time of `jobs[rows[i]]` with the request `requests[i]` (k, 3)."""
        p50, p90 = np.full((2, len(rows)), np.nan)
        for model, members in self.by_model("runtime", jobs):
            place = np.full(len(jobs), -1, dtype=np.int64)
            place[members] = np.arange(len(members))
            mine = np.flatnonzero(place[rows] >= 0)
            if len(mine):
                answer = self.candidates(model, [jobs[i] for i in members], place[rows[mine]], requests[mine])
                p50[mine], p90[mine] = answer.p50, answer.p90
        return RunTimes(p50=p50, p90=p90)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Bound the peak use per instance of each job (n,), from the usage model and from similar jobs.

        The result also has the number of measured runs behind each bound.
        """
        use = {target: np.full(len(jobs), np.nan) for target in USAGE_TARGETS}
        runs, usual = np.zeros(len(jobs), dtype=np.int64), np.full((len(jobs), len(RESOURCES)), np.nan)
        for model, members in self.by_model("usage", jobs):
            mine, card = [jobs[i] for i in members], model.bundle.card
            answer, seen = self.use(model, mine)
            behind = seen.rows.runs
            if card.alike_by_key is not None:
                answer, behind = held(card.alike_by_key, mine, answer, seen.rows.runs, seen.rows.extremes)
            for target, values in answer.items():
                use[target][members] = values
            runs[members], usual[members] = behind, seen.rows.extremes[:, -len(RESOURCES) :]
        return PeakUse(runs=runs, usual=usual, **use)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return the important resources and the training range of requests of each job's run-time model (n,)."""
        models = [self.choice("runtime", job)[0] for job in jobs]
        return [Knowledge() if model is None else _knowledge(model.bundle.card) for model in models]

    def sources(self, job: Job) -> Sources:
        """Return the models that predict a job, the end of their history, and why a model cannot be read."""
        (runtime, slow), (usage, wide) = self.choice("runtime", job), self.choice("usage", job)
        bundles = [model.bundle for model in (runtime, usage) if model is not None]
        return Sources(
            run_time=None if runtime is None else runtime.reference,
            usage=None if usage is None else usage.reference,
            history=min((bundle.known_until.astimezone(UTC) for bundle in bundles), default=None),
            failure=slow or wide,
            judged_by=None if runtime is None else runtime.bundle.card.judged_by,
        )

    def by_model(self, kind: Kind, jobs: Sequence[Job]) -> list[tuple[ServedModel, list[int]]]:
        """Return the models of jobs, each with the sorted indices of its jobs."""
        members: dict[int, tuple[ServedModel, list[int]]] = {}
        for i, job in enumerate(jobs):
            model, failure = self.choice(kind, job)
            if model is not None:
                members.setdefault(id(model), (model, []))[1].append(i)
            elif failure is not None:
                raise PredictorUnavailable(failure)
        return list(members.values())


class InProcessPredictor(ModelPredictor):
    """A predictor from loaded bundles; `bundles` and `failures` are by registered model name."""

    def __init__(self, *, bundles: Mapping[str, Bundle], failures: Mapping[str, str] | None = None) -> None:
        self.bundles = bundles
        histories = {id(each.history): OnlineHistory(each.history) for each in bundles.values()}
        self._models = {name: ServedModel.of(each, histories[id(each.history)]) for name, each in bundles.items()}
        self._failures = failures or {}

    def choice(self, kind: Kind, job: Job) -> tuple[ServedModel | None, str | None]:
        """Return the model of a job, or why its bundle cannot be read."""
        whose = kind, job.trace, job.workload, job.task_type
        model = entry_of(self._models, *whose)
        return model, entry_of(self._failures, *whose) if model is None else None

    def rows(self, model: ServedModel, jobs: Sequence[Job]) -> tuple[Sequence[JobAsked], Scored]:
        """Return jobs in the form from which features are built, and their feature rows."""
        asked = [asked_of(job, model.history) for job in jobs]
        return asked, self.attempt(model, lambda: model.look(asked))

    def attempt(self, model: ServedModel, work: Callable[[], Made]) -> Made:
        """Do a model's work."""
        try:
            return work()
        except (FeatureError, ValueError) as error:
            raise PredictorUnavailable(f"{model.reference}: {error}") from error


def _knowledge(card: Card) -> Knowledge:
    support = {str(resource): ends for resource, ends in card.support.items() if resource in card.judged}
    return Knowledge(important=frozenset(card.important), support=support)


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = InProcessPredictor
