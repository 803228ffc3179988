"""Training examples of one trace and task type: jobs, their features at submission, and their log run times."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.contract import FeatureContract
from features.history import History
from features.references import build_referenced
from features.sets import FEATURES
from features.vocabulary import Status
from modelserve.bundle.alike import PARAMETER_SERVER
from pipelines.errors import TrainingError, meant
from pipelines.models.boosting import Columns, Matrix
from pipelines.models.importance import REQUEST_COLUMN
from pipelines.models.metrics import FloatArray, log_run

__all__ = ["Examples", "Setting", "Watch", "examples_of", "task_types"]

IntArray = npt.NDArray[np.int64]
By = Literal["kind", "workload"]
Watch = Callable[[Sequence[str]], Iterable[str]]
"""Iterates over task types, like `iter`; a caller may replace it to show progress."""

TYPE_COLUMN: Final[dict[By, str]] = {"kind": "task_type", "workload": "workload"}
_IDENTITY: Final = ("trace", "cluster", "job_id", "role")
_US_PER_S: Final = 1e6


LATER_SHARE: Final = 0.2
"""Share of the submissions, the latest ones, that is held out for judging if no cut is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Jobs of one task type in order of submission, each with the features known when it was submitted.

    `jobs` (n rows) have the columns of `usage` if the trace measures use. `log_y` (n,) is the log run time, NaN if
    unknown, `reference` (n, 2) what is subtracted from it before p50 and p90 are fitted, and from features that are run
    times. `history` (n, 3, 2) are the forecasts from the history alone (`features.references.Referenced`).
    """

    task_type: str
    jobs: pl.DataFrame
    features: pl.DataFrame
    log_y: FloatArray
    reference: FloatArray
    history: FloatArray

    @property
    def submit_us(self) -> IntArray:
        """Return the submission times in microseconds since the epoch (n,)."""
        return self.jobs["submit_ts"].dt.epoch("us").to_numpy()

    @property
    def end_us(self) -> IntArray:
        """Return the end times in microseconds since the epoch (n,), the largest integer for jobs without an end."""
        return self.jobs["end_ts"].dt.epoch("us").fill_null(np.iinfo(np.int64).max).to_numpy()

    @property
    def run_s(self) -> FloatArray:
        """Return the run times in seconds, NaN for jobs without one (n,)."""
        return self.jobs["run_s"].fill_null(float("nan")).to_numpy()

    def open_run_s(self, rows: IntArray, until: datetime) -> FloatArray:
        """Return how many seconds each of `rows` had run by `until` (m,), 0 if not yet started."""
        start_us = self.jobs["start_ts"].dt.epoch("us").fill_null(np.iinfo(np.int64).max).to_numpy()[rows]
        return np.maximum(until.timestamp() - start_us / _US_PER_S, 0.0)


def task_types(jobs: pl.DataFrame, by: By, only: Sequence[str] | None = None) -> list[str]:
    """Return the task types (or, `by="workload"`, the tags) of a trace, most rows first; or `only` these."""
    counts = (
        jobs[TYPE_COLUMN[by]].drop_nulls().value_counts().sort(["count", TYPE_COLUMN[by]], descending=[True, False])
    )
    if jobs.is_empty():
        raise TrainingError(
            "found no job that ended, expected some to learn from: bring more jobs, or move --until later"
        )
    if counts.is_empty():
        cure = "; train with --by kind" if by != "kind" else ""
        raise TrainingError(f"no row has a {TYPE_COLUMN[by]}: expected tagged jobs{cure}")
    known = counts[TYPE_COLUMN[by]].to_list()
    if only and not set(only) & set(known):
        raise TrainingError(f"no job is of type {only[0]!r}; the trace has {', '.join(known)}{meant(only[0], known)}")
    return list(only or known)


def default_until(jobs: pl.DataFrame) -> datetime:
    """Return the cut that leaves the latest fifth of the submissions for judging."""
    cut = jobs["submit_ts"].quantile(1.0 - LATER_SHARE, interpolation="nearest")
    if not isinstance(cut, datetime):
        raise TrainingError("found no job: expected at least one with a submission time; ingest a trace first")
    return cut


def examples_of(
    jobs: pl.DataFrame,
    usage: pl.DataFrame | None,
    task_type: str,
    *,
    by: By,
    history: History,
    names: str | Sequence[str],
    relative: bool = False,
) -> Examples:
    """Build the examples of one task type.

    `history` covers the whole trace, but the features of a job use only what was known at its submission. With
    `relative`, the reference is subtracted from run times and from the features that are run times.
    """
    own = jobs.filter(pl.col(TYPE_COLUMN[by]) == task_type).sort("submit_ts", *_IDENTITY)
    if usage is not None and usage.height:
        own = own.join(usage, on=_IDENTITY, how="left", validate="m:1", maintain_order="left")
    built = build_referenced(own, history, names, relative=relative)
    return Examples(
        task_type=task_type,
        jobs=own,
        features=built.features,
        reference=built.reference_log_s,
        history=built.history_log_s,
        log_y=log_run(own["run_s"].fill_null(float("nan")).to_numpy()),
    )


def contract_of(features: pl.DataFrame, rows: IntArray) -> FeatureContract:
    """Fit the feature contract to the training rows: the columns that vary in them, and those from the request."""
    trained = features[rows]
    varies = trained.select(pl.all().n_unique() > 1).row(0)
    kept = [name for name, many in zip(trained.columns, varies, strict=True) if many or FEATURES[name].from_request]
    return FeatureContract.fit(trained.select(kept), kept)


def encoded(features: pl.DataFrame, contract: FeatureContract) -> tuple[Matrix, Columns]:
    """Return the matrix (n, k) of all rows by a feature contract, and its columns' names and types."""
    return contract.encode(features), Columns(names=contract.names, types=contract.kinds)


def known_at(jobs: pl.DataFrame, until: datetime) -> pl.DataFrame:
    """Return the jobs submitted before `until` as known then: later starts, ends and statuses are removed."""
    ahead = pl.col("end_ts").is_null() | (pl.col("end_ts") >= until)
    unstarted = pl.col("start_ts") >= until
    return jobs.filter(pl.col("submit_ts") < until).with_columns(
        start_ts=pl.when(~unstarted).then("start_ts"),
        queue_s=pl.when(~unstarted).then("queue_s"),
        end_ts=pl.when(~ahead).then("end_ts"),
        run_s=pl.when(~ahead).then("run_s"),
        status=pl.when(~ahead)
        .then(pl.col("status").cast(pl.String))
        .when(unstarted)
        .then(pl.lit(Status.WAITING.value))
        .otherwise(pl.lit(Status.RUNNING.value)),
    )


def history_at(jobs: pl.DataFrame, usage: pl.DataFrame | None, until: datetime) -> History:
    """Return the history as known at `until`."""
    known = known_at(jobs, until)
    if usage is None:
        return History.of(known)
    ended = known.filter(pl.col("end_ts").is_not_null()).select(_IDENTITY)
    return History.of(known, usage.join(ended, on=_IDENTITY, how="semi"))


@dataclass(frozen=True, kw_only=True)  # no slots: the histories are cached, so each process builds them once
class Setting:
    """What the models of one training share: the canonical tables of one trace, the cut, the seed and the threads.

    `usage` is None if the trace measures no use. Models are trained only on jobs that ended before the cut `until`, and
    judged on jobs submitted after it, which do not influence them; by default it is `default_until`. Equal rows, cut,
    seed and number of threads give equal models.
    """

    jobs: pl.DataFrame
    usage: pl.DataFrame | None = None
    trace: str
    by: By = "kind"
    until: datetime | None = None
    seed: int = 0
    threads: int = 1

    @cached_property
    def cut(self) -> datetime:
        """Return the training cut."""
        return self.until or default_until(self.jobs)

    @cached_property
    def whole(self) -> History:
        """Return the history of the whole trace, from which features are built and the service starts.

        Trees, weights and bounds end at the cut, so that later jobs can judge them; a feature counts only what ended
        before its job.
        """
        return History.of(self.jobs, self.usage)

    def examples(self, task_type: str, names: str, *, relative: bool) -> Examples:
        """Return the examples of a task type, with the features of a set."""
        return examples_of(
            self.jobs, self.usage, task_type, by=self.by, history=self.whole, names=names, relative=relative
        )


def sized_rows(jobs: pl.DataFrame, rows: IntArray) -> IntArray:
    """Return those of `rows` that are not parameter servers; all of them if there are no others.

    Parameter servers request other amounts than their workers, and their requests are never shrunk. So importance and
    support, which decide how far requests shrink, are those of the other roles.
    """
    others = rows[(jobs["role"] != PARAMETER_SERVER).to_numpy()[rows]]
    return others if len(others) else rows


def support_of(jobs: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest request of each resource in these jobs, without parameter servers (`sized_rows`).

    Resources without a request are absent.
    """
    sized, support = jobs[sized_rows(jobs, np.arange(jobs.height))], {}
    for resource, column in REQUEST_COLUMN.items():
        asked = sized[column].drop_nulls()
        if len(asked):
            support[resource] = (float(asked.min()), float(asked.max()))  # type: ignore[arg-type]  # a float column
    return support


def fingerprint(jobs: pl.DataFrame) -> str:
    """Return the SHA-256 of the training rows (names, times, requests, run times), whatever their order."""
    columns = [*_IDENTITY, "user", "vc", "group", "submit_ts", "start_ts", "end_ts", "run_s", *REQUEST_COLUMN.values()]
    text = jobs.select(columns).sort(_IDENTITY).write_csv()
    return hashlib.sha256(text.encode()).hexdigest()
