"""The study from a file of jobs to rows: shares, selected arms, other task types, and the same bytes each time."""

import json
import math
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import BadUsage
from pipelines.studies.reclaim.arms import ARMS
from pipelines.studies.reclaim.study import Config, run_study
from pipelines.studies.study import Context, Row
from tests.pipelines.studies.reclaim.tiny_pool import FULL, rows

ASKED = {
    "trace",
    "arm",
    "sharing",
    "mix",
    "variation",
    "share",
    "share_lo",
    "share_hi",
    "finished",
    "requested_finished",
    "oracle_finished",
    "killed",
    "stretch_p99",
    "requested_stretch_p99",
    "seeds",
}
"""Fields of every row that readers of the JSON rely on."""

MORE = {"policy", "rate_per_h", "z", "probation_s", "gpus_used", "killed_rows", "killed_rows_hi", "stretched_share"}


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    rows().write_parquet(tmp_path / "pool.parquet")
    return tmp_path / "pool.parquet"


def small(pool: Path, **options: object) -> Config:
    """Return a config of few runs in which jobs wait: three simulated arms, GPUs pooled, no models."""
    given = {"seeds": 2, "rate": 120.0, "arm": ("reclaim",), "variation": ("default",), "sharing": ("pooled",)}
    return Config(**{"pool": pool, **given, **options})  # type: ignore[arg-type]  # as the tests give them


def taut(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["study", *map(str, arguments)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def rows_of(config: Config) -> dict[tuple[object, object], Row]:
    found = run_study(config, Context()).flat
    assert found is not None
    return {(row["mix"], row["arm"]): row for row in found}


def test_an_unknown_arm_or_variation_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    nowhere = tmp_path / "none.parquet"

    with pytest.raises(BadUsage, match="--arm nap: expected one of requested, shrunk"):
        run_study(Config(pool=nowhere, arm=("reclaim", "nap")), Context())
    with pytest.raises(BadUsage, match="--variation wild: expected one of default, prototype"):
        run_study(Config(pool=nowhere, variation=("wild",)), Context())


def test_the_json_has_a_row_per_arm_and_mix_with_the_fields_readers_rely_on(pool: Path) -> None:
    options = ["--seeds", "2", "--rate", "120", "--arm", "reclaim", "--variation", "default", "--sharing", "pooled"]

    found = json.loads(taut("reclaim", "--pool", pool, *options, "--processes", "1", "--format", "json"))

    assert all(set(row) == ASKED | MORE | {"rows"} for row in found)
    assert [(row["mix"], row["arm"]) for row in found] == [
        (mix, arm) for mix in ("gnn", "no-gnn") for arm in ("requested", "reclaim", "oracle")
    ]
    for row in found:
        assert row["share"] == {"requested": 0.0, "oracle": 1.0}.get(row["arm"], row["share"])
        assert row["share_lo"] <= row["share"] <= row["share_hi"]
        assert row["requested_finished"] < row["oracle_finished"]
    assert all(0.0 < row["share"] < 1.5 for row in found if row["arm"] == "reclaim")
    assert {(row["trace"], row["sharing"], row["variation"], row["seeds"]) for row in found} == {
        ("toy", "pooled", "default", 2)
    }


@pytest.mark.slow
def test_jobs_that_use_all_they_request_leave_nothing_to_reclaim(pool: Path) -> None:
    rows().with_columns(**FULL).write_parquet(pool)

    found = rows_of(small(pool, arm=("reclaim", "bound"), rate=70.0))

    for (_, arm), row in found.items():
        assert math.isnan(float(str(row["share"])))
        assert row["oracle_finished"] == row["requested_finished"]
        slack = 0.02 * float(str(row["requested_finished"])) if arm == "reclaim" else 0.0
        assert row["finished"] == pytest.approx(row["requested_finished"], abs=slack)
        assert row["killed"] == 0


def test_jobs_without_the_types_of_the_mix_are_drawn_uniformly(pool: Path) -> None:
    rows().with_columns(task_type=pl.lit("other")).write_parquet(pool)

    found = run_study(small(pool), Context())

    assert found.flat is not None
    assert [(row["mix"], row["arm"]) for row in found.flat] == [
        ("all", arm) for arm in ("requested", "reclaim", "oracle")
    ]
    assert found.flat[-1]["share"] == 1.0
    assert "drawn uniformly" in found.notes[0]
    assert list(found.tables[""][0]) == ["arm", "share", "finished", "gpus_used", "killed", "stretch_p99"]
    assert list(found.charts) == ["reclaim_default_fifo"]


@pytest.mark.slow
def test_arms_that_need_models_are_left_out_without_models(pool: Path) -> None:
    found = run_study(small(pool, arm=(), models=False, rate=20.0), Context())

    assert found.flat is not None
    assert {row["arm"] for row in found.flat} == {arm for arm in ARMS if not ARMS[arm].predicts}
    assert "arms that need models were not run" in found.notes


@pytest.mark.slow
def test_too_few_jobs_for_models_leave_those_arms_out_with_the_reason(pool: Path) -> None:
    rows(8).write_parquet(pool)

    found = run_study(small(pool, arm=("reclaim_prior",), rate=20.0), Context())

    assert found.flat is not None
    assert {row["arm"] for row in found.flat} == {"requested", "oracle"}
    assert any(note.startswith("arms that need models were not run: ") for note in found.notes)


@pytest.mark.slow
def test_the_same_seeds_give_the_same_bytes_on_any_engine(pool: Path) -> None:
    options = ["--seeds", "2", "--rate", "60", "--arm", "reclaim", "--variation", "default", "--format", "json"]

    engines = (["local"], ["processes", "--processes", "2"], ["dask", "--processes", "2"], ["local"])
    found = [taut("reclaim", "--pool", pool, *options, "--engine", *engine) for engine in engines]

    assert found[0] == found[1] == found[2] == found[3]
    assert found[0] != taut("reclaim", "--pool", pool, *options, "--processes", "1", "--seed", "1")
