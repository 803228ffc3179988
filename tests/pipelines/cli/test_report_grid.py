"""`taut report --grid`: the section on energy, and zones that are refused before the work."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from tests.pipelines.statistics.lakes import T0, make_lake, ran
from tests.pipelines.studies.shrinking.tiny import tables

Taut = Callable[..., Result]


@pytest.fixture
def taut(tmp_path: Path) -> Taut:
    """Return `taut` over a lake of a measured and a recorded trace, and a grid of a year beside it."""
    lake, grid = tmp_path / "lake", tmp_path / "grid"
    jobs, usage = tables()
    make_lake(lake, {"jobs": jobs.to_dicts(), "usage": usage.to_dicts()}).close()
    log = [ran(at, 1800.0, req_gpus=1.0, submit_ts=T0 + timedelta(hours=at)) for at in range(48)]
    machines = [{"trace": "log", "cluster": "c", "machine": "m", "gpus": 4}]
    make_lake(lake, {"jobs": log, "machines": machines}, trace="log").close()
    hours = pl.datetime_range(
        datetime(2023, 1, 1, tzinfo=UTC), datetime(2023, 12, 31, 23, tzinfo=UTC), "1h", eager=True
    )
    stamps = {"ts": hours.dt.strftime("%Y-%m-%dT%H:%M:%SZ")}
    noon = [400.0 - 25.0 * abs(12 - hour) for hour in hours.dt.hour().to_list()]
    for zone in ("A", "B"):
        (grid / zone).mkdir(parents=True)
        pl.DataFrame({**stamps, "carbon_g_per_kwh": noon}).write_csv(grid / zone / "carbon_2023.csv")
    pl.DataFrame({**stamps, "price_usd_per_kwh": [each / 4000 for each in noon]}).write_csv(
        grid / "A" / "price_2023.csv"
    )

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--lake", str(lake), "--grid", str(grid)])

    return run


def test_one_of_several_zones_has_to_be_named(taut: Taut, tmp_path: Path) -> None:
    result = taut("report", "--no-models", "--out", str(tmp_path / "r.html"))

    assert result.exit_code == 2
    assert "expected one; choose with --zone" in " ".join(result.stderr.replace("│", " ").split())
    assert not (tmp_path / "r.html").exists()


@pytest.mark.slow
def test_a_report_with_a_grid_has_a_section_on_energy(taut: Taut, tmp_path: Path) -> None:
    out = tmp_path / "report.html"

    result = taut("report", "--trace", "toy", "--no-models", "--zone", "B", "--pue", "1.2", "--out", str(out))

    assert result.exit_code == 0, result.stderr
    assert '<section id="energy">' in out.read_text(encoding="utf-8")


def test_a_zone_without_a_grid_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", "--out", str(tmp_path / "r.html"), "--zone", "A", "--no-models"])

    assert result.exit_code == 2
    assert "--zone without --grid" in " ".join(result.stderr.replace("│", " ").split())
