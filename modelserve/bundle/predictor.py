"""Predictions from bundles in this process; implements `scheduler_core.types.Predictor`.

`InProcessPredictor` builds the features of many jobs as data frames (`features.build`). The service's predictor builds
feature rows of few jobs faster; a test checks that they are equal to the bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from features.build import build, with_requests
from features.columns.feature import Lookback
from features.columns.recency import extremes_before
from features.contract import RESPONSE_CONTRACT, FeatureContract
from features.errors import FeatureError
from features.history import History, cluster_of_vc
from features.online import EVIDENCE_KEYS
from features.sets import FEATURES
from features.vocabulary import ROLE_WHOLE_JOB
from modelserve.bundle.alike import Evidence, held
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import RUNTIME_TARGET, USAGE_TARGETS, Card, VerdictWord
from modelserve.bundle.run_times import (
    base_log_s,
    basis_of,
    calibrated_run_times,
    outputs_of,
    response_log_s,
    run_time_features,
)
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import RESOURCES, FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, RunTimes

__all__ = ["InProcessPredictor", "Kind", "ModelPredictor", "Sources", "calibrated_use", "jobs_frame"]

TEXTS: Final = ("trace", "cluster", "job_id", "role", "user", "vc", "group", "workload", "task_type", "gpu_type")
REQUESTS: Final = ("req_cpu_cores", "req_mem_gib", "req_gpus")
COLUMNS: Final[Mapping[str, pl.DataType]] = {
    **{name: pl.String() for name in TEXTS},
    "submit_ts": pl.Datetime("us", "UTC"),
    "instances": pl.Int32(),
    **{name: pl.Float64() for name in REQUESTS},
}
"""The columns of the canonical jobs table that are known at submission, with their types."""


def jobs_frame(jobs: Sequence[Job], history: History) -> pl.DataFrame:
    """Return the canonical columns of `jobs`, one row per job in the same order; an unknown request is null.

    A job without a cluster gets that of its virtual cluster in the history, otherwise the history's largest cluster.
    """
    clusters = cluster_of_vc(history)
    rows = [
        {
            **{name: getattr(job, name) for name in TEXTS},
            "cluster": job.cluster or clusters.get(job.vc, clusters[None]),
            "submit_ts": round(job.submit_ts * 1e6),
            "instances": job.instances,
            **dict(zip(REQUESTS, job.request.row(), strict=True)),
        }
        for job in jobs
    ]
    frame = pl.DataFrame(rows, schema={**COLUMNS, "submit_ts": pl.Int64()})
    submitted = pl.from_epoch("submit_ts", time_unit="us").dt.replace_time_zone("UTC")
    return frame.with_columns(submitted, pl.col(REQUESTS).fill_nan(None))


def completed(frame: pl.DataFrame, trace: str, task_type: str, history: History) -> pl.DataFrame:
    """Add the missing canonical columns to `frame`.

    A missing trace or task type is filled with the argument; a missing cluster, role or instances with a default; any
    other missing column with nulls.
    """
    usual = {
        "trace": trace,
        "task_type": task_type,
        "cluster": cluster_of_vc(history)[None],
        "role": ROLE_WHOLE_JOB,
        "instances": 1,
    }
    given = set(frame.columns)
    return frame.select(
        pl.col(name).cast(dtype) if name in given else pl.lit(usual.get(name), dtype=dtype).alias(name)
        for name, dtype in COLUMNS.items()
    )


def candidate_rows(
    contract: FeatureContract, features: pl.DataFrame, frame: pl.DataFrame, rows: IntArray, requests: FloatArray
) -> npt.NDArray[np.float32]:
    """Encode jobs with other requests than their own: row i (of m) is job `rows[i]` with the request `requests[i]`.

    `features` are the jobs' features as a model takes them, `frame` their canonical columns. The result (m, k) equals
    the encoded result of `with_requests`, but each job is encoded once.
    """
    changed = [name for name in contract.names if FEATURES[name].from_request]
    matrix: npt.NDArray[np.float32] = contract.encode(features)[rows]
    if changed:
        needed = sorted({column for name in changed for column in FEATURES[name].needs})
        columns = with_requests(features.select(changed), frame.select(needed), rows, requests)
        matrix[:, [contract.names.index(name) for name in changed]] = columns.to_numpy()
    return matrix


Kind = Literal["runtime", "usage"]
Model = TypeVar("Model")


def use_quantiles(bundle: Bundle, features: pl.DataFrame) -> dict[str, FloatArray]:
    """Predict the upper quantile of use per instance (n,) by target, NaN for a target without a booster."""
    matrix = bundle.contract.encode(features)
    use = {target: np.full(len(matrix), np.nan) for target in USAGE_TARGETS}
    for target in bundle.boosters:
        use[target] = calibrated_use(bundle.card, target, outputs_of(bundle, target, matrix))
    return use


def calibrated_use(card: Card, target: str, raw: FloatArray) -> FloatArray:
    """Convert the outputs (n, 1) of a target's booster from log1p units into use (n,), at least 0."""
    use: FloatArray = np.maximum(np.expm1(raw[:, 0] + card.offsets.get(target, 0.0)), 0.0)
    return use


def evidence_of(bundle: Bundle, frame: pl.DataFrame) -> Evidence:
    """Return the evidence for the use of each job: earlier measured runs of its group; without a group, of its user."""
    seen = Lookback.of(frame, bundle.history)
    begin, stop = seen.span("measured", EVIDENCE_KEYS)
    of_group, of_user = (stop - begin).reshape(-1, len(EVIDENCE_KEYS)).T
    runs = np.where(seen.unknown(EVIDENCE_KEYS[0]), of_user, of_group)
    return Evidence(runs=runs, extremes=extremes_before(seen))


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


class ModelPredictor(ABC, Generic[Model]):
    """A predictor that groups jobs by model, so that each model scores all its jobs as one matrix.

    A job is predicted by the model of its trace and workload, otherwise by the model of its trace and task type. A job
    without a model gets NaN, so its request is kept (`cold_start`). If the model of a job cannot be read or fails, the
    methods raise `PredictorUnavailable` with the reason. A subclass finds the models and makes their predictions.
    """

    @abstractmethod
    def choice(self, kind: Kind, job: Job) -> tuple[Model | None, str | None]:
        """Return the model of a job; None without a model, with the reason if it cannot be read."""

    @abstractmethod
    def bundle(self, model: Model) -> Bundle:
        """Return the bundle of a model."""

    @abstractmethod
    def candidates(self, model: Model, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict k run times with one model; the i-th is of `jobs[rows[i]]` with the request `requests[i]` (k, 3)."""

    @abstractmethod
    def use(self, model: Model, jobs: Sequence[Job]) -> tuple[Mapping[str, FloatArray], Evidence]:
        """Return upper bounds (n,) on the use of jobs by target, and the evidence behind them."""

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
            mine, card = [jobs[i] for i in members], self.bundle(model).card
            answer, evidence = self.use(model, mine)
            seen = evidence.runs
            if card.alike_by_key is not None:
                answer, seen = held(card.alike_by_key, mine, answer, evidence)
            for target, values in answer.items():
                use[target][members] = values
            runs[members] = seen
            if evidence.extremes is not None:
                usual[members] = evidence.extremes[:, -len(RESOURCES) :]
        return PeakUse(runs=runs, usual=usual, **use)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return the important resources and the training range of requests of each job's run-time model (n,)."""
        models = [self.choice("runtime", job)[0] for job in jobs]
        return [Knowledge() if model is None else _knowledge(self.bundle(model).card) for model in models]

    def sources(self, job: Job) -> Sources:
        """Return the models that predict a job, the end of their history, and why a model cannot be read."""
        (runtime, slow), (usage, wide) = self.choice("runtime", job), self.choice("usage", job)
        bundles = [self.bundle(model) for model in (runtime, usage) if model is not None]
        return Sources(
            run_time=None if runtime is None else self.bundle(runtime).reference,
            usage=None if usage is None else self.bundle(usage).reference,
            history=min((bundle.known_until.astimezone(UTC) for bundle in bundles), default=None),
            failure=slow or wide,
            judged_by=None if runtime is None else self.bundle(runtime).card.judged_by,
        )

    def by_model(self, kind: Kind, jobs: Sequence[Job]) -> list[tuple[Model, list[int]]]:
        """Return the models of jobs, each with the sorted indices of its jobs."""
        members: dict[int, tuple[Model, list[int]]] = {}
        for i, job in enumerate(jobs):
            model, failure = self.choice(kind, job)
            if model is not None:
                members.setdefault(id(model), (model, []))[1].append(i)
            elif failure is not None:
                raise PredictorUnavailable(failure)
        return list(members.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcessPredictor(ModelPredictor[Bundle]):
    """A predictor from loaded bundles; `bundles` and `failures` are by registered model name."""

    bundles: Mapping[str, Bundle]
    failures: Mapping[str, str] = field(default_factory=dict)

    def choice(self, kind: Kind, job: Job) -> tuple[Bundle | None, str | None]:
        """Return the bundle of a job, or why it cannot be read."""
        names = [f"{kind}.{job.trace}.{part}" for part in (job.workload, job.task_type) if part is not None]
        bundle = next((self.bundles[name] for name in names if name in self.bundles), None)
        failure = next((self.failures[name] for name in names if name in self.failures), None)
        return bundle, None if bundle is not None else failure

    def verdict_of(self, job: Job) -> VerdictWord | None:
        """Return the verdict of the gate on the run-time model of a job; None without a model or a verdict."""
        bundle, _ = self.choice("runtime", job)
        return None if bundle is None else bundle.card.verdict

    def bundle(self, model: Bundle) -> Bundle:
        """Return the bundle itself."""
        return model

    def candidates(self, model: Bundle, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict run times with one bundle."""
        with _unavailable(model):
            frame = jobs_frame(jobs, model.history)
            seen = run_time_features(model, frame)
            own = outputs_of(model, RUNTIME_TARGET, model.contract.encode(seen.features))
            # The forecast of the request is shifted by as much as the response model's, or else XGBoost's, changes.
            if model.card.responds:
                resources = build(frame, model.history, RESPONSE_CONTRACT.names)
                given = candidate_rows(RESPONSE_CONTRACT, resources, frame, rows, requests)
                raw = own[rows] + response_log_s(model, RESPONSE_CONTRACT.encode(resources), given, rows)
            else:
                raw = outputs_of(
                    model, RUNTIME_TARGET, candidate_rows(model.contract, seen.features, frame, rows, requests)
                )
            return calibrated_run_times(model.card, raw, base_log_s(model, seen, own)[rows])

    def use(self, model: Bundle, jobs: Sequence[Job]) -> tuple[Mapping[str, FloatArray], Evidence]:
        """Bound use with one bundle."""
        with _unavailable(model):
            frame = jobs_frame(jobs, model.history)
            answer = use_quantiles(model, build(frame, model.history, model.contract.names))
        return answer, evidence_of(model, frame)

    def run_time_bases(self, jobs: Sequence[Job]) -> list[tuple[str, int] | None]:
        """Return the source of each job's run time, and the number of ended jobs behind it; None without a model."""
        bases: list[tuple[str, int] | None] = [None] * len(jobs)
        for bundle, members in self.by_model("runtime", jobs):
            combination = bundle.card.combination
            with _unavailable(bundle):
                counts = run_time_features(bundle, jobs_frame([jobs[i] for i in members], bundle.history)).evidence
            for i, of_job in zip(members, counts.tolist(), strict=True):
                bases[i] = basis_of(None if combination is None else combination.members, of_job, bundle.card.rows)
        return bases


@contextmanager
def _unavailable(bundle: Bundle) -> Iterator[None]:
    """Turn errors of a model's prediction into `PredictorUnavailable`."""
    try:
        yield
    except (FeatureError, ValueError) as error:
        raise PredictorUnavailable(f"{bundle.reference}: {error}") from error


def _knowledge(card: Card) -> Knowledge:
    support = {str(resource): ends for resource, ends in card.support.items() if resource in card.judged}
    return Knowledge(important=frozenset(card.important), support=support)


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = InProcessPredictor
