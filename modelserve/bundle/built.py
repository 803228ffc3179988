"""Jobs as data frames: their canonical columns, their features (cached), and encoded candidate requests.

Features are defined in `features`; no model is used here. Called by `modelserve.bundle.predictor` and
`modelserve.bundle.flavor`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.build import build, with_requests
from features.contract import FeatureContract
from features.history import History, cluster_of_vc
from features.references import BASE_FEATURES, Referenced
from features.sets import FEATURES
from features.vocabulary import ROLE_WHOLE_JOB
from scheduler_core.types import FloatArray, IntArray, Job

COLUMNS: Final[Mapping[str, pl.DataType]] = {
    "trace": pl.String(),
    "cluster": pl.String(),
    "job_id": pl.String(),
    "role": pl.String(),
    "user": pl.String(),
    "vc": pl.String(),
    "group": pl.String(),
    "workload": pl.String(),
    "task_type": pl.String(),
    "gpu_type": pl.String(),
    "submit_ts": pl.Datetime("us", "UTC"),
    "instances": pl.Int32(),
    "req_cpu_cores": pl.Float64(),
    "req_mem_gib": pl.Float64(),
    "req_gpus": pl.Float64(),
    "time_limit_s": pl.Float64(),
    "priority": pl.Int32(),
}
"""The columns of the canonical jobs table that are known at submission, with their types."""


def jobs_frame(jobs: Sequence[Job], history: History) -> pl.DataFrame:
    """Return the canonical columns of `jobs`, one row per job in the same order; an unknown request is null.

    A job without a cluster gets that of its virtual cluster in the history, otherwise the history's largest cluster.
    """
    clusters = cluster_of_vc(history)
    rows = [
        {
            "trace": job.trace,
            "cluster": job.cluster or clusters.get(job.vc, clusters[None]),
            "job_id": job.job_id,
            "role": job.role,
            "user": job.user,
            "vc": job.vc,
            "group": job.group,
            "workload": job.workload,
            "task_type": job.task_type,
            "gpu_type": job.gpu_type,
            "submit_ts": round(job.submit_ts * 1e6),
            "instances": job.instances,
            "req_cpu_cores": job.request.cpu_cores,
            "req_mem_gib": job.request.mem_gib,
            "req_gpus": job.request.gpus,
        }
        for job in jobs
    ]
    schema = {name: pl.Int64() if name == "submit_ts" else dtype for name, dtype in COLUMNS.items()}
    frame = pl.DataFrame(rows, schema=schema)
    requests = [name for name in COLUMNS if name.startswith("req_")]
    return frame.with_columns(
        pl.from_epoch("submit_ts", time_unit="us").dt.replace_time_zone("UTC"), pl.col(requests).fill_nan(None)
    )


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


KEPT_JOBS: Final = 100_000
"""Maximum number of jobs whose features are cached; they take up to 160 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Jobs with their canonical columns (`frame`) and the features built so far, one row per job."""

    jobs: Sequence[Job]
    history: History
    frame: pl.DataFrame
    features: pl.DataFrame

    @classmethod
    def of(cls, jobs: Sequence[Job], history: History) -> "Built":
        """Return jobs for which no features are built yet."""
        return cls(jobs=jobs, history=history, frame=jobs_frame(jobs, history), features=pl.DataFrame())

    def with_features(self, names: Sequence[str]) -> "Built":
        """Return the jobs with the named features; only features not built yet are built."""
        known = set(self.features.columns)
        missing = [name for name in dict.fromkeys(names) if name not in known]
        if not missing:
            return self
        built = build(self.frame, self.history, missing)
        return replace(self, features=self.features.hstack(built) if self.features.width else built)

    def referenced(self, names: Sequence[str], *, relative: bool) -> Referenced:
        """Return what `features.references.build_referenced` returns, but build only features not built yet."""
        if not relative:
            return Referenced.absolute(self.with_features(names).features.select(names), len(self.jobs))
        built = self.with_features((*names, *BASE_FEATURES)).features
        return Referenced.relative(built.select(names), built)

    def is_of(self, jobs: Sequence[Job], history: History) -> bool:
        """Return whether `jobs` are the same objects in the same order, and `history` is the same object."""
        return self.history is history and len(self.jobs) == len(jobs) and all(map(is_, self.jobs, jobs))


@dataclass(slots=True)
class LastBuilt:
    """A cache of the features built by the last call, for the next call on the same jobs; it does not change results.

    Threads may share the cache: at worst, features are built twice.
    """

    kept: tuple[Built, ...] = field(default=())

    def keep(self, built: Sequence[Built]) -> None:
        """Replace the cached jobs by these; if there are more than `KEPT_JOBS`, only clear the cache."""
        self.kept = tuple(built) if sum(len(each.jobs) for each in built) <= KEPT_JOBS else ()

    def take(self, jobs: Sequence[Job], history: History) -> Built:
        """Remove jobs from the cache and return them; if they are not cached, return them without features."""
        found = next((each for each in self.kept if each.is_of(jobs, history)), None)
        if found is None:
            return Built.of(jobs, history)
        self.kept = tuple(each for each in self.kept if each is not found)
        return found


def candidate_rows(
    contract: FeatureContract, features: pl.DataFrame, frame: pl.DataFrame, rows: IntArray, requests: FloatArray
) -> npt.NDArray[np.float32]:
    """Encode jobs with other requests than their own: row i (of m) is job `rows[i]` with the request `requests[i]`.

    `features` are the jobs' features as a model takes them, `frame` their canonical columns. The result (m, k) equals
    the encoded result of `with_requests`. It is faster because each job is encoded once, and only the columns derived
    from the request are computed for each of the m rows.
    """
    changed = [name for name in contract.names if FEATURES[name].from_request]
    matrix: npt.NDArray[np.float32] = contract.encode(features)[rows]
    if changed:
        read = sorted({column for name in changed for column in FEATURES[name].needs})
        asked = with_requests(features.select(changed), frame.select(read), rows, requests)
        matrix[:, [contract.names.index(name) for name in changed]] = asked.to_numpy()
    return matrix
