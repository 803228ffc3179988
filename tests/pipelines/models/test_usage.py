"""Usage models: upper quantiles that cover what later jobs use, and know nothing of it beforehand."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from pipelines.errors import TrainingError
from pipelines.models import boosting, usage
from pipelines.models.boosting import Boosting
from pipelines.models.judging import judge
from pipelines.models.model import TrainedModel
from pipelines.models.peaks import AlikeRecipe, UsageRecipe
from tests.pipelines.models.conftest import T0, make_jobs

CUT = T0 + timedelta(days=30)
QUICK = UsageRecipe(boosting=Boosting(rounds=50, patience=6, learning_rate=0.15, max_depth=3))


def use_of(jobs: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """Return what the jobs used: cores by group, memory by role of luck, GPUs a share of the request."""
    rng = np.random.default_rng(seed)
    n = jobs.height
    group = jobs["group"].str.slice(1).cast(pl.Float64).to_numpy()
    gpus = jobs["req_gpus"].to_numpy() * rng.uniform(0.1, 0.6, n)
    gib = 2 + group + rng.exponential(0.5, n)
    return jobs.select("trace", "cluster", "job_id", "role").with_columns(
        used_cpu_cores=pl.Series(0.5 + 0.3 * group + rng.exponential(0.2, n)),
        used_gpus=pl.Series(gpus),
        mem_avg_gib=pl.Series(gib * 0.8),
        mem_max_gib=pl.Series(gib),
        gpu_mem_avg_gib=pl.lit(None, pl.Float64),
        gpu_mem_max_gib=pl.lit(None, pl.Float64),
        net_read_bytes_per_s=pl.lit(0.0),
        net_write_bytes_per_s=pl.lit(0.0),
        instances_measured=pl.lit(1, pl.Int32),
        coverage_frac=pl.lit(None, pl.Float64),
    )


@pytest.fixture(scope="module")
def made() -> pl.DataFrame:
    return make_jobs(1500, seed=3)


@pytest.fixture(scope="module")
def model(made: pl.DataFrame) -> TrainedModel:
    return usage.train_usage(made, use_of(made), trace="made", until=CUT, recipe=QUICK)[0]


@pytest.mark.slow
def test_a_booster_stands_for_each_target_that_was_measured(model: TrainedModel) -> None:
    assert model.name == "usage.made.ctr"
    assert sorted(model.boosters) == sorted(model.offsets) == ["cpu_cores", "gpus", "mem_gib"]
    assert model.quantiles == (0.95,)
    assert model.important == ()


@pytest.mark.slow
def test_jobs_alike_are_bounded_beside_the_boosters(made: pl.DataFrame, model: TrainedModel) -> None:
    recipe = replace(QUICK, alike=AlikeRecipe(least_groups=1))

    [few, *_] = usage.train_usage(made, use_of(made), trace="made", until=CUT, recipe=recipe)

    assert model.alike is not None
    assert few.alike
    assert all(each.groups >= 1 and set(each.needs) <= set(few.boosters) for each in few.alike)


def test_the_answers_cover_what_later_jobs_use(model: TrainedModel) -> None:
    coverage = dict(model.evaluation.select("target", "coverage").iter_rows())

    assert all(0.91 < share < 0.99 for share in coverage.values())
    assert judge("usage", model.evaluation).passed


def test_covering_costs_less_than_one_answer_for_all(made: pl.DataFrame, model: TrainedModel) -> None:
    use = made.join(use_of(made), on="job_id")
    before, after = use.filter(pl.col("end_ts") < CUT), use.filter(pl.col("submit_ts") >= CUT)

    over = model.evaluation.row(by_predicate=pl.col("target") == "cpu_cores", named=True)["over"]

    assert 1.0 < over < 0.8 * before["used_cpu_cores"].quantile(0.95) / after["used_cpu_cores"].mean()


@pytest.mark.slow
def test_what_jobs_used_after_the_cut_changes_neither_boosters_nor_offsets(
    made: pl.DataFrame, model: TrainedModel
) -> None:
    ended = made.filter(pl.col("end_ts") < CUT).select("job_id")
    use = use_of(made)
    doubled = use.with_columns(
        pl.when(pl.col("job_id").is_in(ended["job_id"].implode())).then(c).otherwise(pl.col(c) * 2)
        for c in ("used_cpu_cores", "mem_max_gib", "used_gpus")
    )

    again = usage.train_usage(made, doubled, trace="made", until=CUT, recipe=QUICK)[0]

    for target, booster in model.boosters.items():
        assert again.boosters[target].save_raw("ubj") == booster.save_raw("ubj")
    assert again.offsets == model.offsets
    assert again.history.frame.equals(model.history.frame)
    assert not again.evaluation.equals(model.evaluation)


def test_answers_are_log1p_of_the_unit(made: pl.DataFrame, model: TrainedModel) -> None:
    types = {"q": pl.Float64, "c": pl.String}
    schema = {n: types[kind] for n, kind in zip(model.contract.names, model.contract.kinds, strict=True)}
    frame = pl.DataFrame({name: [None] for name in schema}, schema=schema)

    gib = np.expm1(boosting.predict(model.boosters["mem_gib"], model.contract.encode(frame))[0, 0])

    most = use_of(made)["mem_max_gib"].max()
    assert 2.0 < gib < most


def test_a_trace_without_usage_has_no_usage_model(made: pl.DataFrame) -> None:
    with pytest.raises(TrainingError, match="need jobs with measured use"):
        usage.train_usage(made, use_of(made)[:0], trace="made", until=CUT, recipe=QUICK)
