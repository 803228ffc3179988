"""Jobs of a trace as elastic jobs, with recorded GPU counts, arrivals and run times, and predicted run times.

Scaling and power by frequency are drawn at random, because no trace records them. Called by `study`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.studies.carbon.arms import BASELINES, TAUT, TWO_STAGES
from pipelines.studies.carbon.jobs import MOST_GPUS, ArrivingJobs, Measured, elastic
from pipelines.studies.carbon.runs import Setting, Task
from pipelines.studies.replay.sizes import ORACLE, PREDICTED, sizes_of

MOST_RUN: Final = timedelta(days=3)
"""Maximum run time; longer jobs are left out, because one would outlast all others of a sample."""

LOAD: Final = 1.0
SHARES: Final = (0.25, 0.4, 1.0, float("inf"))
PERIOD_S: Final = 600.0
COUNTS: Final = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Jobs of a trace, sorted by submission.

    `frame` has the columns `submit_s, gpus, run_s`, and one column of run times for each source of predictions.
    """

    trace: str
    frame: pl.DataFrame
    notes: tuple[str, ...]

    def tasks(self, measured: Measured, seeds: Sequence[int], usual: Setting) -> list[Task]:
        """Return a task per source of predictions and seed, each with consecutive jobs from a random start.

        All times between arrivals are multiplied by one factor, so that the offered load is `LOAD`. GPUs, jobs, prices
        and the rule of budgets are those of `usual`.

        Raises
        ------
        LakeError
            If the trace has fewer suitable jobs than a stretch needs.
        """
        if len(self.frame) < usual.jobs:
            raise LakeError(f"{self.trace} has {len(self.frame)} jobs that suit, expected {usual.jobs}; lower --jobs")
        return [
            Task(measured=measured, setting=setting, seed=seed, jobs=self._stretch(measured, setting, told, seed))
            for told in (PREDICTED, ORACLE)
            for setting in [self._setting(told, usual)]
            for seed in seeds
        ]

    def _setting(self, told: str, usual: Setting) -> Setting:
        name, arms = f"{self.trace}, {told} run times", (TAUT, TWO_STAGES, *BASELINES)
        return replace(usual, name=name, jobs_per_h=0.0, period_s=PERIOD_S, shares=SHARES, arms=arms)

    def _stretch(self, measured: Measured, setting: Setting, told: str, seed: int) -> ArrivingJobs:
        rng = np.random.default_rng([seed, len(self.frame)])
        start = int(rng.integers(len(self.frame) - setting.jobs + 1))
        rows = self.frame.slice(start, setting.jobs)
        requested, run_s = rows["gpus"].to_numpy(), rows["run_s"].to_numpy()
        came_s = rows["submit_s"].to_numpy() - rows["submit_s"][0]
        span_s = float((requested * run_s).sum()) / (setting.gpus * LOAD)
        return elastic(
            measured,
            rng,
            submit_s=came_s * (span_s / max(float(came_s[-1]), 1.0)),
            requested=requested,
            run_s=run_s,
            told_s=rows[told].to_numpy(),
        )


def recorded(
    lake: Lake, trace: str, *, seed: int, threads: int, talk: Callable[[str], None] = lambda _: None
) -> Recorded:
    """Read a trace's jobs, and predict each run time from jobs that ended before its month.

    Raises
    ------
    LakeError
        If the trace has no suitable job.
    """
    every = lake.table("jobs", trace).collect()
    gpus = (pl.col("req_gpus") * pl.col("instances")).alias("gpus")
    ran = every.filter(pl.col("run_s") > 0.0, ~pl.col("run_s_censored").fill_null(value=True), gpus > 0.0)
    small = ran.filter(gpus.is_in([float(count) for count in COUNTS]))
    kept = small.filter(pl.col("run_s") <= MOST_RUN.total_seconds()).sort("submit_ts", "job_id", maintain_order=True)
    if not len(kept):
        raise LakeError(f"{trace} has no job with {MOST_GPUS} GPUs at most and a run time, expected some")
    zone = lake.manifest(trace).zone
    sizes = sizes_of(kept, every, [PREDICTED, ORACLE], zone=zone, seed=seed, nthread=threads, talk=talk)
    frame = kept.select(
        submit_ts="submit_ts",
        submit_s=pl.col("submit_ts").dt.epoch("us") / 1e6,
        gpus=gpus.cast(pl.Int64),
        run_s=pl.col("run_s").cast(pl.Float64),
        **{name: pl.Series(np.maximum(told, 1.0)) for name, told in sizes.predicted_s.items()},
    ).filter(pl.col("submit_ts") >= sizes.since)
    said = (
        f"{trace}: {len(frame)} jobs from {sizes.since:%Y-%m-%d} on, of which each seed takes some in a row; of "
        f"{len(every)} jobs were left out {len(every) - len(ran)} without a run time or GPUs, {len(ran) - len(small)} "
        f"with other counts than {', '.join(map(str, COUNTS))}, {len(small) - len(kept)} that ran over {MOST_RUN.days} "
        f"days, {len(kept) - len(frame)} earlier; time between arrivals scaled to a load of {LOAD:g}"
    )
    return Recorded(trace=trace, frame=frame, notes=(said, *sizes.notes))
