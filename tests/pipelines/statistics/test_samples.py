"""The real samples against published numbers: which match, which two are off; and what the published files name."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.statistics import STATISTICS
from tests.pipelines.statistics.lakes import make_lake, ran
from tests.pipelines.statistics.published import Compared, compared, read

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow


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
def numbers(real: Lake) -> list[Compared]:
    return compared(real)


def test_the_numbers_that_match_and_those_that_differ_are_documented(real: Lake, numbers: list[Compared]) -> None:
    text = (ROOT / "docs" / "statistics.md").read_text()
    off = [each for each in numbers if not each.matches]
    written = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| trace |")]
    assert written == [f"| {' | '.join(each[:5])} |" for each in off]
    assert all(each.note for each in off)
    assert f"{len(numbers) - len(off)} match, {len(off)} differ" in text
    assert all(real.manifest(trace).rows_quarantined == 0 for trace in real.traces())
    assert {each.trace for each in numbers} == {"helios", "openb", "pai", "philly", "philly-rebuilt"}


def test_the_published_files_name_what_there_is(tmp_path: Path) -> None:
    populations, rows = read()
    empty = make_lake(tmp_path, {})
    asked = {(row["statistic"], tuple(row.get("by", ()))) for row in rows}
    columns = {(name, by): set(STATISTICS[name](empty, "toy", by, None).columns) for name, by in asked}
    for row in rows:
        assert row["of"] in populations
        assert {*row.get("where", ()), *row["published"]} <= columns[row["statistic"], tuple(row.get("by", ()))], row
    assert sum(len(row["published"]) for row in rows) > 400


@pytest.mark.parametrize(
    ("published", "matches"),
    [
        ('mean_s = "1300"', True),
        ('mean_s = "1,300.0"', True),
        ('mean_s = "1301"', False),
        ('p50_s = ".0556 h"', True),
        ('p50_s = ".0555 h"', False),
        ('over_1h_share = "> 0"', False),
        ('max_s = "3.6e+03"', True),
    ],
)
def test_a_number_matches_if_it_rounds_to_the_printed_one(tmp_path: Path, published: str, matches: bool) -> None:
    lake = make_lake(tmp_path / "lake", {"jobs": [ran(0, 100.0), ran(1, 200.0), ran(2, 3600.0)]})
    of = '[of.log]\ntrace = "toy"\nwhat = "the log"\nrows = { log = 3 }\n'
    (tmp_path / "toy.toml").write_text(
        f'{of}[[rows]]\nof = "log"\nstatistic = "run_time"\npublished = {{ {published} }}\n'
    )
    assert [each.matches for each in compared(lake, tmp_path)] == [matches]
