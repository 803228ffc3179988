"""The store: made once by many, shared without loss or doubles, whole after a kill, refused when foreign."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from modelserve.errors import StoreError
from modelserve.store import Store
from modelserve.store.changes import ModeSet, changes_between, write_control
from modelserve.store.finished import Outcome, newest_finished

ROOT = Path(__file__).resolve().parents[2]
WRITER = Path(__file__).with_name("store_writer.py")
Run = Callable[[str, str, int], "subprocess.Popen[str]"]


def start_writer(url: str, name: str, calls: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(WRITER), url, name, str(calls)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )


def finished(writers: list["subprocess.Popen[str]"]) -> list[tuple[str, str]]:
    """Return every acknowledgement, as (job, status), once all writers ended well."""
    said = []
    for writer in writers:
        out, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
        said += [(line.rsplit(" ", 1)[0], line.rsplit(" ", 1)[1]) for line in out.splitlines()]
    return said


def check_writers_share(url: str, writers: int = 3, calls: int = 12) -> None:
    """Let several processes write at once, and see that nothing is lost or doubled, and every number in its order."""
    said = finished([start_writer(url, f"w{i}", calls) for i in range(writers)])

    store = Store.open(url)
    stored = newest_finished(store, limit=10_000)
    seen = list(changes_between(store, 0, store.seq(), finished=Outcome))
    store.close()
    accepted = Counter(job for job, status in said if status == "accepted")
    assert accepted == Counter(row.job_id for row in stored)
    assert len(stored) == writers * calls * 3 + calls
    assert {status for job, status in said if job.startswith("shared")} == {"accepted", "duplicate"}
    assert [row.seq for row in stored] == sorted({row.seq for row in stored})
    assert [each.seq for each in seen] == [row.seq for row in stored]


def check_kill_loses_nothing(url: str) -> None:
    """Kill a writer while it writes, and see that whatever it had acknowledged is there, and the store goes on."""
    writer = start_writer(url, "victim", 100_000)
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline().split()[0] for _ in range(80)]
    writer.kill()
    acknowledged += [line.split()[0] for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    writer.wait(timeout=30)
    assert writer.stderr is not None
    writer.stdout.close()
    writer.stderr.close()

    store = Store.open(url)
    stored = {row.job_id for row in newest_finished(store, limit=1_000_000)}
    assert set(acknowledged) <= stored
    before = store.seq()
    write_control(store, a_mode())
    assert store.seq() == before + 1
    store.close()


def a_mode(mode: str = "observe") -> ModeSet:
    return ModeSet(trace="pai", cluster="", task_type="", group="", mode=mode, caller="t", at=1.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/deep/below/serve.db"


@pytest.mark.slow
def test_several_processes_lose_and_double_nothing(url: str) -> None:
    check_writers_share(url)


@pytest.mark.slow
def test_a_killed_writer_leaves_everything_it_acknowledged(url: str) -> None:
    check_kill_loses_nothing(url)


def test_a_store_is_made_once_whoever_comes_first(url: str) -> None:
    start = threading.Barrier(8)

    def come(_: int) -> int:
        start.wait()
        store = Store.open(url)
        seq = write_control(store, a_mode())
        store.close()
        return seq

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(come, range(8)))

    assert sorted(numbers) == list(range(1, 9))


def test_changes_are_read_in_the_order_of_their_numbers(url: str) -> None:
    store = Store.open(url)
    for mode in ("observe", "enforce", "observe"):
        write_control(store, a_mode(mode))

    assert [(each.seq, each.mode) for each in changes_between(store, 1, 3) if isinstance(each, ModeSet)] == [
        (2, "enforce"),
        (3, "observe"),
    ]
    store.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("mysql://host/db", "expected sqlite:///file or postgresql"),
        ("not a url", "invalid URL"),
        ("sqlite:////proc/none/serve.db", "cannot be created"),
    ],
)
def test_what_is_no_store_is_refused(url: str, said: str) -> None:
    with pytest.raises(StoreError, match=said):
        Store.open(url)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "serve.db").write_text("not a database at all, but quite some text " * 100)

    with pytest.raises(StoreError, match="not a database"):
        Store.open(f"sqlite:///{tmp_path}/serve.db")


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute("CREATE TABLE experiments (id INTEGER)")
    connection.close()

    with pytest.raises(StoreError, match=r"another program \(tables experiments\)"):
        Store.open(f"sqlite:///{tmp_path}/mlflow.db")

    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    connection.close()
    assert names == ["experiments"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE taut_store SET layout = 5", r"found layout \[5\], expected 7"),
        ("DELETE FROM taut_store", r"found layout \[\]"),
        ("DROP TABLE taut_answers", r"\['taut_answers'\] are missing"),
    ],
)
def test_a_store_of_another_layout_is_refused(tmp_path: Path, statement: str, said: str) -> None:
    Store.open(f"sqlite:///{tmp_path}/serve.db").close()
    with sqlite3.connect(tmp_path / "serve.db") as connection:
        connection.execute(statement)
    connection.close()

    with pytest.raises(StoreError, match=said):
        Store.open(f"sqlite:///{tmp_path}/serve.db")


def test_a_password_is_nowhere_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelserve.store.store.WAIT_S", 1)

    with pytest.raises(StoreError) as refused:
        Store.open("postgresql+psycopg://taut:secret@127.0.0.1:1/taut")

    assert "secret" not in str(refused.value)


def test_a_locked_store_says_so_and_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelserve.store.store.WAIT_S", 0)
    store = Store.open(f"sqlite:///{tmp_path}/serve.db")
    other = sqlite3.connect(tmp_path / "serve.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreError, match="locked"):
        write_control(store, a_mode())
    assert store.seq() == 0

    other.execute("ROLLBACK")
    other.close()
    assert write_control(store, a_mode()) == 1
    store.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_of_another_inode_is_refused_and_none_created(tmp_path: Path, replaced: bool) -> None:
    url = f"sqlite:///{tmp_path / 'own.db'}"
    first = Store.open(url)
    first.close()
    Store.open(url, inode=first.file[1]).close()
    (tmp_path / "own.db").rename(tmp_path / "gone.db")
    if replaced:
        Store.open(f"sqlite:///{tmp_path / 'other.db'}").close()
        (tmp_path / "other.db").rename(tmp_path / "own.db")

    with pytest.raises(StoreError, match="store: found"):
        Store.open(url, inode=first.file[1])
    assert (tmp_path / "own.db").exists() is replaced
