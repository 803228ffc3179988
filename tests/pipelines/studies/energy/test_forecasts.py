"""Rows of forecasts' errors: every zone, series, forecast and horizon of a folder."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import BadUsage
from pipelines.studies.energy.forecasts import forecast_rows


def folder(path: Path, hours: int = 24 * 6) -> Path:
    rng = np.random.default_rng(5)
    for zone in ("A", "B"):
        (path / zone).mkdir()
        lines = [f"2023-05-{1 + h // 24:02}T{h % 24:02}:00Z,{rng.uniform(50, 400):.2f}" for h in range(hours)]
        (path / zone / "carbon_2023.csv").write_text("ts,value\n" + "\n".join(lines) + "\n")
    return path


def test_every_zone_series_forecast_and_horizon_has_its_row(tmp_path: Path) -> None:
    rows, notes = forecast_rows(folder(tmp_path), None, (1, 24))

    assert [(r["zone"], r["series"], r["forecast"], r["horizon_h"]) for r in rows] == [
        (zone, series, how, ahead)
        for zone in ("A", "B")
        for series in ("carbon_lca", "carbon_direct")
        for how in ("persistence", "yesterday")
        for ahead in (1, 24)
    ]
    assert all(float(str(row["mae"])) > 0.0 for row in rows)
    assert "A: no file of price" in notes


def test_a_series_too_short_for_a_horizon_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="A, carbon_lca: forecast: found 48 hours"):
        forecast_rows(folder(tmp_path, 48), ["A"], (48,))


def test_a_folder_without_zones_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Z").mkdir()

    result = CliRunner().invoke(app, ["study", "forecasts", "--grid", str(tmp_path)])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "found no zone, expected subfolders" in " ".join(result.stderr.split())


def test_the_command_prints_them(tmp_path: Path) -> None:
    where = ["--grid", str(folder(tmp_path)), "--zone", "B", "--horizon-h", "3", "--format", "csv"]
    result = CliRunner().invoke(app, ["study", "forecasts", *where])

    assert result.exit_code == 0
    assert result.stdout.count("\n") == 5
    assert "144 hours from 2023-05-01" in result.stderr
