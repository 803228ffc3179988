"""Rows of forecasts' errors: every zone, series, forecast and horizon of a folder."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import BadUsage
from pipelines.studies.energy.forecasts import forecast_rows, paused_means, start_rows
from tests.pipelines.simulation.energy.sites import hourly


def folder(path: Path, hours: int = 24 * 6) -> Path:
    rng = np.random.default_rng(5)
    for zone in ("A", "B"):
        (path / zone).mkdir()
        lines = [f"2023-05-{1 + h // 24:02}T{h % 24:02}:00Z,{rng.uniform(50, 400):.2f}" for h in range(hours)]
        (path / zone / "carbon_2023.csv").write_text("ts,value\n" + "\n".join(lines) + "\n")
    return path


def test_every_zone_series_forecast_and_horizon_has_its_row(tmp_path: Path) -> None:
    rows, _, notes = forecast_rows(folder(tmp_path), None, (1, 24))

    assert [(r["zone"], r["series"], r["forecast"], r["horizon_h"]) for r in rows] == [
        (zone, series, how, ahead)
        for zone in ("A", "B")
        for series in ("carbon_lca", "carbon_direct")
        for how in ("persistence", "yesterday", "recent_days")
        for ahead in (1, 24)
    ]
    assert all(float(str(row["mae"])) > 0.0 for row in rows)
    assert "A: no file of price" in notes


def test_a_series_too_short_for_a_horizon_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="A, carbon_lca: forecast: found 48 hours"):
        forecast_rows(folder(tmp_path, 48), ["A"], (48,))


def test_what_starts_save_is_what_their_runs_meet() -> None:
    begin = datetime(2023, 6, 1, tzinfo=UTC).timestamp()
    days = np.tile(np.r_[np.full(12, 300.0), np.full(12, 100.0)], (60, 1))
    days[::5] = 300.0  # every fifth day has no clean hours

    rows = start_rows(hourly(days.ravel(), start_s=begin))

    by = {(row["months"], row["slack_h"], row["forecast"]): row for row in rows}
    assert len(by) == len(rows) == 2 * 3 * 4
    for months in ("1 to 6", "7 to 12"):
        assert by[months, 6, "persistence"]["saved_pct"] == 0.0
        assert by[months, 6, "yesterday"]["gap_closed"] == 0.0
        assert by[months, 6, "clairvoyant"]["gap_closed"] == 1.0
        # After the odd day yesterday is a poor guess, and the days before it a good one.
        assert 0.0 < float(str(by[months, 24, "recent_days"]["gap_closed"])) < 1.0


@pytest.mark.parametrize("how", ["yesterday", "recent_days", "clairvoyant"])
def test_a_paused_run_takes_the_lowest_hours_of_a_day_that_repeats(how: str) -> None:
    day = np.tile([100.0, 300.0, 200.0, 400.0], 6)
    series = hourly(np.tile(day, 30))

    met = paused_means(series, np.arange(20 * 24, 28 * 24), 12, how)

    assert met == pytest.approx(np.full(len(met), 100.0))


def test_a_paused_run_ends_in_time_whatever_is_forecast() -> None:
    falling = hourly(np.linspace(1000.0, 100.0, 24 * 30))
    last = np.arange(20 * 24, 28 * 24)

    met = paused_means(falling, last, 6, "persistence")

    assert met == pytest.approx(falling.values[last[:, None] + np.arange(4)].mean(axis=1))


def test_a_folder_without_zones_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Z").mkdir()

    result = CliRunner().invoke(app, ["study", "forecasts", "--grid", str(tmp_path)])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "found no zone, expected subfolders" in " ".join(result.stderr.split())


def test_the_command_prints_them(tmp_path: Path) -> None:
    where = ["--grid", str(folder(tmp_path)), "--zone", "B", "--horizon-h", "3", "--format", "csv"]
    result = CliRunner().invoke(app, ["study", "forecasts", *where])

    assert result.exit_code == 0
    assert result.stdout.count("\n") == 7
    assert "144 hours from 2023-05-01" in result.stderr
