"""Predictions from bundles in this process; implements `scheduler_core.types.Predictor`. Called by the commands.

This predictor builds the features of many jobs as data frames (`features.build`). The service has its own predictor,
which builds feature rows of few jobs faster (`features.rows`, `modelserve.calls.recommendations`). Both use the
calibration here, and `tests/modelserve/calls/test_predictions.py` checks that their predictions are equal to the bit.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.build import Referenced, build_referenced
from features.columns.feature import Lookback
from features.errors import FeatureError
from features.online import EVIDENCE_KEYS
from modelserve.bundle.boosters import raw_outputs
from modelserve.bundle.built import Built, LastBuilt, candidate_rows
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import RUNTIME_TARGET, USAGE_TARGETS, Card, held
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, RunTimes

__all__ = [
    "QUANTILE_NAMES",
    "InProcessPredictor",
    "Kind",
    "Sources",
    "calibrated_run_times",
    "calibrated_use",
    "knowledge_of",
]

Kind = Literal["runtime", "usage"]

QUANTILE_NAMES: Final = {0.5: "p50", 0.9: "p90"}
"""The quantiles of run time that are served, with their names in predictions and in `Card.offsets`."""

COMPILED_ROWS: Final = 8192
"""Minimum number of rows that are predicted by compiled trees instead of XGBoost.

Both give equal results. For fewer rows, loading the compiled code takes longer than it saves.
"""


def run_time_features(bundle: Bundle, frame: pl.DataFrame) -> Referenced:
    """Build the features of a run-time model, and the reference run times, for the jobs of a frame (n rows)."""
    return build_referenced(frame, bundle.history, bundle.contract.names, relative=bundle.card.relative)


def run_time_quantiles(bundle: Bundle, features: pl.DataFrame, reference_log_s: FloatArray) -> RunTimes:
    """Predict run times in seconds for a feature frame (n rows): calibrated in log units, then sorted."""
    raw = _outputs(bundle, RUNTIME_TARGET, bundle.contract.encode(features))
    return calibrated_run_times(bundle.card, raw, reference_log_s)


def _outputs(bundle: Bundle, target: str, matrix: npt.NDArray[np.float32]) -> FloatArray:
    """Return the outputs (n, outputs) of a target's booster for a matrix (n, k), before calibration."""
    forest = bundle.forests.get(target)  # None for a model that was never saved to a file
    if forest is None or len(matrix) < COMPILED_ROWS:
        return raw_outputs(bundle.boosters[target], matrix)
    from modelserve.bundle.trees.compiled import CompiledTrees

    return CompiledTrees.made_of(forest).rows(matrix)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The outputs of a run-time booster that are served: column, offset in log units, and name of each."""

    columns: tuple[int, ...]
    offsets: tuple[float, ...]
    names: tuple[str, ...]

    def of_one(self, raw: Sequence[float], reference_log_s: Sequence[float]) -> FloatArray:
        """Convert one row of outputs and reference run times (2,) from log units to ascending run times in seconds."""
        logs = [raw[c] + reference_log_s[c] + offset for c, offset in zip(self.columns, self.offsets, strict=True)]
        logs.sort()
        seconds: FloatArray = np.exp(np.array(logs))
        return seconds


@lru_cache(maxsize=1024)
def calibration(quantiles: tuple[float, ...], p50_offset: float, p90_offset: float) -> Calibration:
    """Return the calibration of a booster with these output quantiles; names in it are sorted by quantile."""
    offsets = {0.5: p50_offset, 0.9: p90_offset}
    served = [level for level in quantiles if level in QUANTILE_NAMES]
    return Calibration(
        columns=tuple(quantiles.index(level) for level in served),
        offsets=tuple(offsets[level] for level in served),
        names=tuple(QUANTILE_NAMES[level] for level in sorted(served)),
    )


def calibrated_run_times(card: Card, raw: FloatArray, reference_log_s: FloatArray) -> RunTimes:
    """Convert a booster's outputs (n, quantiles) and reference run times (n, 2) from log units to seconds."""
    how = calibration(card.quantiles, card.offsets.get("p50", 0.0), card.offsets.get("p90", 0.0))
    if len(raw) == 1:
        seconds = how.of_one(raw[0].tolist(), reference_log_s[0].tolist()).reshape(1, -1)
    else:
        columns = list(how.columns)
        seconds = np.exp(np.sort((raw + reference_log_s)[:, columns] + how.offsets, axis=1))
    by_name = dict(zip(how.names, seconds.T, strict=True))
    if len(by_name) < len(QUANTILE_NAMES):
        unknown = np.full(len(raw), np.nan)
        return RunTimes(p50=by_name.get("p50", unknown), p90=by_name.get("p90", unknown))
    return RunTimes(**by_name)


def use_quantiles(bundle: Bundle, features: pl.DataFrame) -> dict[str, FloatArray]:
    """Predict the upper quantile of use per instance for a feature frame (n rows).

    The result has an array (n,) for every target; it is NaN for a target without a booster.
    """
    matrix = bundle.contract.encode(features)
    use = {}
    for target in USAGE_TARGETS:
        if target not in bundle.boosters:
            use[target] = np.full(len(matrix), np.nan)
        else:
            use[target] = calibrated_use(bundle.card, target, _outputs(bundle, target, matrix))
    return use


def calibrated_use(card: Card, target: str, raw: FloatArray) -> FloatArray:
    """Convert the outputs (n, 1) of a target's booster from log1p units into use (n,), at least 0."""
    use: FloatArray = np.maximum(np.expm1(raw[:, 0] + card.offsets.get(target, 0.0)), 0.0)
    return use


def measured_runs(bundle: Bundle, frame: pl.DataFrame) -> IntArray:
    """Return the number (n,) of earlier measured runs of each job's group and role; of its user, if it has no group."""
    seen = Lookback.of(frame, bundle.history)
    begin, stop = seen.span("measured", EVIDENCE_KEYS)
    of_group, of_user = (stop - begin).reshape(-1, len(EVIDENCE_KEYS)).T
    return np.where(seen.unknown(EVIDENCE_KEYS[0]), of_user, of_group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The models that predict a job (`<name>@<version>`, None if there is none), and the end of their history.

    `failure` is the reason why a model that exists for this job cannot be read.
    """

    run_time: str | None
    usage: str | None
    history: datetime | None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcessPredictor:
    """A predictor from loaded bundles; `bundles` and `failures` are by registered model name.

    A job is predicted by the model of its trace and workload, otherwise by the model of its trace and task type. A job
    without a model gets NaN, so its request is kept (`cold_start`). If the model of a job cannot be read, the methods
    raise `PredictorUnavailable` with the reason in `failures`.
    """

    bundles: Mapping[str, Bundle]
    failures: Mapping[str, str] = field(default_factory=dict)
    _last: LastBuilt = field(default_factory=LastBuilt, init=False, repr=False, compare=False)

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict k run times; the i-th is the run time of `jobs[rows[i]]` with the request `requests[i]`.

        `rows` has shape (k,), `requests` (k, 3). Each model scores all its rows as one matrix.

        Raises
        ------
        PredictorUnavailable
            A model cannot be read, or its prediction fails.
        """
        p50, p90 = np.full((2, len(rows)), np.nan)
        for bundle, members in self._by_model("runtime", jobs):
            place = np.full(len(jobs), -1, dtype=np.int64)
            place[members] = np.arange(len(members))
            mine = np.flatnonzero(place[rows] >= 0)
            if not len(mine):
                continue
            try:
                answer = self._candidates(bundle, [jobs[i] for i in members], place[rows[mine]], requests[mine])
            except (FeatureError, ValueError) as error:
                raise PredictorUnavailable(f"{bundle.reference}: {error}") from error
            p50[mine], p90[mine] = answer.p50, answer.p90
        return RunTimes(p50=p50, p90=p90)

    def _candidates(self, bundle: Bundle, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        built = self._last.take(jobs, bundle.history)
        seen = built.referenced(bundle.contract.names, relative=bundle.card.relative)
        matrix = candidate_rows(bundle.contract, seen.features, built.frame, rows, requests)
        return calibrated_run_times(bundle.card, _outputs(bundle, RUNTIME_TARGET, matrix), seen.reference_log_s[rows])

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Bound the peak use per instance of each job (n,), from the usage model and from similar jobs.

        The result also has the number of measured runs behind each bound.

        Raises
        ------
        PredictorUnavailable
            A model cannot be read, or its prediction fails.
        """
        use = {target: np.full(len(jobs), np.nan) for target in USAGE_TARGETS}
        runs = np.zeros(len(jobs), dtype=np.int64)
        every: list[Built] = []
        for bundle, members in self._by_model("usage", jobs):
            try:
                built = Built.of([jobs[i] for i in members], bundle.history).with_features(bundle.contract.names)
                answer = use_quantiles(bundle, built.features)
            except (FeatureError, ValueError) as error:
                raise PredictorUnavailable(f"{bundle.reference}: {error}") from error
            every.append(built)
            seen = measured_runs(bundle, built.frame)
            if bundle.card.alike_by_key is not None:
                answer, seen = held(bundle.card.alike_by_key, built.jobs, answer, seen)
            for target, values in answer.items():
                use[target][members] = values
            runs[members] = seen
        self._last.keep(every)  # a recommendation asks next for these jobs' run times
        return PeakUse(runs=runs, **use)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return the important resources and the training range of requests of each job's run-time model (n,)."""
        known = [Knowledge()] * len(jobs)
        for rows in _alike(jobs):
            bundle = self.bundle_of("runtime", jobs[rows[0]])
            if bundle is not None:
                of_bundle = knowledge_of(bundle.card)
                for i in rows:
                    known[i] = of_bundle
        return known

    def sources(self, job: Job) -> Sources:
        """Return the models that predict a job, and the end of their history."""
        runtime, usage = self.bundle_of("runtime", job), self.bundle_of("usage", job)
        reaches = [bundle.card.until.astimezone(UTC) for bundle in (runtime, usage) if bundle is not None]
        return Sources(
            run_time=None if runtime is None else runtime.reference,
            usage=None if usage is None else usage.reference,
            history=min(reaches) if reaches else None,
            failure=self._failure_of("runtime", job) or self._failure_of("usage", job),
        )

    def bundle_of(self, kind: Kind, job: Job) -> Bundle | None:
        """Return the bundle that predicts a job, or None."""
        name = self._name_of(kind, job)
        return None if name is None else self.bundles[name]

    def _name_of(self, kind: Kind, job: Job) -> str | None:
        return next((name for name in _names(kind, job) if name in self.bundles), None)

    def _failure_of(self, kind: Kind, job: Job) -> str | None:
        if self._name_of(kind, job) is not None:
            return None
        return next((self.failures[name] for name in _names(kind, job) if name in self.failures), None)

    def _by_model(self, kind: Kind, jobs: Sequence[Job]) -> list[tuple[Bundle, list[int]]]:
        members: dict[str, list[int]] = defaultdict(list)
        for rows in _alike(jobs):
            name = self._name_of(kind, jobs[rows[0]])
            if name is not None:
                members[name].extend(rows)
            elif failure := self._failure_of(kind, jobs[rows[0]]):
                raise PredictorUnavailable(failure)
        return [(self.bundles[name], sorted(rows)) for name, rows in members.items()]


def _names(kind: Kind, job: Job) -> list[str]:
    return [f"{kind}.{job.trace}.{part}" for part in (job.workload, job.task_type) if part is not None]


def _alike(jobs: Sequence[Job]) -> list[list[int]]:
    """Return the indices of jobs, grouped by trace, workload and task type; a group shares its models."""
    alike: dict[tuple[str, str | None, str], list[int]] = defaultdict(list)
    for i, job in enumerate(jobs):
        alike[job.trace, job.workload, job.task_type].append(i)
    return list(alike.values())


def knowledge_of(card: Card) -> Knowledge:
    """Return the important resources and the training range of requests of a run-time model."""
    return Knowledge(
        important=frozenset(card.important),
        support={str(resource): ends for resource, ends in card.support.items()},
    )


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = InProcessPredictor
