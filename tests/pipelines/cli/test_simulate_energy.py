"""`taut simulate` with power and grid: what is told, and that without them nothing changes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from tests.pipelines.cli.simulating import command

Taut = Callable[..., tuple[list[dict[str, Any]], str]]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two zones of a year: a clean noon and a dirty night, and one without prices."""
    folder = tmp_path_factory.mktemp("grid")
    stamps = pl.datetime_range(pl.datetime(2023, 1, 1), pl.datetime(2023, 12, 31, 23), "1h", eager=True)
    noon = stamps.dt.hour().is_between(10, 14)
    for zone in ("DE-LU", "ZA"):
        (folder / zone).mkdir()
        carbon = pl.DataFrame({"ts": stamps, "carbon_g_per_kwh": noon.cast(pl.Int64) * -300 + 400})
        carbon.write_csv(folder / zone / "carbon_2023.csv")
    price = pl.DataFrame({"ts": stamps, "Price (USD/MWh)": noon.cast(pl.Int64) * -150 + 100})
    price.write_csv(folder / "DE-LU" / "price_2023.csv")
    return folder


def where_of(lake: Path) -> list[str]:
    return ["--lake", str(lake), "--trace", "pai-synth", "--predictor", "oracle"]


@pytest.fixture
def taut(lake: Path, tmp_path: Path) -> Taut:
    def run(*arguments: str) -> tuple[list[dict[str, Any]], str]:
        usual = ["--format", "json", "--truth", "contention", "--hours", "3"]
        result = CliRunner().invoke(app, command(tmp_path, *where_of(lake), *usual, *arguments))
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout), result.stderr

    return run


def test_a_grid_adds_columns_and_notes_and_changes_no_other(taut: Taut, grid: Path) -> None:
    bare, quiet = taut()
    told, loud = taut(f"grid = '{grid}'", "zone = 'DE-LU'", "pue = 1.3")

    assert [{name: row[name] for name in before} for before, row in zip(bare, told, strict=True)] == bare
    for row in told:
        assert row["energy_kwh"] == pytest.approx(row["energy_jobs_kwh"] + row["energy_unallocated_kwh"])
        assert 0.1299 <= row["carbon_kg"] / row["energy_kwh"] <= 0.5201
        assert (row["zone"], row["pue"]) == ("DE-LU", 1.3)
    assert {row["carbon_saved_frac"] for row in told if row["arm"] == "requested"} == {0.0}
    for said in ("DE-LU: carbon intensity", "DE-LU: price", "PUE 1.3", "0 s is 2023-01-01 00:00 UTC", "power: "):
        assert said in loud
        assert said not in quiet


@pytest.mark.parametrize(
    "told",
    [
        "2023-06-01T12:00:00+02:00",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("2023-06-01T10:00Z", "2023-06-01 10:00")),
    ],
)
def test_the_begin_on_the_grid_heeds_the_offset_told(taut: Taut, grid: Path, told: str) -> None:
    rows, said = taut(f"grid = '{grid}'", "zone = 'ZA'", "pue = 1", f"grid_start = '{told}'")

    assert "0 s is 2023-06-01 10:00 UTC on the grid (as given)" in said
    assert {round(row["carbon_kg"] / row["energy_kwh"], 9) for row in rows} == {0.1}


def test_a_grid_changes_no_file_but_the_figures_told(taut: Taut, grid: Path, tmp_path: Path) -> None:
    taut("--out", str(tmp_path / "bare"))
    taut("--out", str(tmp_path / "told"), f"grid = '{grid}'", "zone = 'DE-LU'")

    bare, told = (
        {str(path.relative_to(tmp_path / name)): path for path in sorted((tmp_path / name).rglob("*.*"))}
        for name in ("bare", "told")
    )
    assert list(bare) == list(told)
    for name in bare:
        if name.endswith(".parquet"):
            assert bare[name].read_bytes() == told[name].read_bytes()
        else:
            assert "energy" not in bare[name].read_text()


def test_power_alone_tells_energy_alone(taut: Taut, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text("[gpus.V100]\nidle_w = 60\nfull_w = 600\n")
    rows, said = taut(f"power = '{path}'")

    assert all(row["energy_kwh"] > 0.0 for row in rows)
    assert not [name for name in rows[0] if "carbon" in name or "cost" in name or name == "zone"]
    assert "site.toml over the shipped table" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("zone = 'DE-LU'",), "found zone, grid_start or pue without grid"),
        (("pue = 1.2", "grid_start = '2023-01-01'"), "found zone, grid_start or pue without grid"),
        (("grid = 'GRID'",), "the zones DE-LU, ZA, expected one; choose"),
        (("grid = 'GRID'", "zone = 'FR'"), "--zone FR"),
        (("grid = 'GRID'", "zone = 'ZA'", "grid_start = '2022-01-01'"), "name one with grid_start"),
        (("grid = 'GRID'", "zone = 'ZA'", "grid_start = 'noon'"), "grid_start: found 'noon', expected a moment"),
        (("grid = 'absent'",), "no such folder"),
        (("power = 'absent.toml'",), "absent.toml: No such file"),
    ],
)
def test_what_cannot_be_meant_is_bad_usage(lake: Path, grid: Path, arguments: tuple[str, ...], said: str) -> None:
    given = [each.replace("GRID", str(grid)) for each in arguments]
    result = CliRunner().invoke(app, command(lake.parent, *where_of(lake), *given))

    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
