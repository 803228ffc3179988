"""`taut study carbon` on made-up measurements: arms and budgets, tables, months, and the same rows again."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.studies.carbon import months, study
from pipelines.studies.carbon.arms import ABLATION, ARMS, BASELINES, TAUT, TWO_STAGES
from pipelines.studies.carbon.curves import BOUND, PRICES_S_PER_KWH, Front
from pipelines.studies.carbon.jobs import Measured
from pipelines.studies.carbon.months import (
    BLIND,
    BUDGETS,
    KINDS,
    PER_KWH,
    PRICED,
    SHARES,
    Cluster,
    Week,
    run_week,
    saving_rows,
)
from pipelines.studies.carbon.runs import Setting, Task, run
from pipelines.studies.carbon.study import findings
from pipelines.studies.carbon.tables import claim_rows, compared_rows, over_settings, summed_up
from scheduler_core.planning.hourly import HourlySeries

HEAD = "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),Carbon Intensity gCO₂eq/kWh (LCA)"
SMALL = Setting(name="small", jobs_per_h=20.0, gpus=16, jobs=12, period_s=3600.0, shares=(0.3, 1.0, math.inf))


def frame_of(made_up: Path, seeds: int = 2) -> pl.DataFrame:
    measured = Measured.of(made_up)
    rows = [row for seed in range(seeds) for row in run(Task(measured=measured, setting=SMALL, seed=seed))]
    return pl.DataFrame(rows, infer_schema_length=None)


def test_every_arm_runs_under_every_budget_that_it_follows(made_up: Path) -> None:
    runs = frame_of(made_up, seeds=1)

    counts = dict(runs.group_by("arm").len().rows())
    assert counts == {BOUND: len(PRICES_S_PER_KWH)} | {
        name: 3 if arm.follows_budget else (len(SMALL.prices) if arm.at_prices else 1) for name, arm in ARMS.items()
    }
    free = {str(row["arm"]): row for row in runs.filter(pl.col("share").is_infinite()).rows(named=True)}
    assert free["fixed_optimal"]["kwh"] < free["fifo_max"]["kwh"]
    assert (runs["kwh_with_idle"] >= runs["kwh"]).all()


def test_no_arm_is_below_the_curve_that_none_passes(made_up: Path) -> None:
    runs = frame_of(made_up)

    for (_,), of_seed in runs.group_by("seed"):
        least, simulated = of_seed.filter(pl.col("arm") == BOUND), of_seed.filter(pl.col("arm") != BOUND)
        bound = Front.of(least["kwh"].to_numpy(), least["mean_jct_s"].to_numpy())
        known = simulated.filter(pl.col("mean_jct_s").is_finite())
        lowest = bound.at(known["kwh"].to_numpy())
        assert (known["mean_jct_s"].to_numpy() >= lowest * (1.0 - 1e-9)).all()
        closest = (known["mean_jct_s"].to_numpy() / lowest).min()
        assert closest < 1.5


def test_the_same_seed_gives_the_same_rows(made_up: Path) -> None:
    task = Task(measured=Measured.of(made_up), setting=SMALL, seed=3)

    assert str(run(task)) == str(run(task))


def test_tables_compare_taut_with_every_other_arm_and_hold_the_baselines_to_the_bar(made_up: Path) -> None:
    found = findings(frame_of(made_up), range(2), SMALL)

    summary = found.tables["at equal energy"]
    assert {row["arm"] for row in summary if row["ours"] == TAUT} == set(ARMS) - {TAUT}
    assert {row["arm"] for row in summary if row["ours"] == TWO_STAGES} == set(ARMS) - {TWO_STAGES}
    assert {row["arm"] for row in found.tables["ablation"]} >= set(ABLATION)
    claims = found.claims
    assert len(claims) == 2 * len(BASELINES)
    assert all((row["verdict"] == "met") == (row["shorter"] >= 1.5) for row in claims)
    assert not any(row["shorter"] > row["ceiling"] * (1.0 + 1e-9) for row in claims)
    assert any("0.5" in note or "load" in note for note in found.notes)


def points(arm: str, kwh: float, jct_s: float, seed: int = 0) -> dict[str, object]:
    said = {"setting": "s", "seed": seed, "arm": arm, "share": 1.0}
    return {**said, "kwh": kwh, "kwh_with_idle": kwh, "mean_jct_s": jct_s}


def test_a_ratio_by_hand_and_a_seed_that_cannot_be_compared() -> None:
    rows = [
        *(points(TAUT, kwh, jct) for kwh, jct in ((1.0, 200.0), (3.0, 100.0))),
        points("fifo_max", 2.0, 300.0),
        points(TAUT, 5.0, 100.0, seed=1),
        points("fifo_max", 2.0, 300.0, seed=1),
        *(points(BOUND, 0.5, 50.0, seed=seed) for seed in (0, 1)),
    ]

    summary = summed_up(compared_rows(pl.DataFrame(rows)))

    (busy,) = (row for row in summary if row["counted"] == "busy")
    assert (busy["shorter"], busy["seeds"], busy["of"], busy["ceiling"]) == (2.0, 1, 2, 6.0)
    assert [row["verdict"] for row in claim_rows(summary)] == ["met"]


@pytest.mark.parametrize(
    ("theirs_s", "least_s", "verdict"),
    [(200.0, 100.0, "met"), (140.0, 50.0, "missed"), (140.0, 100.0, "missed; no scheduler reaches it")],
)
def test_a_bar_that_is_missed_says_whether_it_can_be_reached(theirs_s: float, least_s: float, verdict: str) -> None:
    rows = [points(TAUT, 2.0, 100.0), points("fifo_max", 2.0, theirs_s), points(BOUND, 1.0, least_s)]

    claims = claim_rows(summed_up(compared_rows(pl.DataFrame(rows))))

    assert [row["verdict"] for row in claims] == [verdict]


def test_a_mean_over_settings_leaves_out_seeds_that_lack_one() -> None:
    found = {"counted": "busy", "ours": TAUT, "arm": "fifo_max", "shorter_at_their_least": 1.0}
    found |= {"shorter_at_their_most": 1.0, "ceiling": 4.0}
    rows = [
        {**found, "setting": setting, "seed": seed, "shorter": shorter}
        for setting, seed, shorter in (("a", 0, 1.0), ("b", 0, 2.0), ("c", 0, 9.0), ("a", 1, 7.0))
    ]

    (mean,) = over_settings(rows, ["a", "b"])

    assert (mean["setting"], mean["seed"], mean["shorter"], mean["ceiling"]) == ("mean of a, b", 0, 1.5, 4.0)


@pytest.mark.slow
def test_budgets_in_grams_emit_less_at_equal_completion_time_where_hours_differ(made_up: Path) -> None:
    hours = np.where(np.arange(24 * 366) % 24 < 12, 100.0, 900.0)
    series = HourlySeries(start_s=1672531200.0, values=hours, unit="g/kWh").going_round()
    month_ts = (datetime(2023, 6, 1, tzinfo=UTC).timestamp(), datetime(2023, 7, 1, tzinfo=UTC).timestamp())
    cluster = Cluster(jobs=400, gpus=64, prices=(3e3, 1e4, 3e4, 1e5, 3e5, 1e6))
    week = Week(
        measured=Measured.of(made_up), cluster=cluster, zone="made up", month_ts=month_ts, seed=0, carbon=series
    )

    rows = run_week(week)

    assert len(rows) == len(BUDGETS) * len(SHARES) + len(PRICED) * len(cluster.prices)
    blind = next(row for row in rows if row["budget"] == BLIND)
    assert 0.1 * float(str(blind["kwh"])) < float(str(blind["kg"])) < 0.9 * float(str(blind["kwh"]))
    savings = {
        (row["budget"], row["against"]): row for row in saving_rows(pl.DataFrame(rows, infer_schema_length=None))
    }
    assert {budget for budget, against in savings if against == BLIND} == set(KINDS) - {BLIND}
    assert savings["same grams every period", BLIND]["carbon_less_pct"] > 0.0
    assert savings["a price a gram, foreseen", PER_KWH]["carbon_less_pct"] > 0.0
    for row in savings.values():
        less, kwh, net = (float(str(row[f"{name}_pct"])) for name in ("carbon_less", "kwh_less", "net_of_energy"))
        assert net == pytest.approx(less - kwh)
    # At one price per kWh nothing depends on the hours, so that what it saves is energy.
    assert abs(float(str(savings[PER_KWH, BLIND]["net_of_energy_pct"]))) < abs(
        float(str(savings["a price a gram, foreseen", BLIND]["net_of_energy_pct"]))
    )


@pytest.mark.slow
def test_charts_are_drawn(made_up: Path, tmp_path: Path) -> None:
    from pipelines.studies.study import write

    found = findings(frame_of(made_up), range(2), SMALL)

    written = {path.name: path for path in write(found, tmp_path / "out")}

    assert {"time_over_energy.png", "shorter_by_setting.png", "runs.parquet"} <= set(written)
    assert written["time_over_energy.png"].stat().st_size > 10_000


@pytest.mark.slow
def test_the_command_writes_rows_of_both_parts(made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "settings_of", lambda _: ([SMALL], []))
    monkeypatch.setattr(months, "SHARES", (0.3, 1.0))
    for zone in months.ZONES:
        (made_up / "grid" / zone).mkdir(parents=True)
        rows = [f"{start:%Y-%m-%d %H:%M:%S},{zone},{zone},{zone},{value},{value}" for start, value in hours()]
        (made_up / "grid" / zone / "carbon_2023.csv").write_text("\n".join([HEAD, *rows]) + "\n")

    arguments = ["--energy", str(made_up), "--seeds", "2", "--processes", "1", "--out", str(tmp_path / "out")]
    arguments += ["--jobs", "8", "--prices", "1e4", "--prices", "1e5"]
    result = CliRunner().invoke(app, ["study", "carbon", *arguments, "--format", "json"])

    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)
    assert {row["table"] for row in rows} >= {"claims", "ablation", "carbon at equal completion time"}
    assert (tmp_path / "out" / "carbon_over_time.png").stat().st_size > 10_000


def hours() -> list[tuple[datetime, float]]:
    first = datetime(2023, 1, 1, tzinfo=UTC)
    return [(first + timedelta(hours=hour), 100.0 + 50.0 * (hour % 24)) for hour in range(24 * 365)]


def test_a_year_that_the_files_lack_is_refused_before_any_run(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "dealt", lambda *_: pytest.fail("simulated"))
    (made_up / "grid" / "AA").mkdir(parents=True)
    rows = [f"{start:%Y-%m-%d %H:%M:%S},AA,AA,AA,{value},{value}" for start, value in hours()]
    (made_up / "grid" / "AA" / "carbon_2023.csv").write_text("\n".join([HEAD, *rows]) + "\n")

    result = CliRunner().invoke(
        app, ["study", "carbon", "--energy", str(made_up), "--zone", "AA", "--year", "2022", "--months", "6"]
    )

    assert result.exit_code == 2
    assert "carbon from 2023-01-01 to 2024-01-01, expected all of the months 6 of 2022" in result.stderr


def test_a_budget_until_all_jobs_end_is_the_other_rule(made_up: Path) -> None:
    setting = replace(SMALL, rule="to-completion", shares=(1.2,), arms=(TWO_STAGES, "greedy_max"))

    rows = run(Task(measured=Measured.of(made_up), setting=setting, seed=0))

    by_arm = {row["arm"]: row for row in rows if row["arm"] != BOUND}
    assert math.isinf(by_arm["greedy_max"]["share"])
    assert by_arm[TWO_STAGES]["over_planned_pct"] <= 1e-9
    assert by_arm[TWO_STAGES]["over_budget_pct"] <= 5.0
