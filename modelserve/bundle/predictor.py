"""Predictions from bundles in this process; satisfies `scheduler_core.types.Predictor`. Called by the commands.

One of two engines: this one builds features of many jobs as frames (`features.build`), the service builds rows
(`features.rows`, `modelserve.calls.recommendations`). Both use the calibration here; their answers are equal to the
bit, held by `tests/modelserve/calls/test_predictions.py`.
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

Kind = Literal["runtime", "usage"]

QUANTILE_NAMES: Final = {0.5: "p50", 0.9: "p90"}
"""The quantiles of log run time that are served, and the names of their offsets."""

COMPILED_ROWS: Final = 8192
"""Minimum rows for compiled trees instead of XGBoost, with equal results; loading them for fewer costs more."""


def run_time_features(bundle: Bundle, frame: pl.DataFrame) -> Referenced:
    """Build the features of a run-time model for the jobs of a frame (n rows), and the reference run times."""
    return build_referenced(frame, bundle.history, bundle.contract.names, relative=bundle.card.relative)


def run_time_quantiles(bundle: Bundle, features: pl.DataFrame, reference_log_s: FloatArray) -> RunTimes:
    """Predict run times in seconds for a feature frame (n rows): calibrated in log units, then sorted."""
    raw = _outputs(bundle, RUNTIME_TARGET, bundle.contract.encode(features))
    return calibrated_run_times(bundle.card, raw, reference_log_s)


def _outputs(bundle: Bundle, target: str, matrix: npt.NDArray[np.float32]) -> FloatArray:
    """Return the outputs (n, outputs) of a target's booster for a matrix (n, k), before calibration."""
    forest = bundle.forests.get(target)  # missing in a model that was never saved to a file
    if forest is None or len(matrix) < COMPILED_ROWS:
        return raw_outputs(bundle.boosters[target], matrix)
    from modelserve.bundle.trees.compiled import CompiledTrees

    return CompiledTrees.made_of(forest).rows(matrix)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The served outputs of a run-time booster, and the offset added to each, in log units."""

    columns: tuple[int, ...]
    offsets: tuple[float, ...]
    names: tuple[str, ...]

    def of_one(self, raw: Sequence[float], reference_log_s: Sequence[float]) -> FloatArray:
        """Turn the outputs of one row and its references (2,) into seconds, as `calibrated_run_times` does of many."""
        logs = [raw[c] + reference_log_s[c] + offset for c, offset in zip(self.columns, self.offsets, strict=True)]
        logs.sort()
        seconds: FloatArray = np.exp(np.array(logs))
        return seconds


@lru_cache(maxsize=1024)
def calibration(quantiles: tuple[float, ...], p50_offset: float, p90_offset: float) -> Calibration:
    """Return the calibration of a booster with these quantiles; names are in ascending order of quantile."""
    offsets = {0.5: p50_offset, 0.9: p90_offset}
    served = [level for level in quantiles if level in QUANTILE_NAMES]
    return Calibration(
        columns=tuple(quantiles.index(level) for level in served),
        offsets=tuple(offsets[level] for level in served),
        names=tuple(QUANTILE_NAMES[level] for level in sorted(served)),
    )


def calibrated_run_times(card: Card, raw: FloatArray, reference_log_s: FloatArray) -> RunTimes:
    """Turn a booster's outputs (n, quantiles) and the references (n, 2), in log units, into seconds."""
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
    """Predict the upper quantile of use per instance for a feature frame (n rows), by target; NaN without a booster."""
    matrix = bundle.contract.encode(features)
    use = {}
    for target in USAGE_TARGETS:
        if target not in bundle.boosters:
            use[target] = np.full(len(matrix), np.nan)
        else:
            use[target] = calibrated_use(bundle.card, target, _outputs(bundle, target, matrix))
    return use


def calibrated_use(card: Card, target: str, raw: FloatArray) -> FloatArray:
    """Turn the outputs (n, 1) of a target's booster, in log1p units, into use (n,)."""
    use: FloatArray = np.maximum(np.expm1(raw[:, 0] + card.offsets.get(target, 0.0)), 0.0)
    return use


def measured_runs(bundle: Bundle, frame: pl.DataFrame) -> IntArray:
    """Count the ended and measured runs of each job's group and role, or of its user where it has no group (n,)."""
    seen = Lookback.of(frame, bundle.history)
    begin, stop = seen.span("measured", EVIDENCE_KEYS)
    of_group, of_user = (stop - begin).reshape(-1, len(EVIDENCE_KEYS)).T
    return np.where(seen.unknown(EVIDENCE_KEYS[0]), of_user, of_group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The models behind a job's answer by name and version, and the end of their history; None without a model.

    `failure` is the reason why the model for this job cannot be read.
    """

    run_time: str | None
    usage: str | None
    history: datetime | None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcessPredictor:
    """A predictor over loaded bundles, by registered name.

    The model of a job is that of its workload, otherwise that of its task type, always of its own trace. A job without
    a model gets NaN, and its request is kept (`cold_start`). For a job whose model cannot be read, calls raise;
    `failures` holds the reasons by registered name.
    """

    bundles: Mapping[str, Bundle]
    failures: Mapping[str, str] = field(default_factory=dict)
    _last: LastBuilt = field(default_factory=LastBuilt, init=False, repr=False, compare=False)

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict `len(rows)` run times, one matrix per model: row i is `jobs[rows[i]]` with `requests[i]` (k, 3).

        Raises
        ------
        PredictorUnavailable
            A model cannot answer.
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
        """Predict the peak use of each job's instances (n,) from similar jobs and the model, with the runs behind it.

        Raises
        ------
        PredictorUnavailable
            A model cannot answer.
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
        self._last.keep(every)  # the next call of a decision predicts run times of the same jobs
        return PeakUse(runs=runs, **use)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return the important resources and the support of each job's run-time model (n,)."""
        known = [Knowledge()] * len(jobs)
        for rows in _alike(jobs):
            bundle = self.bundle_of("runtime", jobs[rows[0]])
            if bundle is not None:
                of_bundle = knowledge_of(bundle.card)
                for i in rows:
                    known[i] = of_bundle
        return known

    def sources(self, job: Job) -> Sources:
        """Return the models that answer for a job, and the end of their history."""
        runtime, usage = self.bundle_of("runtime", job), self.bundle_of("usage", job)
        reaches = [bundle.card.until.astimezone(UTC) for bundle in (runtime, usage) if bundle is not None]
        return Sources(
            run_time=None if runtime is None else runtime.reference,
            usage=None if usage is None else usage.reference,
            history=min(reaches) if reaches else None,
            failure=self._failure_of("runtime", job) or self._failure_of("usage", job),
        )

    def bundle_of(self, kind: Kind, job: Job) -> Bundle | None:
        """Return the bundle that answers for a job, if any."""
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
    """Group the jobs that share a model: same trace, workload and task type."""
    alike: dict[tuple[str, str | None, str], list[int]] = defaultdict(list)
    for i, job in enumerate(jobs):
        alike[job.trace, job.workload, job.task_type].append(i)
    return list(alike.values())


def knowledge_of(card: Card) -> Knowledge:
    """Return the important resources and the support of a run-time model."""
    return Knowledge(
        important=frozenset(card.important),
        support={str(resource): ends for resource, ends in card.support.items()},
    )


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = InProcessPredictor
