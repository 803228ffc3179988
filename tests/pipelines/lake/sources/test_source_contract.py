"""What every source must do, whatever its format: one suite, run over all of them."""

import gzip
import string
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from features.tables import TABLES
from pipelines.errors import SourceError
from pipelines.lake.ingest import IngestReport, ingest
from pipelines.lake.lake import Lake
from tests.examples import examples

Trace = Any  # the tiny published trace of conftest.py, which pytest does not let tests import
Clean = tuple[Path, Lake, IngestReport]


@pytest.fixture(params=["pai", "helios", "philly", "openb"])
def trace(request: pytest.FixtureRequest, published: dict[str, Trace]) -> Trace:
    return published[request.param]


@pytest.fixture(scope="module")
def clean(published: dict[str, Trace], tmp_path_factory: pytest.TempPathFactory) -> Callable[[Trace], Clean]:
    """Return a maker of a trace's folder, its lake and the report of its first ingest: one for all tests that read."""

    @cache
    def made(source: str) -> Clean:
        folder = tmp_path_factory.mktemp(source)
        report = ingest(source, published[source].write(folder / "from"), folder / "lake")
        return folder / "from", Lake(folder / "lake"), report

    return lambda trace: made(trace.source)


def _mtimes(folder: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def test_accounts_close_and_tables_validate(trace: Trace, clean: Callable[[Trace], Clean]) -> None:
    _, lake, report = clean(trace)

    assert report.changed
    assert report.manifest.rows_quarantined == 0
    for account in report.manifest.accounts:
        lines = len(trace.files[account.file]) if account.file and account.table != "log" else account.rows_in
        assert account.rows_in == account.rows_good
        assert lines - account.rows_in in (0, 1)  # a header or none
    for name, schema in TABLES.items():
        frame = lake.table(name, trace=trace.source).collect()
        schema.validate(frame)
        assert frame.height == report.manifest.rows_out(name)
    assert report.manifest.rows_out("jobs") > 0


def test_second_run_changes_nothing(trace: Trace, clean: Callable[[Trace], Clean]) -> None:
    folder, lake, first = clean(trace)
    before = _mtimes(lake.path)

    second = ingest(trace.source, folder, lake.path)

    assert not second.changed
    assert second.manifest == first.manifest
    assert _mtimes(lake.path) == before


@pytest.mark.slow
def test_same_files_in_another_lake_give_the_same_bytes(
    trace: Trace, clean: Callable[[Trace], Clean], tmp_path: Path
) -> None:
    folder, lake, one = clean(trace)

    two = ingest(trace.source, folder, tmp_path / "two")

    assert one.manifest == two.manifest
    for output in one.manifest.outputs:
        assert (lake.path / output.path).read_bytes() == (tmp_path / "two" / output.path).read_bytes()


def test_each_rule_catches_its_rows_and_no_others(
    trace: Trace, clean: Callable[[Trace], Clean], tmp_path: Path
) -> None:
    _, lake, first = clean(trace)

    spoiled = ingest(trace.source, trace.write(tmp_path / "from", trace.spoilers), tmp_path / "lake").manifest

    caught = Lake(tmp_path / "lake").table("quarantine", trace=trace.source).select("rule", "file", "raw").collect()
    assert sorted(caught.rows()) == sorted((s.rule, s.file, s.row) for s in trace.spoilers)
    assert spoiled.rows_in == first.manifest.rows_in + len(trace.spoilers)
    assert spoiled.rows_quarantined == len(trace.spoilers)
    for name in TABLES:
        assert Lake(tmp_path / "lake").table(name).collect().equals(lake.table(name).collect())


def test_a_missing_required_file_is_named(trace: Trace, tmp_path: Path) -> None:
    required = trace.required[0]
    folder = trace.write(tmp_path / "from", without=trace.required)

    with pytest.raises(SourceError, match=Path(required).name.split(".")[0]):
        ingest(trace.source, folder, tmp_path / "lake")

    assert Lake(tmp_path / "lake").traces() == []


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_required_file_is_an_error(trace: Trace, content: str, tmp_path: Path) -> None:
    folder = trace.write(tmp_path / "from")
    (folder / trace.required[0]).write_text(content)

    with pytest.raises(SourceError):
        ingest(trace.source, folder, tmp_path / "lake")


def test_absent_optional_files_give_empty_tables_and_warnings(trace: Trace, tmp_path: Path) -> None:
    optional = tuple(name for name in trace.files if name not in trace.required)
    folder = trace.write(tmp_path / "from", without=optional)

    manifest = ingest(trace.source, folder, tmp_path / "lake").manifest

    absent = [a for a in manifest.accounts if a.file is None]
    assert len(absent) >= len(optional)
    assert all(any(f"no {a.table} table" in w for w in manifest.warnings) for a in absent)
    for name, schema in TABLES.items():
        schema.validate(Lake(tmp_path / "lake").table(name).collect())


def test_a_truncated_gzip_is_an_error(trace: Trace, tmp_path: Path) -> None:
    folder = trace.write(tmp_path / "from")
    plain = folder / trace.required[0]
    packed = gzip.compress(plain.read_bytes())
    plain.with_name(plain.name + ".gz").write_bytes(packed[: len(packed) // 2])
    plain.unlink()

    with pytest.raises(SourceError, match="truncated or damaged"):
        ingest(trace.source, folder, tmp_path / "lake")


def check_packed_is_plain(trace: Trace, plain: Lake, packed: Path, place: Path) -> None:
    ingest(trace.source, packed, place)

    for name in TABLES:
        assert Lake(place).table(name).collect().equals(plain.table(name).collect())


def test_a_whole_gzip_is_read_like_the_plain_file(
    trace: Trace, clean: Callable[[Trace], Clean], tmp_path: Path
) -> None:
    folder = trace.write(tmp_path / "from")
    for name in trace.files:
        plain = folder / name
        plain.with_name(plain.name + ".gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()

    check_packed_is_plain(trace, clean(trace)[1], folder, tmp_path / "lake")


@pytest.mark.parametrize("source", ["pai", "philly"])
def test_the_published_archives_are_read_like_plain_files(
    source: str, published: dict[str, Trace], clean: Callable[[Trace], Clean], tmp_path: Path, tar_gz: Any
) -> None:
    trace, packed = published[source], tmp_path / "from"
    packed.mkdir()
    folder, lake, _ = clean(trace)
    files = {name: (folder / name).read_bytes() for name in trace.files}
    if source == "philly":
        tar_gz(packed / "trace-data.tar.gz", {f"trace-data/{name}": data for name, data in files.items()})
    else:
        for name, data in files.items():
            tar_gz((packed / name).with_suffix(".tar.gz"), {name: data})

    check_packed_is_plain(trace, lake, packed, tmp_path / "lake")


@pytest.mark.slow
def test_strict_refuses_a_share_and_commits_nothing(trace: Trace, tmp_path: Path) -> None:
    folder = trace.write(tmp_path / "from", trace.spoilers[:1])

    with pytest.raises(SourceError, match=trace.spoilers[0].rule):
        ingest(trace.source, folder, tmp_path / "lake", strict_share=0.01)

    assert Lake(tmp_path / "lake").traces() == []
    assert ingest(trace.source, folder, tmp_path / "lake", strict_share=0.9).changed
    with pytest.raises(SourceError, match="--strict"):
        ingest(trace.source, folder, tmp_path / "lake", strict_share=0.0)


JUNK = st.one_of(
    st.text(alphabet=string.printable.replace("\n", "").replace("\r", "").replace("\x0b", "").replace("\x0c", "")),
    st.lists(
        st.sampled_from(["", "1", "-1", "x", "NaN", "1e999", "j1", "Failed", "2017-11-05 01:30:00", '"', "é"])
    ).map(",".join),
    st.binary(max_size=40).map(lambda b: b.replace(b"\n", b" ").replace(b"\r", b" ")),
)


@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(JUNK, max_size=6), seed=st.integers(0, 10**6))
@example(rows=[",,0,:"], seed=1)
@pytest.mark.slow
def test_no_junk_raises_and_every_row_is_accounted(
    trace: Trace, rows: list[str | bytes], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = trace.write(tmp_path_factory.mktemp("junk"))
    names = [name for name in trace.files if name != "cluster_job_log"]
    path = folder / names[seed % len(names)]
    junk = [row if isinstance(row, bytes) else row.encode() for row in rows]
    path.write_bytes(path.read_bytes() + b"".join(row + b"\n" for row in junk))

    manifest = ingest(trace.source, folder, folder / "lake").manifest

    file = path.relative_to(folder).as_posix()
    [account] = [a for a in manifest.accounts if a.file == file]
    lines = [line for line in path.read_bytes().split(b"\n") if line]
    assert account.rows_in == account.rows_good + account.rows_quarantined
    assert account.rows_in == len(lines) - (0 if trace.source == "pai" else 1)
    kept = Lake(folder / "lake").table("quarantine").filter(pl.col("file") == file).collect()
    assert kept.height == account.rows_quarantined
    for name, schema in TABLES.items():
        schema.validate(Lake(folder / "lake").table(name).collect())
