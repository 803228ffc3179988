"""Usage models: upper quantiles that cover what later jobs use, kills as lower bounds, and bounds of similar jobs."""

from datetime import timedelta
from math import isnan
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from features.build import build
from features.tables import TABLES
from modelserve.bundle.alike import SIMILAR_ROOM, alike_key
from pipelines.errors import TrainingError
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.models import boosting, usage
from pipelines.models.baselines import rank_quantile
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Setting
from pipelines.models.judging import judge
from pipelines.models.model import TrainedModel
from pipelines.models.splits import group_folds
from pipelines.models.training_tables import with_kills
from pipelines.models.usage import LEAST_GROUPS, LEAST_RESIDUALS, alike_of, calibration
from tests.pipelines.models.conftest import T0, make_jobs

CUT = T0 + timedelta(days=30)
QUICK = {"BOOSTING": Boosting(rounds=50, patience=6, num_parallel_tree=1, learning_rate=0.15, max_depth=3)}


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


def train(jobs: pl.DataFrame, use: pl.DataFrame, recipe: dict[str, object] = QUICK) -> TrainedModel:
    """Train a model with some constants of `usage` replaced."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in recipe.items():
            patched.setattr(usage, name, value)
        return usage.train_usage(Setting(jobs=jobs, usage=use, trace="made", until=CUT), "ctr")


@pytest.fixture(scope="module")
def made() -> pl.DataFrame:
    return make_jobs(1500, seed=3)


@pytest.fixture(scope="module")
def model(made: pl.DataFrame) -> TrainedModel:
    return train(made, use_of(made), QUICK | {"LEAST_GROUPS": 1})


def test_each_measured_target_gets_a_booster_and_bounds(model: TrainedModel) -> None:
    assert model.name == "usage.made.ctr"
    assert sorted(model.boosters) == sorted(model.offsets) == ["cpu_cores", "gpus", "mem_gib"]
    assert (model.quantiles, model.important) == ((0.95,), ())
    assert model.alike
    assert all(each.groups >= 1 and set(each.needs) <= set(model.boosters) for each in model.alike)


def test_the_answers_cover_what_later_jobs_use_at_less_cost_than_one_answer_for_all(
    made: pl.DataFrame, model: TrainedModel
) -> None:
    coverage = dict(model.evaluation.select("target", "coverage").iter_rows())
    use = made.join(use_of(made), on="job_id")
    before, after = use.filter(pl.col("end_ts") < CUT), use.filter(pl.col("submit_ts") >= CUT)

    over = model.evaluation.row(by_predicate=pl.col("target") == "cpu_cores", named=True)["over"]

    assert all(0.91 < share < 0.99 for share in coverage.values())
    assert judge("usage", model.evaluation).word == "passed"
    assert 1.0 < over < 0.8 * before["used_cpu_cores"].quantile(0.95) / after["used_cpu_cores"].mean()


@pytest.mark.slow
def test_what_jobs_used_after_the_cut_changes_neither_boosters_nor_offsets(
    made: pl.DataFrame, model: TrainedModel
) -> None:
    ended = made.filter(pl.col("end_ts") < CUT).select("job_id")
    doubled = use_of(made).with_columns(
        pl.when(pl.col("job_id").is_in(ended["job_id"].implode())).then(c).otherwise(pl.col(c) * 2)
        for c in ("used_cpu_cores", "mem_max_gib", "used_gpus")
    )

    again = train(made, doubled)

    for target, booster in model.boosters.items():
        assert again.boosters[target].save_raw("ubj") == booster.save_raw("ubj")
    assert again.offsets == model.offsets
    assert not again.evaluation.equals(model.evaluation)


def test_answers_are_log1p_of_the_unit(made: pl.DataFrame, model: TrainedModel) -> None:
    types = {"q": pl.Float64, "c": pl.String}
    schema = {n: types[kind] for n, kind in zip(model.contract.names, model.contract.kinds, strict=True)}
    frame = pl.DataFrame({name: [None] for name in schema}, schema=schema)

    gib = np.expm1(boosting.predict(model.boosters["mem_gib"], model.contract.encode(frame))[0, 0])

    assert 2.0 < gib < use_of(made)["mem_max_gib"].max()


def test_a_trace_without_usage_has_no_usage_model(made: pl.DataFrame) -> None:
    with pytest.raises(TrainingError, match="need jobs with measured use"):
        train(made, use_of(made)[:0])


# Calibration offsets.

HOUR_US = 3_600_000_000


def stream(n: int, seed: int, drift: float = 0.0) -> dict[str, np.ndarray]:
    """Return jobs with Gaussian residuals about a mean that drifts by `drift` over the stream."""
    rng = np.random.default_rng(seed)
    submit_us = np.sort(rng.integers(0, 1000 * HOUR_US, n))
    residuals = drift * np.linspace(0, 1, n) + rng.normal(size=n)
    return {"submit_us": submit_us, "end_us": submit_us + rng.integers(1, 9 * HOUR_US, n), "residuals": residuals}


def test_an_offset_is_the_quantile_of_the_residuals_that_ended_strictly_before() -> None:
    jobs = stream(200, 1)
    jobs["end_us"][10] = jobs["submit_us"][60]  # an end at the instant of a submission is not its history
    jobs["residuals"][5] = np.nan

    offsets, final = calibration(**jobs, level=0.9)

    for row, offset in enumerate(offsets.tolist()):
        ended = sorted(r for r in jobs["residuals"][jobs["end_us"] < jobs["submit_us"][row]].tolist() if not isnan(r))
        assert offset == (rank_quantile(ended, 0.9) if len(ended) >= LEAST_RESIDUALS else 0.0)
    assert final == rank_quantile(sorted(r for r in jobs["residuals"].tolist() if not isnan(r)), 0.9)
    order = np.random.default_rng(0).permutation(200)
    again, same = calibration(**{name: values[order] for name, values in jobs.items()}, level=0.9)
    assert (again.tolist(), same) == (offsets[order].tolist(), final)


def test_offsets_follow_the_jobs_that_ended_last(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = stream(4000, 2, drift=3.0)

    whole, _ = calibration(**jobs, level=0.9)
    monkeypatch.setattr(usage, "RESIDUALS", 300)
    recent, _ = calibration(**jobs, level=0.9)

    late = slice(1000, None)
    covered = [(jobs["residuals"][late] <= offsets[late]).mean() for offsets in (whole, recent)]
    assert covered[0] < 0.8
    assert covered[1] == pytest.approx(0.9, abs=0.03)


# Jobs that were killed for memory.

# Without features of earlier use, so that two models differ only by what they learn from the rows themselves.
PLAIN = {
    "FEATURES": "submit",
    "BOOSTING": Boosting(rounds=15, patience=5, num_parallel_tree=1, learning_rate=0.2, max_depth=3),
}
JOBS = make_jobs(700, seed=5)
USE = use_of(JOBS)
KEY = ["trace", "cluster", "job_id", "role"]
OF_KILLED = pl.col("job_id").is_in(JOBS.gather_every(4)["job_id"].implode())


def killed_at(request_gib: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables in which every fourth job was killed at this request, and measured at a tenth of it."""
    jobs = JOBS.with_columns(
        status=pl.when(OF_KILLED).then(pl.lit("oom")).otherwise("status"),
        req_mem_gib=pl.when(OF_KILLED).then(request_gib).otherwise("req_mem_gib"),
    )
    use = USE.with_columns(mem_max_gib=pl.when(OF_KILLED).then(request_gib / 10).otherwise("mem_max_gib"))
    return jobs, with_kills(jobs, use)


def test_a_killed_job_used_its_request_at_least() -> None:
    jobs, use = killed_at(40.0)
    added = with_kills(jobs, use.filter(pl.col("job_id") != JOBS["job_id"][0]))

    for table in (use, added):
        assert TABLES["usage"].is_valid(TABLES["usage"].cast(table))
        assert table.filter(OF_KILLED)["mem_max_gib"].unique().to_list() == [40.0]
        assert table.filter(~OF_KILLED).equals(USE.filter(~OF_KILLED))
    [only] = added.filter(pl.col("job_id") == JOBS["job_id"][0]).rows(named=True)
    assert (only["used_cpu_cores"], only["instances_measured"]) == (None, JOBS["instances"][0])
    low, _ = killed_at(1.0)
    assert (
        with_kills(low, USE).filter(OF_KILLED)["mem_max_gib"].to_list()
        == USE.filter(OF_KILLED)["mem_max_gib"].to_list()
    )
    assert with_kills(JOBS, USE) is USE
    assert with_kills(low, USE[:0]).is_empty()


@pytest.mark.slow
def test_low_bounds_change_no_floor_and_high_ones_raise_them() -> None:
    """Low bounds are below every prediction, so the trees are those of jobs whose memory was not measured."""
    jobs, low = killed_at(0.5)
    unmeasured = low.with_columns(mem_max_gib=pl.when(~OF_KILLED).then("mem_max_gib"))
    without, with_low, with_high = (train(*each, PLAIN) for each in ((jobs, unmeasured), (jobs, low), killed_at(60.0)))

    assert without.boosters["mem_gib"].save_raw("ubj") == with_low.boosters["mem_gib"].save_raw("ubj")
    assert with_low.offsets == without.offsets
    assert with_low.evaluation.equals(without.evaluation)
    assert np.median(floors(with_high, JOBS) / floors(without, JOBS)) > 1.5


def floors(model: TrainedModel, jobs: pl.DataFrame) -> np.ndarray:
    """Return the predicted memory in GiB of the jobs submitted after the cut, without the calibration offset."""
    later = jobs.filter(pl.col("submit_ts") > CUT)
    matrix = model.contract.encode(build(later, model.history, model.contract.names))
    return np.expm1(boosting.predict(model.boosters["mem_gib"], matrix)[:, 0])


# Bounds of similar jobs.

COLUMNS = {"cpu_cores": "used_cpu_cores", "mem_gib": "mem_max_gib", "gpu_mem_gib": "gpu_mem_max_gib"}


def four(**changed: list[object]) -> pl.DataFrame:
    """Return four measured workers of four groups, all requesting six cores and 2 GiB."""
    return pl.DataFrame(
        {
            "job_id": ["1", "2", "3", "4"],
            "role": ["worker"] * 4,
            "group": ["a", "b", "c", "d"],
            "user": ["u"] * 4,
            "vc": [None] * 4,
            "req_cpu_cores": [6.0] * 4,
            "req_mem_gib": [2.0] * 4,
            "req_gpus": [0.25] * 4,
            "used_cpu_cores": [1.0, 2.0, 3.0, 9.0],
            "mem_max_gib": [1.0, 1.0, 1.0, 5.0],
            "gpu_mem_max_gib": [0.5, None, None, 1.0],
            **changed,
        },
        schema_overrides={"vc": pl.String, "gpu_mem_max_gib": pl.Float64},
    )


def test_a_bound_is_the_conformal_quantile_of_needs_up_to_the_request_times_its_factor() -> None:
    [found] = alike_of(four(), COLUMNS, 3)

    # The rank of level 0.99 in four is the fourth; needs above the request count as the request.
    assert (found.role, found.groups, found.cpu_cores) == ("worker", 4, 6.0)
    expected = {"mem_gib": 2.0, "gpu_mem_gib": 1.0}
    assert found.needs == {target: need * SIMILAR_ROOM[target] for target, need in expected.items()} | {
        "cpu_cores": 6.0  # the margin alone is no reason to raise the request
    }
    assert alike_of(four()[[2, 0, 3, 1]], COLUMNS, 3) == (found,)


@pytest.mark.parametrize(
    ("used", "bound"),
    [
        ([1.0, 2.0, 3.0, 4.0], 4.4),  # below the request: the largest and its margin
        ([1.0, 2.0, 7.0, 9.0], 6.0),  # half of the jobs are above it: no raise
        ([5.0, 6.5, 7.0, 9.0], 9.0),  # most are: their quantile
    ],
)
def test_cpu_is_raised_to_what_similar_jobs_use_if_most_use_more_than_requested(
    used: list[float], bound: float
) -> None:
    [found] = alike_of(four(used_cpu_cores=used), COLUMNS, 3)

    assert found.needs["cpu_cores"] == pytest.approx(bound)


@pytest.mark.slow
def test_four_fifths_of_the_cpu_raises_of_unseen_groups_cover_the_measured_need(traces: Path, tmp_path: Path) -> None:
    """On the real PAI sample, each group left out of the bounds in one of five folds; rows of no bound do not count."""
    ingest("pai", traces / "pai", tmp_path / "lake")
    with Lake(tmp_path / "lake") as lake:
        jobs, use = (lake.table(name, "pai").collect() for name in ("jobs", "usage"))
    rows = jobs.join(use.drop("trace", "cluster"), on=["job_id", "role"]).drop_nulls(["used_cpu_cores"])
    raised, right, enough = 0, 0, 0
    for (_,), of_type in rows.group_by("task_type"):
        for fold in group_folds(of_type, folds=5, seed=0) if of_type["group"].n_unique() >= 2 * LEAST_GROUPS else []:
            bounds = {each.key: each for each in alike_of(of_type[fold.train], usage.MEASURED_COLUMN, LEAST_GROUPS)}
            for row in of_type[fold.test].rows(named=True):
                asked, need = row["req_cpu_cores"], row["used_cpu_cores"]
                found = bounds.get(alike_key(row["role"], (asked, row["req_mem_gib"], row["req_gpus"])))
                if found is not None and found.needs["cpu_cores"] > 1.05 * asked:
                    raised += 1
                    right += need > asked
                    enough += asked < need <= found.needs["cpu_cores"]

    assert raised >= 100, (raised, right, enough)
    assert right >= 0.8 * raised
    assert enough >= 0.8 * right


@pytest.mark.parametrize(
    "changed",
    [
        {"group": ["a", "a", "b", "b"]},
        {"req_mem_gib": [2.0, 2.0, 4.0, 4.0]},
        {"role": ["worker", "worker", "evaluator", "evaluator"]},
        {"role": ["ps"] * 4},
    ],
)
def test_too_few_groups_of_one_role_and_request_are_not_bounded(changed: dict[str, list[object]]) -> None:
    assert alike_of(four(**changed), COLUMNS, 3) == ()


def test_cells_come_with_most_groups_first() -> None:
    more = pl.concat([four(), four(req_cpu_cores=[8.0] * 4)[:3]]).with_columns(group=pl.int_range(7).cast(pl.String))

    assert [each.groups for each in alike_of(more, COLUMNS, 3)] == [4, 3]


def test_bounds_hold_the_request_of_a_killed_job() -> None:
    jobs, use = killed_at(40.0)

    found = alike_of(jobs.join(use, on=KEY), usage.MEASURED_COLUMN, 1)

    bounds = [each.needs["mem_gib"] for each in found if each.mem_gib == 40.0]
    assert bounds
    assert bounds == pytest.approx([40.0 * SIMILAR_ROOM["mem_gib"]] * len(bounds))
