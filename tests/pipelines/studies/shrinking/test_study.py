"""The shrinking studies from a tiny pool to rows, and `taut study` on a tiny lake."""

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from pipelines.errors import BadUsage
from pipelines.lake.ingest import ingest
from pipelines.studies.shrinking.study import findings_of, rendered
from pipelines.studies.study import write
from pipelines.synth.pai import synthesise
from tests.pipelines.studies.shrinking.tiny import DESIGNS, resulted, run

GOLDEN = Path(__file__).parents[3] / "golden" / "study_shrinking.txt"


def about(answer_rows: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    return [row for row in answer_rows if row["about"] == what]


@pytest.mark.parametrize("study", list(DESIGNS))
def test_every_row_says_what_it_is_of(study: str) -> None:
    answer = resulted(study)

    rows = answer.rows()

    assert {row["study"] for row in rows} == {study}
    assert {(row["trace"], row["workload"]) for row in rows} == {("toy", "of toy jobs drawn with replacement by type")}
    assert set(answer.tables) == {row["about"] for row in rows}
    assert {row["devices"] for row in rows} == {"all", "known"}
    assert {row["gnn"] for row in rows} == {"with", "without"}
    assert [title for title, _ in rendered(answer)]


def test_the_study_by_load_has_levels_of_every_load_and_the_goal_at_seventy() -> None:
    rows = resulted("shrinking").rows()

    assert sorted({row["rate_per_h"] for row in about(rows, "load")}) == [30, 40, 50, 60, 70, 80, 90, 100]
    assert {row["rate_per_h"] for row in about(rows, "claim")} == {70.0}
    goal = about(rows, "goal")
    assert len(goal) == 3 * 4
    assert {row["truth"] for row in goal} == {"contention"}
    assert {row["arm"] for row in about(rows, "claim")} == {"shrunk", "unguarded", "oracle"}


def test_the_ablation_has_every_way_of_sizing() -> None:
    arms = {row["arm"] for row in about(resulted("shrinking-ablation").rows(), "part")}

    assert arms == {
        "requested",
        "unguarded",
        "floors_only",
        "importance_held",
        "shrunk",
        "vpa",
        "autopilot",
        "oracle",
    }


def test_every_part_stands_beside_what_is_recommended() -> None:
    rows = about(resulted("shrinking-ablation").rows(), "part")

    completed = {(row["gnn"], row["devices"], row["truth"], row["arm"]): row["completed"] for row in rows}
    for row in rows:
        shrunk = completed[row["gnn"], row["devices"], row["truth"], "shrunk"]
        assert row["completed_beside_shrunk"] == pytest.approx(row["completed"] - shrunk)


def test_every_figure_of_the_paper_says_which_truth_binds_it() -> None:
    claims = about(resulted("shrinking").rows(), "claim")

    assert {row["binding_truth"] for row in claims} <= {"none", "predicted", "contention"}
    assert {row["beside_unchanged_pct"] for row in claims if row["truth"] == "unchanged"} == {0.0}


def test_rows_of_a_kind_share_their_names_and_hold_no_column_that_none_of_them_knows() -> None:
    rows = resulted("shrinking").rows()

    for kind in resulted("shrinking").tables:
        mine = about(rows, kind)
        assert len({tuple(row) for row in mine}) == 1
        for name in mine[0]:
            assert any(row[name] is not None for row in mine)


def test_assumptions_are_notes() -> None:
    notes = " | ".join(resulted("shrinking").notes)

    for said in (
        "never_fits",
        "unknown memory, taken as 16 GiB",
        "seeds 0 to 1",
        "theta 0.05: correlation",
        "GNN rests on 10 jobs",
    ):
        assert said in notes


def test_a_single_seed_is_refused() -> None:
    with pytest.raises(BadUsage, match="at least 2"):
        run("shrinking", seeds=1)


@pytest.mark.slow
def test_the_same_question_leaves_the_same_bytes(tmp_path: Path) -> None:
    first, second = (
        {path.name: path.read_bytes() for path in write(findings_of(run("shrinking")), tmp_path / name)}
        for name in ("a", "b")
    )

    assert first == second
    assert {Path(name).suffix for name in first} == {".json", ".parquet", ".html", ".svg", ".png"}
    for name, content in first.items():
        if name.endswith(".html"):
            assert b"<script src=" not in content


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment")
    synthesise(folder / "raw", tasks=1000, seed=3, tagged_share=0.9)
    ingest("pai", folder / "raw", folder / "lake", as_name="pai-synth")
    return folder / "lake"


def taut(lake: Path, *arguments: str) -> Result:
    where = ["--lake", str(lake), "--predictor", "oracle", "--seeds", "2"]
    return CliRunner().invoke(app, ["study", *arguments, *where])


def test_the_tables_by_load_are_the_golden_ones(lake: Path) -> None:
    result = taut(lake, "shrinking", "--load", "70")

    assert result.exit_code == 0, result.stderr
    assert "synthetic jobs drawn with replacement" in result.stderr
    if os.environ.get("TAUT_GOLDEN") == "write":
        GOLDEN.write_text(result.stdout, encoding="utf-8")
    assert result.stdout == GOLDEN.read_text(encoding="utf-8")


def test_a_folder_that_holds_something_is_left_alone(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")

    result = taut(lake, "shrinking", "--out", str(tmp_path))

    assert result.exit_code == 2
    assert "a new or empty folder" in result.stderr
