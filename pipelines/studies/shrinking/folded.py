"""A predictor of predictors: each job of a pool is answered by the models of the fold that holds its group out.

Training is `crossfit`'s; who is advised what is `arms`'s. Called by `experiment`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

from pipelines.simulation.job_pool import Pool
from pipelines.studies.shrinking.crossfit import Crossfit
from scheduler_core.types import FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, RunTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedPredictor:
    """Ask, for each job, the predictor of its fold."""

    folds: Sequence[Predictor]
    fold_of: Mapping[Job, int]

    @classmethod
    def of(cls, crossfit: Crossfit, pool: Pool) -> Self:
        """Return the predictor of the pool's jobs: each sees what had ended before its submission, as when served."""
        numbers = crossfit.fold_of.tolist()
        return cls(
            folds=[fold.predictor(crossfit.whole) for fold in crossfit.folds],
            fold_of={entry.job: number for entry, number in zip(pool.jobs, numbers, strict=True)},
        )

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict `len(rows)` run times: row i is `jobs[rows[i]]` with `requests[i]` (k, 3)."""
        p50, p90 = np.full((2, len(rows)), np.nan)
        for predictor, members in self._members(jobs):
            mine = np.flatnonzero(np.isin(rows, members))
            place = np.searchsorted(members, rows[mine])
            answer = predictor.run_times([jobs[row] for row in members.tolist()], place, requests[mine])
            p50[mine], p90[mine] = answer.p50, answer.p90
        return RunTimes(p50=p50, p90=p90)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Predict the upper quantile of use of each job's instances (n,)."""
        use = {name: np.full(len(jobs), np.nan) for name in ("cpu_cores", "mem_gib", "gpus", "gpu_mem_gib")}
        runs = np.zeros(len(jobs), dtype=np.int64)
        for predictor, members in self._members(jobs):
            answer = predictor.peak_use([jobs[row] for row in members.tolist()])
            for name, values in use.items():
                values[members] = getattr(answer, name)
            runs[members] = answer.runs
        return PeakUse(runs=runs, **use)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return what the run-time model behind each job knows about the resources (n,)."""
        known = [Knowledge()] * len(jobs)
        for predictor, members in self._members(jobs):
            answers = predictor.knowledge([jobs[row] for row in members.tolist()])
            for row, answer in zip(members.tolist(), answers, strict=True):
                known[row] = answer
        return known

    def _members(self, jobs: Sequence[Job]) -> list[tuple[Predictor, IntArray]]:
        """Return each fold's predictor with its rows of `jobs`, ascending."""
        fold = np.array([self.fold_of[job] for job in jobs], dtype=np.int64)
        members = [np.flatnonzero(fold == number) for number in range(len(self.folds))]
        return [(self.folds[number], rows) for number, rows in enumerate(members) if len(rows)]


def looking_back(pool: Pool, jobs: pl.DataFrame) -> int:
    """Return how many jobs of the pool have a run of their own group and role, among `jobs`, that ended before them.

    Models are of other groups, but histories are whole: such a job is answered by what its own group did, as when
    served.
    """
    key = ["group", "role"]
    first = jobs.filter(pl.col("group").is_not_null()).group_by(key).agg(pl.col("end_ts").min().alias("first_end_ts"))
    back = pool.frame.join(first, on=key, how="left").select(pl.col("first_end_ts") <= pl.col("submit_ts"))
    return int(back.to_series().sum())


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = FoldedPredictor
