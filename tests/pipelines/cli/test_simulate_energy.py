"""`taut simulate` with power, grid and slack: what is told, what is written, and that without them nothing changes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.cli.simulation_settings import slack_of
from pipelines.errors import BadUsage
from scheduler_core.planning.release import Slack
from tests.pipelines.cli.simulating import command

Taut = Callable[..., tuple[list[dict[str, Any]], str]]
ENERGY = ("energy_jobs.csv", "energy_hours.csv", "energy_machines.csv")


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two zones of a year: a clean noon and a dirty night, and one without prices."""
    folder = tmp_path_factory.mktemp("grid")
    stamps = pl.datetime_range(pl.datetime(2023, 1, 1), pl.datetime(2023, 12, 31, 23), "1h", eager=True)
    noon = stamps.dt.hour().is_between(10, 14)
    for zone in ("DE-LU", "ZA"):
        (folder / zone).mkdir()
        carbon = pl.DataFrame({"ts": stamps, "value": noon.cast(pl.Int64) * -300 + 400})
        carbon.write_csv(folder / zone / "carbon_2023.csv")
    price = pl.DataFrame({"ts": stamps, "value": noon.cast(pl.Int64) * -150 + 100})
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
    told, loud = taut(f"grid = '{grid}'", "zone = 'DE-LU'", "carbon_basis = 'direct'", "pue = 1.3")

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


def test_without_a_grid_the_same_files_are_written_as_ever(taut: Taut, grid: Path, tmp_path: Path) -> None:
    taut("--out", str(tmp_path / "bare"))
    taut("--out", str(tmp_path / "told"), f"grid = '{grid}'", "zone = 'DE-LU'")

    bare, told = (
        {str(path.relative_to(tmp_path / name)): path for path in sorted((tmp_path / name).rglob("*.*"))}
        for name in ("bare", "told")
    )
    assert {name for name in told if name not in bare} == {
        f"{Path(name).parent}/{each}" for name in bare if name.endswith("events.parquet") for each in ENERGY
    }
    assert not [name for name in bare if "energy" in name]
    for name in bare:
        if name.endswith(".parquet"):
            assert bare[name].read_bytes() == told[name].read_bytes()
        else:
            assert "energy" not in bare[name].read_text()
            assert "shift" not in bare[name].read_text()


def test_tables_beside_a_run_are_whole_and_the_same_twice(taut: Taut, grid: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        rows, _ = taut("--out", str(tmp_path / name), f"grid = '{grid}'", "zone = 'DE-LU'", "slack = '6h'")

    for path in sorted((tmp_path / "one").rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()
    row = next(row for row in rows if (row["arm"], row["devices"], row["shift"]) == ("requested", "all", "forecast"))
    [folder] = [each for each in (tmp_path / "one").iterdir() if each.name.startswith("requested-any-all-0-forecast")]
    jobs, hours, machines = (pl.read_csv(folder / name) for name in ENERGY)
    assert jobs["energy_consumed"].sum() == pytest.approx(row["energy_jobs_kwh"])
    assert hours["carbon_kg"].sum() == pytest.approx(row["carbon_kg"])
    assert machines["cost_usd"][-1] == pytest.approx(row["cost_usd"])
    assert hours["timestamp"][0] == "2023-01-01T00:00:00Z"
    summary = json.loads((folder / "simulation.json").read_text())
    assert set(ENERGY) < set(summary["files"])


def test_power_alone_tells_energy_alone(taut: Taut, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text("[gpus.V100]\nidle_w = 60\nfull_w = 600\n[machines.x]\ncpu_idle_w = 1\ncpu_full_w = 2\n")
    rows, said = taut(f"power = '{path}'")

    assert all(row["energy_kwh"] > 0.0 for row in rows)
    assert not [name for name in rows[0] if "carbon" in name or "cost" in name or name == "zone"]
    assert "site.toml over the shipped table" in said
    assert "site.toml: machines x match no machine of the cluster" in said


def test_slack_without_a_grid_holds_nobody_and_says_so(taut: Taut) -> None:
    bare, _ = taut()
    rows, said = taut("slack = '6h'")

    assert rows == bare
    assert "slack without grid: no job is held" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("zone = 'DE-LU'",), "found zone, carbon_basis, grid_start or pue without grid"),
        (("pue = 1.2", "grid_start = '2023-01-01'"), "found zone, carbon_basis, grid_start or pue without grid"),
        (("shift_by = 'price'",), "found shift_by without slack"),
        (("grid = 'GRID'",), "the zones DE-LU, ZA, expected one; choose"),
        (("grid = 'GRID'", "zone = 'FR'"), "--zone FR"),
        (("grid = 'GRID'", "zone = 'ZA'", "slack = '6h'", "shift_by = 'price'"), "zone ZA has no file"),
        (("grid = 'GRID'", "zone = 'ZA'", "grid_start = '2022-01-01'"), "name one with grid_start"),
        (("grid = 'GRID'", "zone = 'ZA'", "grid_start = 'noon'"), "grid_start: found 'noon', expected a moment"),
        (("grid = 'GRID'", "zone = 'ZA'", "slack = 'soon'"), "slack soon: expected a time as 6h"),
        (("slack = '9d'",), "slack 9d: found a slack of 216 h, expected at most 168 h"),
        (("grid = 'absent'",), "no such folder"),
        (("power = 'absent.toml'",), "absent.toml: No such file"),
    ],
)
def test_what_cannot_be_meant_is_bad_usage(lake: Path, grid: Path, arguments: tuple[str, ...], said: str) -> None:
    given = [each.replace("GRID", str(grid)) for each in arguments]
    result = CliRunner().invoke(app, command(lake.parent, *where_of(lake), *given))

    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("text", "slack"),
    [("6h", Slack(longest_s=21_600.0)), ("90m", Slack(longest_s=5400.0)), (" 1.5d ", Slack(longest_s=129_600.0)),
     ("30s", Slack(longest_s=30.0)), ("50%", Slack(run_frac=0.5)), ("0h", Slack(longest_s=0.0)),
     ("168h", Slack(longest_s=604_800.0)), ("10000%", Slack(run_frac=100.0))],
)  # fmt: skip
def test_slack_is_read(text: str, slack: Slack) -> None:
    assert slack_of(text) == slack


@pytest.mark.parametrize(
    "text", ["", "6", "h", "-1h", "6 h", "1e9h", "nan%", "169h", "10001%", "9" * 30 + "%", "9" * 400 + "%"]
)
def test_what_is_no_slack_is_refused(text: str) -> None:
    with pytest.raises(BadUsage, match="slack"):
        slack_of(text)
