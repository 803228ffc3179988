"""Reading published files: what is found first, what is refused, and rows counted without a CSV reader."""

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import SourceError
from pipelines.lake.reading import lenient, separated
from pipelines.lake.sources.archive import Found, count_rows, ends_with, find, header_of, unpack
from pipelines.lake.sources.pai import TASK
from tests.examples import examples

MEMBER = "pai_task_table.csv"


def _found(path: Path) -> Found:
    return Found(table=TASK, path=path, members=frozenset({MEMBER}))


def test_plain_files_are_found_before_packed_ones(tmp_path: Path) -> None:
    assert find(TASK, tmp_path) is None
    for suffix in (".tar.gz", ".csv.gz", ".csv"):
        path = tmp_path / f"pai_task_table{suffix}"
        path.touch()
        found = find(TASK, tmp_path)
        assert found is not None
        assert found.path == path


def test_a_member_is_unpacked_whatever_folder_it_is_in(tmp_path: Path, tar_gz: Any) -> None:
    path = tar_gz(tmp_path / "t.tar.gz", {"a/README": b"no", f"a/{MEMBER}": b"rows"})

    assert unpack([_found(path)], tmp_path)["task"].read_bytes() == b"rows"


def test_an_archive_without_the_table_gives_none(tmp_path: Path, tar_gz: Any) -> None:
    assert unpack([_found(tar_gz(tmp_path / "t.tar.gz", {"other.csv": b""}))], tmp_path) == {}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_archive_is_an_error(share: float, tmp_path: Path, tar_gz: Any) -> None:
    path = tar_gz(tmp_path / "t.tar.gz", {MEMBER: bytes(range(256)) * 400})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])

    with pytest.raises(SourceError, match="truncated or damaged"):
        unpack([_found(path)], tmp_path)


@pytest.mark.parametrize("place", [-1, -5, 60])
def test_an_archive_with_another_checksum_or_byte_is_an_error(place: int, tmp_path: Path, tar_gz: Any) -> None:
    path = tar_gz(tmp_path / "t.tar.gz", {MEMBER: bytes(range(256)) * 400})
    bent = bytearray(path.read_bytes())
    bent[place] ^= 4
    path.write_bytes(bytes(bent))

    with pytest.raises(SourceError, match="truncated or damaged"):
        unpack([_found(path)], tmp_path)


def test_a_tar_cut_off_inside_a_whole_gzip_is_an_error(tmp_path: Path, tar_gz: Any) -> None:
    path = tar_gz(tmp_path / "t.tar.gz", {MEMBER: b"x" * 5000})
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:2048]))

    with pytest.raises(SourceError, match="truncated or damaged"):
        unpack([_found(path)], tmp_path)


@pytest.mark.parametrize("name", ["/etc/passwd", "../up.csv", f"a/../../{MEMBER}"])
def test_a_member_outside_is_refused(name: str, tmp_path: Path, tar_gz: Any) -> None:
    with pytest.raises(SourceError, match="outside the folder"):
        unpack([_found(tar_gz(tmp_path / "t.tar.gz", {name: b"x"}))], tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_member_that_is_no_plain_file_is_refused(kind: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(MEMBER)
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info, io.BytesIO())

    with pytest.raises(SourceError, match="outside the folder"):
        unpack([_found(path)], tmp_path)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from([b"a", b"a,b", b"", b"\n", b"\r\n", b"\n\n", b" "]), max_size=30))
def test_rows_are_counted_as_duckdb_counts_them(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("count") / "x.csv"
    path.write_bytes(b"".join(parts))

    records = separated(path, "t", delimiter=",", skip=0, counts=(9,))
    with duckdb.connect() as connection:
        try:
            rows = connection.execute(f"FROM {records.numbered}").fetchall()
        except duckdb.InvalidInputException:
            rows = connection.execute(f"FROM {lenient(records).numbered}").fetchall()
    assert count_rows(path) == len(rows)


def test_rows_are_counted_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.lake.sources.archive.CHUNK_BYTES", 3)
    path = tmp_path / "x.csv"
    path.write_bytes(b"ab\ncdef\n\n\ng\nhi")

    assert count_rows(path) == 4


def test_header_and_last_character_are_read_from_the_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xef\xbb\xbfa, b c ,\r\n1,2\n ")

    assert header_of(path) == ["a", "b c"]
    assert ends_with(path, b"2")
    assert not ends_with(path, b"1")
