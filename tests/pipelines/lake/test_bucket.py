"""A lake in a real S3-compatible server: the same tables, commits in one step, and errors with a cure."""

import hashlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.engine.engine import Local
from pipelines.errors import LakeError
from pipelines.lake import bucket
from pipelines.lake.ingest import add_rows, ingest
from pipelines.lake.lake import Lake
from pipelines.lake.views import COLUMNS
from tests.object_store import BUCKET, KEY, POOR_KEY, POOR_SECRET, SECRET, ObjectStore, running_store
from tests.pipelines.conftest import HELIOS, PAI
from tests.pipelines.engine.work import Mortal, held
from tests.pipelines.lake.test_additions import use
from tests.pipelines.lake.test_ingest_engines import DOOMED, clusters_written
from tests.pipelines.lake.test_ingest_engines import ingested as of_clusters
from tests.pipelines.lake.test_sql import rows_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with running_store() as made:
        yield made


@pytest.fixture
def address(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of a new lake; the environment has the key, and the local copy is in `tmp_path`."""
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return f"s3://{BUCKET}/{tmp_path.name}/lake"


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return PAI.write(tmp_path / "first")


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Return the files of `first` with another job, which was measured."""
    folder = PAI.write(tmp_path / "second")
    for name, row in {
        "pai_task_table.csv": "j5,worker,1.0,Terminated,100000.0,100600.0,600.0,29.2,50.0,T4",
        "pai_job_table.csv": "j5,i5,u1,Terminated,100000.0,100600.0",
        "pai_instance_table.csv": "j5,worker,n9,w9,i5,Terminated,100030.0,100590.0,m1",
        "pai_sensor_table.csv": "j5,worker,w9,i5,m1,/dev/nvidia0,100.0,20.0,2.0,4.0,1.0,2.0,1000.0,10.0,5.0,6.0",
    }.items():
        with (folder / name).open("a") as file:
            file.write(row + "\n")
    return folder


def objects(address: str) -> list[str]:
    found = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True).find(address)
    return [f"s3://{name}".removeprefix(f"{address}/") for name in found]


def counts(lake: str | Path) -> tuple[int, int]:
    with Lake(lake) as opened:
        return opened.table("jobs").collect().height, opened.table("usage").collect().height


def test_tables_manifest_and_sql_are_those_of_a_folder(address: str, first: Path, tmp_path: Path) -> None:
    assert ingest("pai", first, address).changed
    assert not ingest("pai", first, address).changed
    ingest("pai", first, tmp_path / "lake")

    with Lake(address) as there, Lake(tmp_path / "lake") as here:
        assert there.manifest("pai") == here.manifest("pai")
        for name in COLUMNS:
            assert_frame_equal(there.table(name).collect(), here.table(name).collect())
        text = "SELECT * FROM jobs_with_usage ORDER BY ALL"
        assert_frame_equal(rows_of(there, text), rows_of(here, text))
        assert there.views_file == there.path / "taut.duckdb"
        assert there.views_file.is_file()


def test_a_reader_elsewhere_downloads_only_what_it_reads(
    address: str, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest("pai", first, address)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    with Lake(address) as lake:
        assert lake.table("jobs").collect().height == 4
        assert {path.relative_to(lake.path).parts[0] for path in lake.path.rglob("*.parquet")} == {"jobs"}
        assert lake.path.stat().st_mode & 0o077 == 0


def test_measured_rows_are_added_in_one_commit(address: str, first: Path) -> None:
    ingest("pai", first, address)
    fresh = use("j2", used_gpus=0.5).with_columns(role=pl.lit("tensorflow"))
    add_rows(Lake(address), "pai", "pai", {"usage": fresh})
    assert counts(address) == (4, 3)


def test_other_traces_are_ingested_at_the_same_time(address: str, first: Path, tmp_path: Path) -> None:
    helios = HELIOS.write(tmp_path / "helios")
    with Lake(address).writing():
        ingest("helios", helios, address)
    command = [str(Path(sys.executable).with_name("taut")), "ingest", "pai", "--from", str(first), "--lake", address]
    both = [subprocess.Popen([*command, "--as", name], stderr=subprocess.PIPE) for name in ("a", "b")]
    assert [(each.wait(60), each.communicate()) and each.returncode for each in both] == [0, 0]
    with Lake(address) as lake:
        assert lake.traces() == ["a", "b", "helios"]
        assert lake.table("jobs", "a").collect().height == lake.table("jobs", "b").collect().height == 4


def test_of_two_commits_of_a_trace_the_later_is_refused(address: str, first: Path, second: Path) -> None:
    ingest("pai", first, address)
    late = Lake(address)
    with late.writing():
        stale = late.manifest("pai")
        ingest("pai", second, address)
        with pytest.raises(LakeError, match=r"another ingest changed this trace of s3://.*; nothing was committed"):
            late.commit(replace(stale, warnings=("mine",)))
    assert counts(address) == (5, 3)
    fresh = Lake(address)
    with fresh.writing():
        fresh.commit(replace(fresh.manifest("pai"), warnings=("mine",)))
    assert Lake(address).manifest("pai").warnings == ("mine",)


def test_old_leftovers_of_the_trace_are_swept(
    address: str, first: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest("pai", first, address)
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    ours, theirs = "jobs/trace=pai/cluster=pai/killed.parquet", "jobs/trace=other/cluster=c/running.parquet"
    for name in (ours, theirs):
        files.pipe_file(f"{address}/{name}", b"half")
    before = set(objects(address))

    ingest("pai", second, address)  # what a reader of the replaced manifest still reads stays for a day
    assert before <= set(objects(address))
    monkeypatch.setattr(bucket, "LEFTOVER_S", -60)
    ingest("pai", second, address)

    named = {output.path for output in Lake(address).manifest("pai").outputs}
    assert set(objects(address)) == named | {theirs, "manifests/pai.json"}
    with Lake(address) as lake:
        copies = {path.relative_to(lake.path).as_posix() for path in lake.path.rglob("*.parquet")}
    assert named <= copies


@pytest.mark.parametrize("harm", ["removed", "cut", "changed"])
def test_a_harmed_table_is_an_error(
    address: str, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    ingest("pai", first, address)
    [output] = [each for each in Lake(address).manifest("pai").outputs if each.table == "jobs"]
    files, key = fsspec.filesystem("s3", skip_instance_cache=True), f"{address}/{output.path}"
    whole = files.cat_file(key)
    if harm == "removed":
        files.rm(key)
    else:
        files.pipe_file(key, whole[:-1] if harm == "cut" else whole[:-9] + b"x" + whole[-8:])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(LakeError, match="is gone" if harm == "removed" else "is damaged"):
        counts(address)
    assert ingest("pai", first, address).changed is (harm != "changed")


def test_a_prefix_with_other_files_is_refused(address: str, first: Path) -> None:
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    files.pipe_file(f"{address}/jobs/trace=pai/mine.parquet", b"mine")
    files.pipe_file(f"{address}/thesis.tex", b"mine")
    with pytest.raises(LakeError, match="is not empty and no lake"):
        ingest("pai", first, address)
    assert objects(address) == ["jobs/trace=pai/mine.parquet", "thesis.tex"]


DYING = """
import os, signal, sys
from pipelines.lake.bucket import Bucket
from pipelines.lake.ingest import ingest

folder, lake, nth, phase = sys.argv[1:]
done = 0

def dying(write):
    def counted(*given):
        global done
        done += 1
        for now in ("before", "after"):
            if (done, now) == (int(nth), phase):
                os.kill(os.getpid(), signal.SIGKILL)
            if now == "before":
                write(*given)
    return counted

Bucket.place, Bucket.commit = dying(Bucket.place), dying(Bucket.commit)
ingest("pai", folder, lake)
"""


def test_kills_within_a_commit_leave_the_old_trace_or_the_new(address: str, first: Path, second: Path) -> None:
    """A commit is the uploads of the tables and the PUT of the manifest; each kill is before or after one of these."""
    tables = len(ingest("pai", first, address).manifest.outputs)
    read, over = list[object](), threading.Event()

    def read_on() -> None:
        while not over.is_set():
            try:
                read.append(counts(address))
            except Exception as error:  # any error of a reader is a result
                read.append(error)

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        for nth, phase, expected in (
            (2, "after", (4, 2)),
            (tables + 1, "before", (4, 2)),
            (tables + 1, "after", (5, 3)),
        ):
            child = [sys.executable, "-c", DYING, str(second), address, str(nth), phase]
            assert subprocess.run(child, check=False).returncode == -signal.SIGKILL
            assert counts(address) == expected
    finally:
        over.set()
        reader.join()
    assert set(read) <= {(4, 2), (5, 3)}
    assert ingest("pai", first, address).changed  # what the kills left behind does not matter to a later ingest
    assert counts(address) == (4, 2)


def test_workers_of_dask_upload_the_files_of_a_local_ingest_also_if_one_is_killed(address: str, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the optional group dask is not installed")
    from pipelines.engine.dask_cluster import Dask

    source, runs = tmp_path / "from", tmp_path / "runs"
    source.mkdir(), runs.mkdir()
    clusters_written(source)
    engine = Mortal(engine=Dask(None, 2), folder=runs, doomed=DOOMED, after_s=0.3)
    of_clusters(source, address, engine)
    of_clusters(source, tmp_path / "lake", Local())

    files = fsspec.filesystem("s3", skip_instance_cache=True)
    there = {name: hashlib.sha256(files.cat_file(f"{address}/{name}")).hexdigest() for name in objects(address)}
    here = held(tmp_path / "lake")
    assert there == {name: digest for name, digest in here.items() if name != ".lock"}
    assert engine.ran == sorted([*(f"cluster {each}-0" for each in ("north", "south", "west")), f"{DOOMED}-1"])


ENDPOINT, ID, WORD = "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
FAULTS = {
    "bucket": ({}, "s3://not-there/lake", r"no bucket 'not-there'; create it"),
    "denied": ({ID: POOR_KEY, WORD: POOR_SECRET}, "", r"reading is denied; use a key that may"),
    "key": ({ID: "TAUTTESTNOBODY"}, "", r"does not accept the key \(InvalidAccessKeyId\); set AWS_"),
    "secret": ({WORD: "wrong-secret"}, "", r"does not accept the key \(SignatureDoesNotMatch\); set AWS_"),
    "none": ({ID: "", WORD: ""}, "", r"no credentials; set AWS_"),
    "profile": ({"AWS_PROFILE": "nobody"}, "", r"no credentials; set AWS_"),
    "down": ({ENDPOINT: "http://127.0.0.1:1"}, "", r"does not answer; check the network and AWS_ENDPOINT_URL"),
    "endpoint": ({ENDPOINT: "not an address"}, "", r"invalid settings of AWS"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_that_refuses_is_one_line_with_a_cure(
    address: str, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    settings, lake, said = FAULTS[fault]
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name, value in settings.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    lake = lake or address
    result = CliRunner().invoke(app, ["ingest", "pai", "--from", str(first), "--lake", lake])
    assert result.exit_code == 2, result.output
    *_, last = result.stderr.strip().splitlines()
    assert last.startswith(f"taut: {lake}: ")
    assert re.search(said, last), last
    assert result.stdout == ""
    assert not any(word in result.output for word in (SECRET, POOR_SECRET, KEY, POOR_KEY, "wrong-secret"))


def test_the_manifest_holds_no_credential(address: str, first: Path) -> None:
    ingest("pai", first, address)
    with Lake(address) as lake:
        text = json.dumps(lake.storage.manifests())
        kept = b"".join(path.read_bytes() for path in lake.path.rglob("*") if path.is_file())
    assert "AWS" not in text
    assert not any(word.encode() in text.encode() + kept for word in (KEY, SECRET))
