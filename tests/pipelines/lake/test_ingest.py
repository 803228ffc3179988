"""Ingest as a transaction: names, refusals, replacement, concurrent writers, and kill -9 at random moments."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.errors import BadUsage, LakeError, SourceError
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.lake.views import COLUMNS

Published = dict[str, Any]


def _files(lake: Path) -> set[str]:
    return {p.relative_to(lake).as_posix() for p in lake.rglob("*") if p.name != ".lock"}


def test_a_trace_takes_the_name_it_is_given(published: Published, tmp_path: Path) -> None:
    folder = published["philly"].write(tmp_path / "from")

    ingest("philly", folder, tmp_path / "lake")
    ingest("philly", folder, tmp_path / "lake", as_name="philly-rebuilt")

    lake = Lake(tmp_path / "lake")
    assert lake.traces() == ["philly", "philly-rebuilt"]
    assert lake.table("jobs", trace="philly-rebuilt").collect()["trace"].unique().to_list() == ["philly-rebuilt"]


@pytest.mark.parametrize("name", ["", "..", "../up", "Upper", "a/b", "-a", "a b", ".hidden", "a'b", "a\n"])
def test_an_unsafe_name_is_refused(name: str, published: Published, tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="trace name"):
        ingest("pai", published["pai"].write(tmp_path / "from"), tmp_path / "lake", as_name=name)

    assert not (tmp_path / "lake").exists()


def test_an_unknown_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="expected one of pai, helios, philly"):
        ingest("borg", tmp_path, tmp_path / "lake")


def test_one_sources_trace_does_not_replace_anothers(published: Published, tmp_path: Path) -> None:
    ingest("pai", published["pai"].write(tmp_path / "pai"), tmp_path / "lake")

    with pytest.raises(BadUsage, match="holds pai data"):
        ingest("philly", published["philly"].write(tmp_path / "philly"), tmp_path / "lake", as_name="pai")


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share: float, published: Published, tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="share"):
        ingest("pai", published["pai"].write(tmp_path / "from"), tmp_path / "lake", strict_share=share)


def test_an_absent_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no folder"):
        ingest("pai", tmp_path / "nowhere", tmp_path / "lake")


def test_a_folder_without_clusters_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cluster_log"):
        ingest("helios", tmp_path, tmp_path / "lake")


def test_another_tables_file_is_an_error(published: Published, tmp_path: Path) -> None:
    folder = published["philly"].write(tmp_path / "from")
    (folder / "cluster_cpu_util").write_text("date,total\n2020-01-01,8\n")

    with pytest.raises(SourceError, match="has the columns 'date, total'; expected 'time, machine_id, cpu_util'"):
        ingest("philly", folder, tmp_path / "lake")


def test_changed_files_replace_the_trace_and_leave_nothing_behind(published: Published, tmp_path: Path) -> None:
    trace, lake = published["pai"], tmp_path / "lake"
    folder = trace.write(tmp_path / "from", trace.spoilers[:2])
    ingest("pai", folder, lake)

    trace.write(folder)
    assert ingest("pai", folder, lake).changed

    ingest("pai", folder, tmp_path / "fresh")
    assert _files(lake) == _files(tmp_path / "fresh")


def test_a_damaged_lake_is_made_again(published: Published, tmp_path: Path) -> None:
    folder = published["pai"].write(tmp_path / "from")
    manifest = ingest("pai", folder, tmp_path / "lake").manifest
    (tmp_path / "lake" / manifest.outputs[0].path).write_bytes(b"")

    assert ingest("pai", folder, tmp_path / "lake").changed

    assert Lake(tmp_path / "lake").table("jobs").collect().height == 4


def test_failing_leaves_the_old_tables(published: Published, tmp_path: Path) -> None:
    folder = published["pai"].write(tmp_path / "from")
    ingest("pai", folder, tmp_path / "lake")
    (folder / "pai_job_table.csv").write_text("")

    with pytest.raises(SourceError, match="holds no rows"):
        ingest("pai", folder, tmp_path / "lake")

    assert Lake(tmp_path / "lake").table("jobs").collect().height == 4


def test_two_writers_do_not_meet(published: Published, tmp_path: Path) -> None:
    folder = published["pai"].write(tmp_path / "from")

    with Lake(tmp_path / "lake").storage.writing(), pytest.raises(LakeError, match="another ingest"):
        ingest("pai", folder, tmp_path / "lake")


def test_a_trace_of_another_version_is_made_again(published: Published, tmp_path: Path) -> None:
    folder = published["pai"].write(tmp_path / "from")
    ingest("pai", folder, tmp_path / "lake")
    (tmp_path / "lake" / "manifests" / "pai.json").write_text('{"trace": "pai", "format_version": 0}')

    with pytest.raises(LakeError, match="'pai' cannot be read"):
        Lake(tmp_path / "lake").table("jobs")
    assert ingest("pai", folder, tmp_path / "lake").changed

    assert Lake(tmp_path / "lake").table("jobs").collect().height == 4


def test_a_lake_that_is_a_file_is_refused(published: Published, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")

    with pytest.raises(LakeError, match="is a file"):
        ingest("pai", published["pai"].write(tmp_path / "from"), tmp_path / "lake")


def test_progress_names_every_step(published: Published, tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []

    ingest(
        "pai", published["pai"].write(tmp_path / "from"), tmp_path / "lake", progress=lambda *step: said.append(step)
    )

    texts, done, total = zip(*said, strict=True)
    assert any("reading task of pai" in text for text in texts)
    assert any("writing usage" in text for text in texts)
    assert list(done) == sorted(done)
    assert done[-1] == total[-1] > 0


@pytest.mark.slow
def test_broken_off_before_any_rename_and_run_again_gives_the_same_tables(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = published["pai"].write(tmp_path / "from", published["pai"].spoilers)
    ingest("pai", folder, tmp_path / "whole")
    rename, renamed = Path.replace, 0

    def broken(self: Path, target: Path) -> Path:
        nonlocal renamed
        renamed += 1
        if renamed > allowed:
            raise KeyboardInterrupt
        return rename(self, target)

    tables = 5  # jobs, usage, machines, machine_usage, quarantine; then the manifest; then the views
    for allowed in range(tables + 2):
        renamed, lake = 0, tmp_path / f"lake-{allowed}"
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", broken)
            with pytest.raises(KeyboardInterrupt):
                ingest("pai", folder, lake)
        assert Lake(lake).traces() == (["pai"] if allowed > tables else [])

        assert ingest("pai", folder, lake).changed == (allowed <= tables)

        assert _files(lake) == _files(tmp_path / "whole")
        assert Lake(lake).table("jobs").collect().equals(Lake(tmp_path / "whole").table("jobs").collect())


CHILD = """
import sys
from pipelines.lake.ingest import ingest
import pipelines.lake.staging, features.tables, polars, duckdb
duckdb.connect().execute("SELECT 1").fetchall()
print("ready", flush=True)
ingest("pai", sys.argv[1], sys.argv[2])
print("done", flush=True)
"""


def _start(folder: Path, lake: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", CHILD, folder, lake], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def _contents(lake: Path) -> dict[str, pl.DataFrame]:
    return {name: Lake(lake).table(name).collect() for name in COLUMNS}


def _many_tasks(folder: Path, tasks: int) -> Path:
    folder.mkdir()
    ids = range(tasks)
    tables = {
        "task": [f"j{i},worker,1.0,Terminated,{100000 + i}.0,{100500 + i}.0,600.0,29.3,50.0,T4" for i in ids],
        "job": [f"j{i},i{i},u{i % 7},Terminated,{100000 + i}.0,{100500 + i}.0" for i in ids],
        "sensor": [f"j{i},worker,w{i},i{i},m1,/dev/nvidia0,{i % 99}.5,20.0,2,4,1,2,3,4,5,6" for i in ids],
    }
    for name, rows in tables.items():
        (folder / f"pai_{name}_table.csv").write_text("\n".join([*rows, "spoiled"]) + "\n")
    return folder


@pytest.mark.slow
def test_killed_at_any_moment_and_run_again_gives_the_same_tables(tmp_path: Path) -> None:
    rounds = 4
    old, new = _many_tasks(tmp_path / "old", 3000), _many_tasks(tmp_path / "new", 4000)
    ingest("pai", old, tmp_path / "as-old")
    before = _contents(tmp_path / "as-old")
    with _start(new, tmp_path / "as-new") as child:
        started = time.monotonic()
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        duration_s = time.monotonic() - started
    after, files = _contents(tmp_path / "as-new"), _files(tmp_path / "as-new")
    rng, killed = random.Random(7), 0

    for nth in range(rounds):
        lake = tmp_path / f"lake-{nth}"
        if nth % 2:
            ingest("pai", old, lake)
        held = before if nth % 2 else {name: frame.clear() for name, frame in before.items()}
        with _start(new, lake) as victim:
            started = time.monotonic()
            try:
                victim.wait(timeout=duration_s * (nth + rng.random()) / rounds)
                duration_s = min(duration_s, time.monotonic() - started)  # others were using the machine
            except subprocess.TimeoutExpired:
                victim.send_signal(signal.SIGKILL)
                killed += 1

        seen = _contents(lake)
        assert any(all(seen[t].equals(state[t]) for t in COLUMNS) for state in (held, after)), f"torn in round {nth}"
        ingest("pai", new, lake)
        again = _contents(lake)
        assert all(again[name].equals(after[name]) for name in COLUMNS), f"different in round {nth}"
        assert _files(lake) == files, f"leftovers in round {nth}"
    assert killed >= rounds / 4


def test_an_ingest_imports_no_frames() -> None:
    absent = ("polars", "dataframely", "sqlalchemy", "pydantic", "pyarrow", "pandas")
    code = f"import sys, pipelines.cli.data, pipelines.lake.ingest; print(*(m for m in {absent} if m in sys.modules))"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.split() == []
