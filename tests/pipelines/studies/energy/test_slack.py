"""Jobs held for a cleaner hour: what is saved, what it costs them, and that nobody is held by a flat forecast."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.errors import BadUsage, LakeError
from pipelines.simulation.energy.meters import Meters
from pipelines.simulation.energy.power_file import power_file
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.measures.job_metrics import Uses
from pipelines.studies.energy.slack import (
    Config,
    Outcome,
    Queue,
    compared,
    outcome,
    queue_of,
    run_study,
    shifted,
    shifts,
)
from pipelines.studies.intervals import day_counts
from pipelines.studies.study import Context
from scheduler_core.cluster import Machine
from scheduler_core.planning.grid import Grid
from scheduler_core.queueing import Discipline
from tests.pipelines.simulation.energy.sites import hourly
from tests.pipelines.simulation.engine.schedules import Came, workload
from tests.pipelines.statistics.lakes import T0, make_lake, ran, used

UNKNOWN = Uses(mean=np.full((2, 3), np.nan))
CLEAN = [500.0, 500.0, 500.0, 100.0] + [500.0] * 20


def meters() -> Meters:
    carbon = hourly(CLEAN * 366, wrap=True)
    price = hourly(np.array(CLEAN * 366) / -1000.0, "USD/kWh", wrap=True)
    return Meters(table=power_file(), grids=(Grid(zone="Z", carbon=carbon, price=price),), notes=())


def queue() -> Queue:
    """Return two jobs of an hour on a machine that holds both; the first one only warms up."""
    came = [Came(request=(0.0, 0.0, 1.0), run_s=3600.0, at_s=at) for at in (0.0, 600.0)]
    return Queue(
        workload=workload(came),
        uses=UNKNOWN,
        machines=(Machine(name="m", cpu_cores=0.0, mem_gib=0.0, gpus=4),),
        measured=np.array([False, True]),
        day=np.array([0, 0]),
        first_ts=0.0,
    )


@pytest.mark.parametrize(
    ("how", "slack_h", "met", "later_s"),
    [
        ("persistence", 6.0, 500.0, 0.0),
        ("yesterday", 6.0, 100.0, 3 * 3600.0 - 600.0),
        ("clairvoyant", 6.0, 100.0, 3 * 3600.0 - 600.0),
        ("clairvoyant", 2.0, 500.0, 0.0),
    ],
)
def test_a_job_meets_the_clean_hour_within_its_slack(how: str, slack_h: float, met: float, later_s: float) -> None:
    jobs, site = queue(), meters()
    grid = site.grids[0]
    assert grid.carbon is not None

    held = shifted(jobs, grid.carbon, slack_h, how, 0.0)
    found = outcome(jobs, held, site, grid, 0.0)

    assert found.jobs.tolist() == [1.0]
    assert found.carbon_g[0] / found.kwh[0] == pytest.approx(met)
    assert found.jct_s[0] == pytest.approx(3600.0 + later_s)


def test_who_never_fits_is_no_job_of_the_figures() -> None:
    jobs = queue()
    large = workload([Came(request=(0.0, 0.0, 1.0)), Came(request=(0.0, 0.0, 9.0), at_s=600.0)])
    jobs = replace(jobs, workload=large)

    found = outcome(jobs, simulate(large, jobs.machines, Discipline()), meters(), meters().grids[0], 0.0)

    assert found.jobs.tolist() == [0.0]
    assert not np.isnan(found.jct_s).any()


def test_the_same_run_saves_exactly_nothing() -> None:
    rng = np.random.default_rng(0)
    columns = {name: rng.uniform(1.0, 9.0, 21) for name in ("jobs", "kwh", "carbon_g", "cost_usd", "jct_s")}
    same = Outcome(**columns)

    row = compared(same, same, day_counts(21, rng=rng, draws=50))

    figures = [value for name, value in row.items() if name not in ("jobs", "jct_at_once_h")]
    assert figures == [0.0] * len(figures)


def test_savings_and_delays_are_told_with_weeks() -> None:
    days = np.ones(28)
    base = Outcome(jobs=days * 10, kwh=days * 5, carbon_g=days * 2000, cost_usd=days * 0.5, jct_s=days * 36_000)
    found = Outcome(jobs=days * 10, kwh=days * 6, carbon_g=days * 1800, cost_usd=days * 0.4, jct_s=days * 72_000)

    row = compared(found, base, day_counts(28, rng=np.random.default_rng(0), draws=50))

    assert [row["carbon_saved_pct"], row["carbon_saved_pct_lo"]] == pytest.approx([10.0, 10.0])
    assert row["intensity_saved_pct"] == pytest.approx(25.0)
    assert row["carbon_saved_g_per_job"] == pytest.approx(20.0)
    assert row["cost_saved_usd_per_1000_jobs"] == pytest.approx(10.0)
    assert [row["jct_at_once_h"], row["jct_later_h"]] == pytest.approx([1.0, 1.0])


def test_a_trace_is_replayed_by_every_forecast(tmp_path: Path) -> None:
    jobs = [ran(at, 1800.0, req_gpus=1.0, submit_ts=T0 + timedelta(hours=at)) for at in range(72)]
    machines = [{"trace": "toy", "cluster": "c", "machine": "m", "gpus": 4}]
    lake = make_lake(tmp_path, {"jobs": jobs, "machines": machines})

    found = shifts(lake, "toy", meters(), Config(slacks_h=(3.0,)), Context())

    rows = found.frames["rows"]
    said = " | ".join(found.notes)
    assert "assumed use if not measured: 52% of the GPUs held" in said
    assert "1 of 1 machines have no GPU type of the table: taken as V100" in said
    assert rows.height == 2 * 4
    assert rows.filter(pl.col("shift") == "persistence")["jct_later_h"].to_list() == [0.0, 0.0]
    saved = rows.filter(pl.col("shift") == "clairvoyant", pl.col("shift_by") == "carbon")
    assert saved["carbon_saved_pct"][0] > 0.0
    assert saved["jct_later_h"][0] > 0.0


def test_measured_use_is_counted_and_the_rest_assumed(tmp_path: Path) -> None:
    jobs = [ran(at, 1800.0, req_gpus=1.0, submit_ts=T0 + timedelta(hours=at)) for at in range(72)]
    machines = [{"trace": "toy", "cluster": "c", "machine": "m", "gpus": 4}]
    lake = make_lake(tmp_path, {"jobs": jobs, "usage": [used(71, used_gpus=0.25)], "machines": machines})

    told, notes = queue_of(lake, "toy", None, seed=0, nthread=1, talk=lambda _: None)
    now = simulate(told.workload, told.machines, Discipline())
    site = meters()
    less = outcome(told, now, site, site.grids[0], 0.0).kwh.sum()
    assumed = outcome(replace(told, uses=Uses(mean=np.full((72, 3), np.nan))), now, site, site.grids[0], 0.0).kwh.sum()

    assert np.isfinite(told.uses.mean[:, 2]).tolist() == [False] * 71 + [True]
    assert told.uses.mean[-1, 2] == 250.0
    gpu = site.table.gpus[site.table.default_gpu]
    gpu_frac = site.table.assumed.gpu_frac
    assert assumed - less == pytest.approx((gpu_frac - 0.25) * (gpu.full_w - gpu.idle_w) * 0.5 / 1000.0)
    assert "measured use of the GPUs: of 1 of these jobs" in " ".join(notes)


def test_a_trace_without_machines_is_refused(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {"jobs": [ran(0, 60.0, req_gpus=1.0)]})

    with pytest.raises(LakeError, match="machines"):
        shifts(lake, "toy", meters(), Config(), Context())


@pytest.mark.parametrize(("how", "later_s"), [("yesterday", 0.0), ("clairvoyant", 3 * 3600.0 - 600.0)])
def test_a_forecast_goes_by_predicted_run_times_and_hindsight_by_true_ones(how: str, later_s: float) -> None:
    jobs, site = queue(), meters()
    # Over the ten hours that are predicted the clean one is met at once; over the true hour it is not.
    jobs = replace(jobs, workload=replace(jobs.workload, predicted_s=np.full(2, 10 * 3600.0)))
    assert site.grids[0].carbon is not None

    held = shifted(jobs, site.grids[0].carbon, 6.0, how, 0.0)

    assert held.start_s[held.job == 1].tolist() == [600.0 + later_s]


def test_a_year_that_the_files_lack_is_refused_before_the_lake_is_opened(energy: Path) -> None:
    context = Context(energy=energy, lake=lambda: pytest.fail("opened"))

    with pytest.raises(BadUsage, match="--zone SG: found carbon from 2023-01-01 to 2024-01-01, expected all of 2022"):
        run_study(Config(zones=("SG",), year=2022), context)
