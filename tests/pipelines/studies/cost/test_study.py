"""The cost study on a made-up folder: every table, the same rows twice, and refused options."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.errors import BadUsage
from pipelines.studies.cost import study
from pipelines.studies.cost.settings import FLAT, with_flat
from pipelines.studies.cost.study import Config, run
from pipelines.studies.grids import recorded_hours
from pipelines.studies.study import Context, write


@pytest.fixture
def energy(tmp_path: Path) -> Path:
    """Return a folder with one application's speeds and a day of prices of two zones."""
    alone = {
        kind: {str(("toy (batch size 8)", gpus)).replace('"', "'"): {"null": speed * gpus} for gpus in (1, 2, 4, 8)}
        for kind, speed in (("p100", 1.0), ("v100", 1.5), ("p100_unconsolidated", 0.9), ("v100_unconsolidated", 1.2))
    }
    (tmp_path / "throughput").mkdir()
    (tmp_path / "throughput" / "gavel_throughputs.json").write_text(json.dumps(alone))
    begin = datetime(2023, 1, 1, tzinfo=UTC)
    for zone in ("AA", "BB"):
        (tmp_path / "grid" / zone).mkdir(parents=True)
        lines = [f"{begin + timedelta(hours=hour)},{50.0 + hour}" for hour in range(24)]
        table = "\n".join(["Datetime (UTC),Price (USD/MWh)", *lines])
        (tmp_path / "grid" / zone / "price_2023.csv").write_text(table + "\n")
    return tmp_path


def config(energy: Path) -> Config:
    return Config(energy=energy, seeds=2, zones=("AA", "BB"), loads=(0.6,), nodes=1, jobs=3, iterations=1)


@pytest.mark.slow
def test_every_table_is_there_and_the_same_seeds_give_the_same_bytes(energy: Path, tmp_path: Path) -> None:
    first, second = run(config(energy), Context()), run(config(energy), Context())

    assert [len(rows) > 0 for rows in first.tables.values()] == [True] * 4
    assert {row["verdict"] for row in first.claims} <= {"met", "missed", "not excluded", "out of reach"}
    assert first.rows() == second.rows()
    names = {path.name for path in write(first, tmp_path / "out")}
    assert {"rows.json", "runs.parquet", "cost_over_load.png", "parts_of_cost.png"} <= names


def test_a_flat_price_at_the_first_ones_mean_is_added(energy: Path) -> None:
    found = with_flat(recorded_hours(energy / "grid", ["AA", "BB"], "price", year=None, months=()))

    assert list(found) == ["AA", "BB", FLAT]
    home = found["AA"].series
    assert found[FLAT].series.values.tolist() == pytest.approx([home.values.mean()] * 24)
    assert home.at(home.start_s) == pytest.approx(0.05)
    assert all(grid.series.wrap for grid in found.values())


def test_bars_need_a_load_that_is_run(energy: Path) -> None:
    with pytest.raises(BadUsage, match=r"found none of 0\.5 to 0\.9"):
        run(replace(config(energy), loads=(0.3,)), Context())


def test_a_load_given_twice_is_run_once(energy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_at: list[tuple[list[float], list[float]]] = []

    def settings(loads: Sequence[float], at_loads: Sequence[float], zones: Sequence[str]) -> list[object]:
        run_at.append((list(loads), list(at_loads)))
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "settings", settings)
    with pytest.raises(KeyboardInterrupt):
        run(replace(config(energy), loads=(0.7, 0.3, 0.7)), Context())

    assert run_at == [([0.7, 0.3], [0.7])]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"zones": ("CC",)}, "expected one of them"),
        ({"year": 2022}, r"price from 2023-01-01 to 2023-01-02, expected all of the year 2022; choose --year"),
        ({"months": (2,)}, "expected all of the months 2 of 2023"),
    ],
)
def test_hours_that_the_files_lack_are_refused_before_any_run(
    energy: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], said: str
) -> None:
    monkeypatch.setattr(study, "run_all", lambda *_: pytest.fail("simulated"))

    with pytest.raises(BadUsage, match=said):
        run(replace(config(energy), **options), Context())
