"""The rows of one trace and task type as training sees them: jobs, features as of submission, and log run time.

Features come from `features.build` alone; nothing is fitted or split here.
Called by `training.runtime`, `training.usage`, `training.evaluate` and `training.replication`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.columns.measured import with_usage
from features.contract import FeatureContract
from features.history import History
from features.reference import build_referenced
from features.sets import FEATURES
from features.vocabulary import Status
from pipelines.errors import TrainingError
from pipelines.models.boosting import Columns, Matrix
from pipelines.models.importance import REQUEST_COLUMN
from pipelines.models.metrics import FloatArray, log_run

IntArray = npt.NDArray[np.int64]
By = Literal["kind", "workload"]

TYPE_COLUMN: Final[dict[By, str]] = {"kind": "task_type", "workload": "workload"}
_IDENTITY: Final = ("trace", "cluster", "job_id", "role")
_US_PER_S: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Jobs of one task type in canonical order, each with its features as of its submission.

    `jobs` carries the columns of `usage` where there is any. `log_y` is NaN where there is no run time (n,), and
    `reference` what its p50 and p90 are learnt against: 0, or those of the like's log run time (n, 2). `plain` are the
    features as they are where `features` are seen against the reference.
    """

    task_type: str
    jobs: pl.DataFrame
    features: pl.DataFrame
    plain: pl.DataFrame
    log_y: FloatArray
    reference: FloatArray

    @property
    def submit_us(self) -> IntArray:
        """Submissions in microseconds of Unix time (n,)."""
        return self.jobs["submit_ts"].dt.epoch("us").to_numpy()

    @property
    def end_us(self) -> IntArray:
        """Ends in microseconds of Unix time, far in the future where there is none (n,)."""
        return self.jobs["end_ts"].dt.epoch("us").fill_null(np.iinfo(np.int64).max).to_numpy()

    @property
    def run_s(self) -> FloatArray:
        """Run times in seconds, NaN where there is none (n,)."""
        return self.jobs["run_s"].fill_null(float("nan")).to_numpy()

    def open_run_s(self, rows: IntArray, until: datetime) -> FloatArray:
        """Return what these rows had run by `until`, 0 for those that had not started (m,)."""
        start_us = self.jobs["start_ts"].dt.epoch("us").fill_null(np.iinfo(np.int64).max).to_numpy()[rows]
        return np.maximum(until.timestamp() - start_us / _US_PER_S, 0.0)


def task_types(jobs: pl.DataFrame, by: By) -> list[str]:
    """Return the types a trace holds, most rows first; rows without a tag have no type by `workload`.

    Raises
    ------
    TrainingError
        No row has one.
    """
    counts = (
        jobs[TYPE_COLUMN[by]].drop_nulls().value_counts().sort(["count", TYPE_COLUMN[by]], descending=[True, False])
    )
    if counts.is_empty():
        raise TrainingError(f"no row has a {TYPE_COLUMN[by]}: expected tagged jobs; train by kind instead")
    return counts[TYPE_COLUMN[by]].to_list()


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
    """Build the examples of one type; `history` is the whole trace's, and each row sees its own past of it only.

    With `relative`, run times are learnt against the reference of `features.reference`, and so are the features that
    are run times.
    """
    own = jobs.filter(pl.col(TYPE_COLUMN[by]) == task_type).sort("submit_ts", *_IDENTITY)
    if usage is not None and usage.height:
        own = with_usage(own, usage)
    built = build_referenced(own, history, names, relative=relative)
    return Examples(
        task_type=task_type,
        jobs=own,
        features=built.features,
        plain=built.plain,
        reference=built.reference_log_s,
        log_y=log_run(own["run_s"].fill_null(float("nan")).to_numpy()),
    )


def contract_of(features: pl.DataFrame, rows: IntArray) -> FeatureContract:
    """Fit the contract to training rows: columns that vary there, and every one that derives from the request.

    A constant column teaches nothing and costs time; the request's stay, so that what a request cannot change is seen.
    """
    trained = features[rows]
    varies = trained.select(pl.all().n_unique() > 1).row(0)
    kept = [name for name, many in zip(trained.columns, varies, strict=True) if many or FEATURES[name].from_request]
    return FeatureContract.fit(trained.select(kept), kept)


def encoded(features: pl.DataFrame, contract: FeatureContract) -> tuple[Matrix, Columns]:
    """Return the matrix of all rows under a contract (n, k), and its columns."""
    columns = Columns(names=contract.names, types=tuple(contract.feature_types))
    return contract.encode(features), columns


def known_at(jobs: pl.DataFrame, until: datetime) -> pl.DataFrame:
    """Return the jobs as they stood at `until`: only those submitted, and no end, run time or status that lay ahead."""
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
    """Return the history that serving starts from at `until`; it holds nothing of later ends."""
    known = known_at(jobs, until)
    if usage is None:
        return History.of(known)
    ended = known.filter(pl.col("end_ts").is_not_null()).select(_IDENTITY)
    return History.of(known, usage.join(ended, on=_IDENTITY, how="semi"))


def support_of(jobs: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest request of each resource that these rows request at all."""
    support = {}
    for resource, column in REQUEST_COLUMN.items():
        asked = jobs[column].drop_nulls()
        if len(asked):
            support[resource] = (float(asked.min()), float(asked.max()))  # type: ignore[arg-type]  # a float column
    return support


def fingerprint(jobs: pl.DataFrame) -> str:
    """Return the SHA-256 of the rows that were trained on, whatever their order: names, times, requests, run times."""
    columns = [*_IDENTITY, "user", "vc", "group", "submit_ts", "start_ts", "end_ts", "run_s", *REQUEST_COLUMN.values()]
    text = jobs.select(columns).sort(_IDENTITY).write_csv()
    return hashlib.sha256(text.encode()).hexdigest()
