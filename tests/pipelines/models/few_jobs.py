"""Examples of few jobs that end one after the other, and a recipe whose trees are grown in no time."""

from datetime import datetime, timedelta
from functools import cache

import polars as pl

from features.history import History
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Examples, examples_of
from pipelines.models.fitted import Recipe
from pipelines.models.splits import Split, time_later
from tests.pipelines.models.conftest import T0, make_jobs

QUICK = Recipe(
    features="request", boosting=Boosting(rounds=12, patience=6, num_parallel_tree=1, learning_rate=0.3, max_depth=3)
)
LATER = 30
"""Number of jobs submitted after the cut."""


def known(jobs: pl.DataFrame) -> Examples:
    """Return the examples of all jobs."""
    return examples_of(
        jobs, None, "ctr", by="kind", history=History.of(jobs), names=QUICK.features, relative=QUICK.relative
    )


@cache
def case(count: int) -> tuple[Examples, Split, datetime]:
    """Return examples of which `count` ended before the cut; every job ends before the next is submitted."""
    n = count + LATER
    jobs = make_jobs(n, seed=count).with_columns(
        submit_ts=T0 + pl.int_range(n) * timedelta(days=1), run_s=pl.min_horizontal("run_s", 50_000.0)
    )
    jobs = jobs.with_columns(start_ts=pl.col("submit_ts"), queue_s=0.0)
    jobs = jobs.with_columns(end_ts=pl.col("start_ts") + pl.duration(seconds=pl.col("run_s")))
    examples = known(jobs)
    until = T0 + timedelta(days=count) - timedelta(hours=1)
    return examples, time_later(examples.jobs, until=until), until
