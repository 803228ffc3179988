"""Jobs of a trace with run times predicted from earlier months: the recorded jobs of the cost study.

The jobs of a month are predicted by a model trained only on jobs that ended before that month. Histories contain only
jobs whose recorded end is before the submission.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from features.history import History
from pipelines.errors import LakeError
from pipelines.models.baselines import history_forecasts
from pipelines.models.examples import Examples, examples_of, task_types
from pipelines.models.fitted import FEATURES, combined, fit_runtime
from pipelines.models.recipes import Recipe
from pipelines.models.splits import time_later
from pipelines.studies.study import Context
from scheduler_core.types import BoolArray, FloatArray, IntArray

MOST_RUN: Final = timedelta(days=3)
"""Maximum run time; longer jobs are left out, because one would outlast all others of a sample."""

COUNTS: Final = (1, 2, 4, 8, 16)

LEAST_LEARNT: Final = 1000
"""Minimum number of jobs that must have ended before a month for training its model. Jobs submitted before the first
such month are left out."""

WITHOUT_MODEL: Final = "recent_20"
"""Baseline for task types with too few jobs for a model."""


def recorded_jobs(
    context: Context, name: str, *, seed: int, least: int, most_gpus: int = max(COUNTS)
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Read a trace's jobs, and predict each run time from jobs that ended before its month.

    Return the columns `submit_s, gpus, run_s, predicted`, by submission, and notes. Raise LakeError if the
    trace has fewer than `least` suitable jobs.
    """
    lake, trace = context.lake(), context.trace(name)
    every = lake.table("jobs", trace).collect()
    gpus = (pl.col("req_gpus") * pl.col("instances")).alias("gpus")
    ran = every.filter(pl.col("run_s") > 0.0, ~pl.col("run_s_censored").fill_null(value=True))
    small = ran.filter(gpus.is_in([float(count) for count in COUNTS]))
    kept = small.filter(pl.col("run_s") <= MOST_RUN.total_seconds()).sort("submit_ts", "job_id", maintain_order=True)
    if not len(kept):
        raise LakeError(f"{trace} has no job with {max(COUNTS)} GPUs at most and a run time, expected some")
    months = local_months(kept, lake.manifest(trace).zone)
    cuts = [month for month in months if _ended_before(every, month) >= LEAST_LEARNT]
    learnt = learned(kept, every, cuts, seed=seed, nthread=context.threads, talk=context.talk)
    without = np.exp(history_forecasts(kept, [WITHOUT_MODEL])[WITHOUT_MODEL].p50)
    since = (cuts or months)[0]
    frame = kept.select(
        submit_ts="submit_ts",
        submit_s=pl.col("submit_ts").dt.epoch("us") / 1e6,
        gpus=gpus.cast(pl.Int64),
        run_s=pl.col("run_s").cast(pl.Float64),
        predicted=pl.Series(np.maximum(np.where(np.isnan(learnt), without, learnt), 1.0)),
    ).filter(pl.col("submit_ts") >= since, pl.col("gpus") <= most_gpus)
    if len(frame) < least:
        raise LakeError(f"{trace} has {len(frame)} jobs that suit, expected {least}; lower --jobs")
    note = (
        f"{trace}: {len(frame)} jobs of {len(every)}, from {since:%Y-%m-%d} on, with a power of two of GPUs and at "
        f"most {MOST_RUN.days} days; each seed takes some in a row, time between arrivals scaled to the load; "
        f"{len(cuts)} models, one a month, learnt from jobs that had ended before; {int(np.isnan(learnt).sum())} of "
        f"{len(kept)} jobs came before or are of a type without a model, and took {WITHOUT_MODEL}"
    )
    return frame, (note,)


def in_a_row(jobs: pl.DataFrame, count: int, rng: np.random.Generator) -> pl.DataFrame:
    """Return consecutive jobs from a random one on."""
    return jobs.slice(int(rng.integers(len(jobs) - count + 1)), count)


def local_months(jobs: pl.DataFrame, zone: str) -> list[datetime]:
    """Return the first moments of the months in which jobs were submitted, ascending, in a time zone."""
    begins = jobs["submit_ts"].dt.convert_time_zone(zone).dt.truncate("1mo")
    return begins.dt.convert_time_zone("UTC").unique().sort().to_list()


def learned(
    jobs: pl.DataFrame,
    learnt_from: pl.DataFrame,
    cuts: Sequence[datetime],
    *,
    seed: int,
    nthread: int,
    talk: Callable[[str], None],
) -> FloatArray:
    """Return p50 in seconds of each job (n,) from the last model before its submission; NaN without one.

    `cuts` ascend: each model is trained on jobs that ended before its cut, and used until the next cut.
    """
    answers = np.full(jobs.height, np.nan)
    if not cuts:
        return answers
    keys = ["trace", "cluster", "job_id", "role"]
    numbered = jobs.select(*keys).with_row_index("row")
    # Jobs submitted after the last of these jobs are not in the history of any of them.
    pool = learnt_from.filter(pl.col("submit_ts") <= jobs["submit_ts"].max())
    history, recipe = History.of(pool), Recipe()
    for task_type in task_types(jobs, "kind"):
        examples = examples_of(pool, None, task_type, by="kind", history=history, names=FEATURES, relative=True)
        place = examples.jobs.select(keys).join(numbered, on=keys, how="left", maintain_order="left")["row"]
        known = place.cast(pl.Int64).fill_null(-1).to_numpy()
        for begin, end in pairwise([*cuts, datetime.max.replace(tzinfo=cuts[0].tzinfo)]):
            rows, seconds = _period(examples, known >= 0, begin, end, recipe, seed=seed, nthread=nthread)
            answers[known[rows]] = seconds
            talk(f"{task_type}: {len(rows)} jobs from {begin:%Y-%m-%d} on predicted from jobs ended before")
    return answers


def _period(
    examples: Examples, wanted: BoolArray, begin: datetime, end: datetime, recipe: Recipe, *, seed: int, nthread: int
) -> tuple[IntArray, FloatArray]:
    """Return the `wanted` rows (k,) submitted in [begin, end), and p50 in seconds by a model cut at `begin`."""
    split = time_later(examples.jobs, until=begin)
    in_period = wanted & (examples.jobs["submit_ts"] < end).to_numpy()
    asked = split.test[in_period[split.test]]
    if len(asked) == 0 or len(split.train) < LEAST_LEARNT or len(split.stop) == 0 or len(split.fit) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0)
    split = replace(split, test=asked)
    fitted = fit_runtime(examples, split, recipe, until=begin, seed=seed, nthread=nthread)
    return asked, np.exp(combined(examples, fitted).p50)


def _ended_before(jobs: pl.DataFrame, moment: datetime) -> int:
    return jobs.filter(pl.col("end_ts") < moment).height
