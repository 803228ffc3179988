"""`taut study energy-fits`: what models made fits them, what is odd is told, bad folders are refused."""

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from pipelines.studies.energy.fits import Config, claim_rows, run, scaling_rows
from pipelines.studies.energy.frequency_fits import FITTED_TO, POWERS
from pipelines.studies.study import Context
from tests.pipelines.studies.energy.made_up import APPLICATIONS, MHZ, WORKLOADS


def taut(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["study", "energy-fits", *arguments])


def test_tables_made_by_the_models_fit_them_at_every_step_held_out(made_up: Path) -> None:
    tables = run(Config(energy=made_up), Context()).tables

    for row in tables["frequency"]:
        assert (row["time_error_pct"], row["power_cubic_pct"]) == pytest.approx((0.0, 0.0), abs=1e-3)
        assert row["power_linear_pct"] > row["power_square_pct"] > row["power_cubic_pct"]
        assert row["told_mhz"] == row["optimal_mhz"]
    held_out = {row["fitted_to"]: row for row in tables["frequency, held out"]}
    assert list(held_out) == list(FITTED_TO)
    assert held_out["its other steps"]["fits"] == len(WORKLOADS) * (len(MHZ) - 1)
    for name, row in held_out.items():
        of_others = name.startswith("other workloads")
        assert (row["time_error_pct"] > 1.0) == of_others
        assert (row["energy_lost_worst_pct"] > 0.0) == of_others


@pytest.mark.parametrize(
    ("time_error_pct", "verdict"), [(2.0, "met"), (2.3, "met"), (2.34, "met"), (2.36, "missed"), (3.0, "missed")]
)
def test_a_mean_error_is_held_to_the_last_digit_published(time_error_pct: float, verdict: str) -> None:
    errors = {"power_cubic_pct": 1.0, "power_square_pct": 2.0, "power_linear_pct": 3.0}
    best = {"optimal_mhz": 900.0, "saving_pct": 20.0, "slower_pct": 10.0}

    claim = claim_rows([{"time_error_pct": time_error_pct, **errors, **best}])[0]

    assert (claim["bar"], claim["verdict"]) == ("at most 2.3 to its last digit (as published)", verdict)


def test_savings_are_those_measured(made_up: Path) -> None:
    bound = next(
        row for row in run(Config(energy=made_up), Context()).tables["frequency"] if row["workload"] == "bound"
    )
    watts, ratio = 40.0 + 3e-8 * 800.0**3, 0.9 + 0.1 * 1400.0 / 800.0

    assert bound["optimal_mhz"] == 800.0
    assert bound["slower_pct"] == pytest.approx(100.0 * (ratio - 1.0), abs=0.01)
    assert bound["saving_pct"] == pytest.approx(100.0 * (1.0 - watts * ratio / (40.0 + 3e-8 * 1400.0**3)), abs=0.01)


def test_counts_held_out_of_scaling_are_judged_and_suspect_rows_are_counted(made_up: Path) -> None:
    rows = {row["application"]: row for row in run(Config(energy=made_up), Context()).tables["scaling"]}

    assert set(rows) == {*APPLICATIONS, "odd"}
    assert rows["odd"] | {"rows": 1, "suspect": 1, "error_pct": None} == rows["odd"]
    for name in APPLICATIONS:
        assert rows[name]["suspect"] == 0
        assert rows[name]["error_pct"] < 6.0
        assert rows[name]["held_out_worst_pct"] >= rows[name]["held_out_error_pct"] >= rows[name]["error_pct"] * 0.5


def test_a_single_count_cannot_be_held_out() -> None:
    steps = pl.DataFrame(
        {
            "application": "a",
            "cluster": "c",
            "nodes": 1,
            "gpus": 2,
            "batch_per_gpu": [8.0, 16.0],
            "step_s": [0.2, 0.3],
            "sync_s": [0.1, 0.1],
            "suspect": False,
        }
    )

    (row,) = scaling_rows(steps)

    assert row["held_out_error_pct"] is None
    assert row["error_pct"] == pytest.approx(0.0, abs=1.0)


@pytest.mark.slow
def test_the_command_writes_rows_and_charts(made_up: Path, tmp_path: Path) -> None:
    result = taut("--energy", str(made_up), "--out", str(tmp_path / "out"), "--format", "json")

    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)
    assert {row["table"] for row in rows} >= {"claims", "frequency", "scaling", "power limit", "node types"}
    assert "1 of 49 rows of step times" in result.stderr
    assert json.loads((tmp_path / "out" / "rows.json").read_text())["rows"] == rows
    assert (tmp_path / "out" / "energy_over_frequency.png").stat().st_size > 10_000


def test_the_folder_is_that_of_the_settings(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUT_ENERGY", str(made_up))

    assert taut().exit_code == 0


def test_a_folder_without_tables_is_a_clear_error(tmp_path: Path) -> None:
    result = taut("--energy", str(tmp_path))

    assert result.exit_code == 1
    assert "lacks gpu_frequency/dataset_performance.csv" in result.stderr


@pytest.mark.slow
def test_the_published_tables_fit_as_published(energy: Path) -> None:
    claims = run(Config(energy=energy), Context()).claims

    assert [row["verdict"] for row in claims] == ["met"] * (5 + len(POWERS) - 2)
