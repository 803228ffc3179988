"""Table 3 on made jobs whose groups recur: the random split flatters, and the table says so."""

import numpy as np
import polars as pl
import pytest

from pipelines.errors import TrainingError
from pipelines.models import replication
from tests.pipelines.models.conftest import make_jobs
from tests.pipelines.models.test_usage import use_of


def recurring(n: int = 700) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return jobs of forty groups, each with a run time of its own and a use that gives the group away."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 40, n)
    run_s = (np.exp(rng.normal(8, 1, 40))[group] * rng.uniform(0.95, 1.05, n)).round()
    jobs = make_jobs(n, seed=2).with_columns(
        group=pl.Series([f"g{g:02d}" for g in group]), workload=pl.lit("ctr"), run_s=pl.Series(run_s)
    )
    jobs = jobs.with_columns(end_ts=pl.col("start_ts") + pl.duration(seconds=pl.col("run_s")))
    own = rng.permutation(40)[group]
    return jobs, use_of(jobs).with_columns(used_cpu_cores=pl.Series(own + rng.uniform(0, 0.1, n)))


def test_the_random_split_leaks_recurring_jobs_and_the_by_group_split_does_not() -> None:
    jobs, use = recurring()

    table = replication.table3(jobs, use, trace="made")

    wmape = {(r["split"], r["model"]): r["wmape"] for r in table.to_dicts()}
    assert set(wmape) == {(s, m) for s in ("random", "group", "time") for m in replication.ANSWERS}
    for model in replication.ANSWERS:
        assert wmape["random", model] < 0.2
        assert wmape["group", model] > 3 * wmape["random", model]


def test_the_papers_figure_stands_beside_the_models_it_printed() -> None:
    jobs, use = recurring(200)

    table = replication.table3(jobs, use, trace="made", folds=2)

    printed = {r["model"]: (r["paper_mae_h"], r["paper_wmape"]) for r in table.to_dicts()}
    assert printed == {"xgboost": (0.16, 0.13), "random_forest": (0.17, 0.14), "xgboost_absolute_log": (None, None)}


def test_a_trace_without_these_workloads_is_refused() -> None:
    jobs, use = recurring(100)

    with pytest.raises(TrainingError, match="none of the workloads resnet"):
        replication.table3(jobs, use, trace="made", workloads=["resnet"])
