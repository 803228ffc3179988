"""The real samples against what is published: which numbers match, which are off, what is not compared."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.statistics.published import read_published
from pipelines.statistics.shown import tally, verdict_rows
from pipelines.statistics.verification import verify

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow

KNOWN_TO_BE_OFF = {
    ("Venus, GPUs by date", "capacity.mean_gpus", "1,022"),
    ("Philly, the machine list", "machine_classes.total_gpus", "128"),
}


@pytest.fixture(scope="module")
def real(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("samples")
    for source, path, name in (
        ("pai", "pai", "pai"),
        ("helios", "helios", "helios"),
        ("philly", "philly", "philly"),
        ("philly", "philly_rebuilt", "philly-rebuilt"),
    ):
        ingest(source, traces / path, folder, as_name=name)
    pods = tmp_path_factory.mktemp("pods")
    for name in ("openb_pod_list_default.csv", "openb_node_list_gpu_node.csv"):
        [found] = (traces / "openb").rglob(name)
        shutil.copy(found, pods / name)
    ingest("openb", pods, folder)
    with Lake(folder) as lake:
        yield lake


@pytest.fixture(scope="module")
def checked(real: Lake) -> pl.DataFrame:
    return verify(real, read_published())


def test_what_is_whole_matches_and_two_numbers_are_known_to_be_off(checked: pl.DataFrame) -> None:
    off = checked.filter(verdict="off")
    assert set(off.select("of", "what", "published").rows()) == KNOWN_TO_BE_OFF
    assert off["why"].null_count() == 0
    matches = checked.filter(verdict="match")
    assert matches.height >= 50
    assert set(matches["trace"]) == {"helios", "openb", "pai", "philly", "philly-rebuilt"}
    assert checked.filter(pl.col("verdict") == "not computable")["why"].null_count() == 0


def test_the_documented_verdicts_are_these(checked: pl.DataFrame) -> None:
    text = (ROOT / "docs" / "statistics.md").read_text()
    written = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| trace |")]
    columns = ("trace", "of", "what", "published", "found", "verdict")
    off = [row for row in verdict_rows(checked) if row["verdict"].startswith("off")]
    assert written == [f"| {' | '.join(str(row[name]) for name in columns)} |" for row in off]
    assert tally(checked) in text


@pytest.mark.parametrize(
    ("what", "published"),
    [("sizes.gpu_jobs", "125,303"), ("run_time.p50_s (device gpu)", "204"), ("sizes.mean_gpus", "6.736")],
)
def test_the_full_log_of_venus_is_not_this_files_period(checked: pl.DataFrame, what: str, published: str) -> None:
    [row] = checked.filter(of="Venus, the whole log", what=what, published=published).to_dicts()
    assert (row["verdict"], row["found"]) == ("not computable", None)
    assert row["why"] == (
        "other rows: log has 99,707 here, 246,708 there; "
        "submitted 2020-03-18 to 2020-08-31 here, 2020-03-18 to 2020-09-27 there"
    )
