"""Savings: readings that add up, savings worked by hand, replays of a tiny lake, and the study from end to end."""

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.errors import BadUsage, LakeError
from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK
from pipelines.simulation.energy.meters import OFF, ON, Meters
from pipelines.simulation.energy.power_file import power_file
from pipelines.simulation.settings import SimulationSettings
from pipelines.studies.energy.savings import (
    SAVINGS,
    SWITCHING,
    WHERE,
    findings,
    recorded_savings,
    right_sizing,
    shares,
)
from pipelines.studies.energy.savings_runs import (
    PACKED,
    SPREAD,
    WHAT_IF,
    WINDOW,
    Recorded,
    drawn_rows,
    fewer_gpus,
    recorded,
)
from pipelines.studies.shrinking.crossfit import Predicted
from scheduler_core.planning.grid import Grid
from tests.pipelines.simulation.energy.sites import hourly
from tests.pipelines.simulation.engine.schedules import Came, workload
from tests.pipelines.statistics.lakes import T0, make_lake, ran
from tests.pipelines.studies.shrinking.tiny import PREDICTOR, pool

HOURS = 8760


def meters(*, pue: float = 1.25) -> Meters:
    """Return meters of a zone with a clean noon, whose price falls below nothing."""
    carbon = [400.0 - 25.0 * abs(12 - hour % 24) for hour in range(HOURS)]
    price = [0.2 - 0.02 * (hour % 24) for hour in range(HOURS)]
    grid = Grid(zone="Z", carbon=hourly(carbon, wrap=True), price=hourly(price, "USD/kWh", wrap=True), pue=pue)
    return Meters(table=power_file(), grids=(grid,), notes=("a made-up grid",))


def readings(**saved: float) -> pl.DataFrame:
    """Return readings of two seeds: `requested` draws 10 and 20 kWh for 10 jobs, the others less by a fraction."""
    rows: list[dict[str, Any]] = []
    for machines in (ON, OFF):
        for arm in (REQUESTED, SHRUNK, ORACLE):
            for seed, kwh in enumerate((10.0, 20.0)):
                drawn = kwh * (1.0 - saved.get(arm, 0.0))
                rows.append(
                    {
                        "scene": "s",
                        "truth": "contention",
                        "arm": arm,
                        "zone": "Z",
                        "machines": machines,
                        "seed": seed,
                        "energy_kwh": drawn,
                        "carbon_kg": drawn / 2,
                        "cost_usd": -drawn,
                        "work_kwh": kwh / 2,
                        "finished": 10,
                        "killed": 1,
                        "jct_mean_h": 2.0,
                    }
                )
    return pl.DataFrame(rows)


def test_savings_are_per_finished_job_and_paired_by_seed() -> None:
    rows = right_sizing(readings(shrunk=0.25, oracle=-0.5))

    shrunk, oracle_row = (
        next(row for row in rows if row["arm"] == arm and row["machines"] == ON) for arm in (SHRUNK, ORACLE)
    )
    assert [shrunk["energy_saved_pct"], shrunk["energy_saved_pct_lo"], shrunk["energy_saved_pct_hi"]] == pytest.approx(
        [25.0] * 3
    )
    assert shrunk["energy_kwh_saved"] == pytest.approx(1000.0 * (0.25 + 0.5) / 2)
    assert shrunk["energy_per_work_saved_pct"] == pytest.approx(25.0)
    assert oracle_row["energy_saved_pct"] == pytest.approx(-50.0)
    assert oracle_row["carbon_kg_saved"] == pytest.approx(-1000.0 * (0.5 + 1.0) / 2 / 2)


def test_who_finishes_more_saves_for_each_job() -> None:
    more = readings().with_columns(
        pl.when(pl.col("arm") == SHRUNK).then(20).otherwise(pl.col("finished")).alias("finished")
    )

    row = next(row for row in right_sizing(more) if row["arm"] == SHRUNK)

    assert row["energy_saved_pct"] == pytest.approx(50.0)


def days(count: int, **kwh: float) -> pl.DataFrame:
    """Return days on which each arm draws so much with machines on, and half as much with empty ones off."""
    return pl.DataFrame(
        [
            {
                "arm": arm,
                "zone": "Z",
                "machines": machines,
                "day": day,
                "energy_kwh": amount * part,
                "carbon_kg": amount * part,
                "cost_usd": amount * part,
                "finished": 4.0,
            }
            for arm, amount in kwh.items()
            for machines, part in ((ON, 1.0), (OFF, 0.5))
            for day in range(count)
        ]
    )


@pytest.mark.parametrize("count", [28, 13])
def test_recorded_savings_resample_weeks_where_there_are_two(count: int) -> None:
    frame = days(count, **{PACKED: 10.0, SPREAD: 12.0, WHAT_IF: 8.0})

    right, off = recorded_savings(frame, seed=0)

    assert [row["energy_saved_pct"] for row in right] == pytest.approx([20.0, 20.0])
    assert off[0]["energy_saved_pct"] == pytest.approx(50.0)
    assert off[0]["energy_kwh_saved"] == pytest.approx(1000.0 * 5.0 / 4.0)
    assert math.isnan(float(str(off[0]["energy_saved_pct_lo"]))) == (count < 14)


def test_parts_are_told_in_percent_of_their_sum() -> None:
    assert shares({"work_kwh": 3.0, "idle_empty_kwh": 1.0}) == {
        "energy_kwh": 4.0,
        "work_pct": 75.0,
        "idle_empty_pct": 25.0,
    }


@pytest.mark.parametrize(("gpus", "held"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (2.0, 2.0), (4.0, 3.0), (8.0, 5.0)])
def test_fewer_gpus_are_whole_ones_that_hold_the_share(gpus: float, held: float) -> None:
    told = workload([Came(request=(0.0, 0.0, gpus))])

    assert fewer_gpus(told, 0.52).request_units[0, 2] == held * 1000


def test_a_replay_differs_by_empty_machines_alone(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {"jobs": jobs(), "machines": machines()})

    found = recorded(lake, "toy", None, meters(), lambda _: None)

    sums = found.days.group_by("arm", "machines").agg(pl.col("energy_kwh", "finished").sum())
    drawn = {(arm, each): kwh for arm, each, kwh, _ in sums.iter_rows()}
    assert drawn[PACKED, ON] == drawn[SPREAD, ON] == drawn[WHAT_IF, ON] == pytest.approx(sum(found.parts.values()))
    assert drawn[WHAT_IF, OFF] <= drawn[PACKED, OFF] < drawn[SPREAD, OFF] < drawn[PACKED, ON]
    assert any("no request is shrunk" in note for note in found.notes)
    assert any("toy: 4 of 4 machines have no GPU type of the table" in note for note in found.notes)


def test_a_replay_needs_machines(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {"jobs": jobs()})

    with pytest.raises(LakeError, match="machines"):
        recorded(lake, "toy", None, meters(), lambda _: None)


@pytest.mark.slow
def test_the_study_holds_every_arm_against_the_requests(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {"jobs": jobs(), "machines": machines()})
    drawn = pool()
    beside: dict[str, Recorded] = {"log": recorded(lake, "toy", None, meters(), lambda _: None)}

    found = findings(
        Predicted(pool=drawn, predictor=PREDICTOR, notes=()),
        meters(),
        range(2),
        beside,
        SimulationSettings(engine="plain", slowdown_models=("contention",)),
    )

    assert any(note.startswith("assumed use if not measured: 52%") for note in found.notes)
    runs = found.frames["runs"]
    parts = [name for name in runs.columns if name.startswith(("work_", "idle_"))]
    on = runs.filter(pl.col("machines") == ON)
    assert on.select(pl.sum_horizontal(parts)).to_series().to_list() == pytest.approx(on["energy_kwh"].to_list())
    assert (runs["energy_kwh"] > 0.0).all()
    ended = runs.filter(pl.col("scene") == "until all ended")
    assert ended.group_by("seed").agg(pl.col("finished").n_unique())["finished"].to_list() == [1, 1]
    assert {row["trace"] for row in found.tables[SAVINGS]} == {"toy", "log"}
    assert len(found.tables[SWITCHING]) == 2 + 3
    assert all(row["work_pct"] > 0.0 for row in found.tables[WHERE])  # type: ignore[operator]  # a number
    found.charts["parts_of_energy"]().to_dict()


def test_a_zone_without_prices_is_refused() -> None:
    bare = Grid(zone="Z", carbon=hourly([1.0]))

    with pytest.raises(BadUsage, match="zone Z lacks"):
        replace(meters(), grids=(bare,)).priced()


def jobs() -> list[dict[str, object]]:
    """Return two days of jobs of two GPUs, each for half an hour, and one of four GPUs."""
    small = [ran(hour, 1800.0, req_gpus=2.0, submit_ts=T0 + timedelta(hours=hour)) for hour in range(48)]
    pairs = [ran(100 + hour, 1800.0, req_gpus=1.0, submit_ts=T0 + timedelta(hours=hour)) for hour in range(48)]
    large = [ran(200 + hour, 3000.0, req_gpus=4.0, submit_ts=T0 + timedelta(hours=hour)) for hour in range(0, 48, 3)]
    return [*small, *pairs, *large]


def machines() -> list[dict[str, object]]:
    return [{"trace": "toy", "cluster": "c", "machine": f"m{at}", "gpus": 4} for at in range(4)]


@pytest.mark.slow
def test_every_arm_of_a_seed_begins_at_the_same_hour_of_the_grid() -> None:
    # An hour's intensity is its number: what is met tells when.
    clock = hourly([float(hour) for hour in range(HOURS)], wrap=True)
    site = replace(meters(), grids=(replace(meters().grids[0], carbon=clock, pue=1.0),))
    settings = SimulationSettings(engine="plain", slowdown_models=("contention",))

    runs = pl.DataFrame(list(drawn_rows(pool(), PREDICTOR, settings, site, range(4))), infer_schema_length=None)

    met = runs.filter(pl.col("machines") == ON, pl.col("scene") == WINDOW).select(
        "seed", "arm", "hours", hour=pl.col("carbon_kg") * 1000.0 / pl.col("energy_kwh")
    )
    each = met.group_by("seed").agg(pl.col("hour").min().alias("low"), pl.col("hour").max().alias("high"), pl.len())
    assert each["len"].to_list() == [3] * 4
    assert (each["high"] - each["low"]).max() <= met["hours"].max()  # type: ignore[operator]  # numbers
    assert each["low"].std() > 100.0  # type: ignore[operator]  # a number


def test_a_recorded_saving_is_that_of_all_days_not_of_a_resample() -> None:
    # The first of four weeks saves half, the others nothing.
    level = days(28, **{PACKED: 10.0, SPREAD: 12.0, WHAT_IF: 10.0})
    first = (pl.col("arm") == WHAT_IF) & (pl.col("day") < 7)
    frame = level.with_columns(energy_kwh=pl.when(first).then(0.5).otherwise(1.0) * pl.col("energy_kwh"))

    for seed in range(5):
        right, _ = recorded_savings(frame, seed=seed)
        assert [row["energy_saved_pct"] for row in right] == pytest.approx([12.5, 12.5])
