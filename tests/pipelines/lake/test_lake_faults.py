"""A lake that was copied, cannot be written, or lost a file: right answers, or an error that names the file."""

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from pipelines.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.storage import Folder
from pipelines.statistics.times import period
from tests.pipelines.lake.test_sql import rows_of
from tests.pipelines.statistics.lakes import job, make_lake

COUNTED = "SELECT count(*) AS jobs FROM jobs"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake of two jobs with its file of views."""
    made = make_lake(tmp_path / "lake", {"jobs": [job(0), job(1)]})
    with made:
        made.connect()
    return made


def test_the_first_question_sets_the_views_of_a_copy_right(lake: Lake, tmp_path: Path) -> None:
    shutil.copytree(lake.path, tmp_path / "copy")
    shutil.rmtree(lake.path)

    with Lake(tmp_path / "copy") as copy:
        assert rows_of(copy, COUNTED)["jobs"].item() == 2

    with duckdb.connect(str(tmp_path / "copy" / "taut.duckdb"), read_only=True) as connection:
        assert connection.execute(COUNTED).fetchall() == [(2,)]


def test_a_copy_that_cannot_be_written_still_answers(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Folder) -> None:
        raise PermissionError(30, "Read-only file system")

    shutil.move(lake.path, tmp_path / "moved")
    before = (tmp_path / "moved" / "taut.duckdb").read_bytes()
    monkeypatch.setattr(Folder, "rebuilding", refused)

    with Lake(tmp_path / "moved") as moved:
        assert rows_of(moved, COUNTED)["jobs"].item() == 2
        assert moved.connect().execute(COUNTED).fetchall() == [(2,)]

    assert (tmp_path / "moved" / "taut.duckdb").read_bytes() == before


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (Path.unlink, r"is missing; expected every file that the manifest names\. Ingest the trace again\.$"),
        (
            lambda path: path.write_bytes(b"junk"),
            r"is damaged \(.*\); expected the Parquet file .* Remove it",
        ),
    ],
    ids=["missing", "damaged"],
)
@pytest.mark.parametrize(
    "ask",
    [
        lambda lake: period(lake, "toy"),
        lambda lake: rows_of(lake, COUNTED),
        Lake.connect,
        lambda lake: lake.table("jobs"),
    ],
    ids=["stats", "sql", "connect", "frames"],
)
def test_a_file_that_cannot_be_read_is_named(
    lake: Lake, spoil: Callable[[Path], object], said: str, ask: Callable[[Lake], object]
) -> None:
    [file] = (lake.path / "jobs").rglob("*.parquet")
    spoil(file)
    lake.views_file.unlink()

    with lake, pytest.raises(LakeError, match=said) as error:
        ask(lake)

    assert str(error.value).startswith(str(file))
