"""The real samples against what is published: which numbers match, which are off, what is not compared."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.statistics import STATISTICS, Statistic
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
    ("of", "what", "published"),
    [
        ("Venus, the GPU jobs up to August", "sizes.gpu_jobs", "99,707"),
        ("Venus, the GPU jobs up to August", "sizes.mean_gpus", "6.489"),
        ("Venus, the GPU jobs up to August", "run_time.p50_s (device gpu)", "205"),
        ("Venus, GPUs by date", "capacity.mean_gpus (date 2020-09-01)", "1,064"),
        ("Philly, the machine list", "machine_classes.machines", "552"),
        ("Philly, the machine list", "machine_classes.total_gpus", "2,490"),
        ("PAI, the machine table", "machine_classes.machines", "1897"),
        ("PAI, the machine table", "machine_classes.machines (gpus 2 or 8)", "1814"),
        ("PAI, the machine table", "machine_classes.total_gpus", "6742"),
        ("PAI, the machine table", "machine_classes.total_gpus (gpu_type MISC)", "2240"),
        ("PAI, any of its rows", "resources_told.kinds", "> 3"),
    ],
)
def test_figures_of_whole_files_match(checked: pl.DataFrame, of: str, what: str, published: str) -> None:
    rows = checked.filter(of=of, what=what, published=published)
    assert set(rows["verdict"]) == {"match"}


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


@pytest.mark.parametrize("trace", ["helios", "openb", "pai", "philly", "philly-rebuilt"])
@pytest.mark.parametrize("statistic", STATISTICS.values(), ids=STATISTICS)
def test_every_statistic_answers_or_says_why(real: Lake, trace: str, statistic: Statistic) -> None:
    answer = statistic.answer(real, trace)
    assert answer.rows.height > 0 or answer.unanswerable is not None
