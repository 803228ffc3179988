"""Reading by typed columns against reading line by line: whatever was done to a file, both say the same."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.errors import SourceError
from pipelines.lake import staging
from pipelines.lake.raw_rows import load_typed
from pipelines.lake.sources import SOURCES, archive
from pipelines.lake.sources.archive import PlainText, Published, plain_text
from pipelines.lake.sources.source import COMPUTED, RawTable, Source
from pipelines.lake.staging import load
from tests.pipelines.conftest import PUBLISHED
from tests.pipelines.lake.sources.mutations import MUTATIONS

Seen = tuple[str, list[Any], list[Any]]
ROUNDS = 3


def _tables() -> list[tuple[str, str, str]]:
    """Return source, table and file of every table of the tiny traces that typed columns can be read of."""
    found = []
    for name, trace in PUBLISHED.items():
        for table in (t.of("default") for t in SOURCES[name].tables):
            files = [f for f in trace.files if Path(f).name.split(".")[0] in table.stems and "Earth" not in f]
            if files and not table.json_array and not any(c.text not in (None, COMPUTED) for c in table.columns):
                found.append((name, table.name, files[0]))
    return found


def _loaded(source: Source, table: RawTable, plain: Path) -> Seen:
    """Return what loading a file says: an error or nothing, the good rows, the quarantined ones."""
    alone = Source(name=source.name, clusters=source.clusters, tables=(table,), outputs={}, macros=source.macros)
    with duckdb.connect(config={"threads": 2}) as work:
        work.execute("SET TimeZone = 'UTC'")
        try:
            load(work, alone, "c", [Published(table=table, file="f", plain=plain)])
        except SourceError as error:
            return str(error), [], []
        good = work.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {table.name}").fetchall()
        bad = work.execute('SELECT rule, "row", raw FROM quarantine').fetchall()
    return "", sorted(good, key=repr), sorted(bad, key=repr)


def _without_links(source: str, name: str) -> RawTable:
    [table] = [t.of("default") for t in SOURCES[source].tables if t.name == name]
    return replace(table, links=())


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize(("source", "name", "file"), _tables())
@pytest.mark.slow
def test_both_ways_agree_on_spoiled_files(
    source: str, name: str, file: str, mutation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{source} {name} {mutation}")
    table, rows = _without_links(source, name), PUBLISHED[source].files[file]
    spoiled = [s.row for s in PUBLISHED[source].spoilers if s.file == file]
    for _ in range(ROUNDS):
        text = "\n".join([*rows, *rng.sample(spoiled, len(spoiled)), *rows[1:2]]) + "\n"
        plain = tmp_path / "plain"
        plain.write_bytes(MUTATIONS[mutation](text.encode(), rng))

        typed = _loaded(SOURCES[source], table, plain)
        with monkeypatch.context() as patched:
            patched.setattr(staging, "load_typed", lambda *_: None)
            assert typed == _loaded(SOURCES[source], table, plain)


@pytest.mark.parametrize(("source", "name", "file"), _tables())
def test_both_ways_agree_on_bad_rows_among_good_ones(
    source: str, name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rows = _without_links(source, name), PUBLISHED[source].files[file]
    spoiled = [s.row for s in PUBLISHED[source].spoilers if s.file == file]
    plain = tmp_path / "plain"
    plain.write_text("\n".join([rows[0], *spoiled, *rows[1:], *spoiled, rows[1]]) + "\n")

    typed = _loaded(SOURCES[source], table, plain)

    monkeypatch.setattr(staging, "load_typed", lambda *_: None)
    assert typed == _loaded(SOURCES[source], table, plain)


@pytest.mark.parametrize(("source", "name", "file"), _tables())
def test_plain_files_are_read_by_typed_columns(source: str, name: str, file: str, tmp_path: Path) -> None:
    table, rows = _without_links(source, name), PUBLISHED[source].files[file]
    (tmp_path / "plain").write_text("\n".join(rows) + "\n")

    with duckdb.connect() as work:
        for macro in SOURCES[source].macros:
            work.execute(macro)
        read = load_typed(work, table, tmp_path / "plain", rows[0].count(",") + 1)

    assert read == len(rows) - (table.header is not None)


def test_rows_keep_their_numbers_in_a_file_read_by_several_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    table, plain = _without_links("pai", "job"), tmp_path / "plain"
    bad = ("x", "j,i,u,Lost,1.0,2.0", "j7,i,u,Failed,1.0,2.0", "j,i,u,Failed,one,2.0", "j,i,u,Failed,1.0,2.0,3.0")
    good = (f"j{i},i{i},u,Terminated,{i}.0,{i}.5" for i in range(300_000))
    rows = [rng.choice(bad) if rng.random() < 1e-4 else row for row in good]
    plain.write_text("\n".join(rows) + "\n")

    _, loaded, quarantined = _loaded(SOURCES["pai"], table, plain)

    assert len(loaded) + len(quarantined) == len(rows)
    assert len(quarantined) > 20
    assert all(rows[row - 1] == raw for _, row, raw in quarantined)


@pytest.mark.parametrize("data", [b"a\r\n", b"a\0b\n", b"a\x01\n", b"a\x02\n", "é\n".encode(), b"\xef\xbb\xbfa\n"])
def test_what_is_not_plain_text_is_left_to_the_other_way(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(data)

    assert plain_text(tmp_path / "plain") is None


@pytest.mark.parametrize(("data", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a,\nb,,", 2), (b"a\n\nb\n", 3)])
def test_lines_and_commas_of_plain_text_are_counted(data: bytes, lines: int, tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(data)

    assert plain_text(tmp_path / "plain") == PlainText(lines=lines, commas=data.count(b","), padded=False)


@pytest.mark.parametrize("data", [b" a,b", b"a ,b\n", b"a, b\n", b"a,b \n", b"a,b ", b"a,b\n c,d\n", b"a b,\n c"])
def test_spaces_that_begin_or_end_a_field_are_seen(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").write_bytes(data)

    for chunk in range(1, len(data) + 1):
        monkeypatch.setattr(archive, "SCAN_BYTES", chunk)
        seen = plain_text(tmp_path / "plain")
        assert seen is not None
        assert seen.padded


def test_spaces_inside_fields_are_none_around_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain").write_bytes(b"a b,c  d\ne f,g\n")

    for chunk in range(1, 16):
        monkeypatch.setattr(archive, "SCAN_BYTES", chunk)
        assert plain_text(tmp_path / "plain") == PlainText(lines=2, commas=2, padded=False)
