"""The store in a real PostgreSQL: the same promises as in a file, and a server that goes away and comes back."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from modelserve.callers import ANYONE
from modelserve.contract.requests import ModeBody
from modelserve.errors import StoreError
from modelserve.store.answer_writing import prune_answers
from modelserve.store.answers import newest_answers, read_answer
from modelserve.store.realised import named_ran
from tests.benchmarks.serving.processes import free_port
from tests.modelserve.answering import write_answers
from tests.modelserve.feedback_cases import body, row, service_of
from tests.modelserve.store.test_answer_log import log_of, record
from tests.modelserve.store.test_store import check_kill_loses_nothing, check_writers_share

BINARIES = Path(os.environ.get("TAUT_POSTGRESQL", "/usr/lib/postgresql/15/bin"))
pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class Server:
    """A PostgreSQL of our own; the server refuses to run as root, so root lends it an unprivileged user."""

    folder: Path
    port: int
    user: str | None

    def run(self, binary: str, *arguments: str) -> None:
        given = [str(BINARIES / binary), *arguments]
        prefix = (
            [] if self.user is None else ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        )
        done = subprocess.run(
            prefix + given, check=False, timeout=60, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert done.returncode == 0, done.stdout.decode()

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-o", options, "-l", f"{self.folder}/log", "-w", "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-m", "immediate", "-w", "stop")

    def make_database(self, name: str) -> str:
        self.run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "taut", name)
        return f"postgresql+psycopg://taut@127.0.0.1:{self.port}/{name}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if not (BINARIES / "initdb").is_file():
        pytest.skip(f"no PostgreSQL in {BINARIES}: install postgresql-15, or set TAUT_POSTGRESQL")
    user = None
    if os.geteuid() == 0:
        known = {entry.pw_name for entry in pwd.getpwall()}
        user = next((name for name in ("postgres", "nobody") if name in known), None)
        if user is None or shutil.which("setpriv") is None:
            pytest.skip("PostgreSQL does not run as root: setpriv and a user postgres or nobody are needed")
    folder = Path(tempfile.mkdtemp(prefix="taut-pg-", dir="/tmp"))  # a socket's path is short, pytest's are not
    if user is not None:
        shutil.chown(folder, user)
    made = Server(folder=folder, port=free_port(), user=user)
    try:
        made.run("initdb", "-D", f"{folder}/data", "-U", "taut", "--auth=trust", "-E", "UTF8", "--no-sync")
        made.start()
        yield made
        made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_several_processes_lose_and_double_nothing(server: Server) -> None:
    check_writers_share(server.make_database("shared"))


def test_a_killed_writer_leaves_everything_it_acknowledged(server: Server) -> None:
    check_kill_loses_nothing(server.make_database("killed"))


def test_feedback_modes_and_answers_are_as_in_a_file(server: Server) -> None:
    url = server.make_database("whole")
    service, other = service_of(url), service_of(url)
    rows = [row("a"), row("b", outcome="oom", allocation={"mem_gib": 10.0})]

    taken = service.take_feedback(body([*rows, row("a")]), ANYONE)
    service.set_mode(ModeBody(trace="pai", mode="enforce"), ANYONE)
    log = log_of(service.store, 10)
    log.put(record(1, context=b"\x00\xff"))
    log.stop()

    assert (taken.accepted, taken.duplicates) == (2, 1)
    assert other.feed.fresh().mode("pai", "ctr", None) == "enforce"
    assert other.feed.learned.memory_floor_gib("pai", "pai", "g0", "worker") == pytest.approx(12.0)
    [realised] = other.read_modes(ANYONE).realised
    assert (realised.jobs, realised.shrunk_jobs, realised.kills) == (2, 1, 1)
    assert realised.hours["mem_gib"].saved == pytest.approx(20.0)
    named = named_ran(other.store, {("pai", "b"), ("pai", "nobody"), ("pai", "nul\x00")})
    assert [(each.job_id, each.outcome, each.shrunk) for each in named] == [("b", "oom", True)]
    logged = read_answer(other.store, "a000001")
    assert logged is not None
    assert logged.context == b"\x00\xff"
    service.store.close()
    other.store.close()


def test_the_log_is_bounded_and_searched_as_in_a_file(server: Server) -> None:
    service = service_of(server.make_database("heavy"))
    write_answers(service.store, [record(i, features=bytes(100_000), models=f"m_{i % 2}@1") for i in range(30)])

    gone = prune_answers(service.store, kept=20, kept_bytes=1_000_000)
    left = [each.answer_id for each in newest_answers(service.store, limit_bytes=500_000)]
    citing = [each.answer_id for each in newest_answers(service.store, citing=("m_1@1",), parts=(), limit=2)]
    erased = service.erase_user(ANYONE, "pai", "u1")

    assert gone == 21
    assert left == ["a000029", "a000028", "a000027", "a000026"]
    assert citing == ["a000029", "a000027"]
    assert erased.answers == 0
    service.store.close()


def test_a_server_that_goes_away_costs_no_answer_and_comes_back(server: Server) -> None:
    url = server.make_database("away")
    service = service_of(url)
    service.set_mode(ModeBody(trace="pai", mode="enforce"), ANYONE)
    log = log_of(service.store, 100)
    log.start()

    server.stop()
    try:
        began = time.monotonic()
        kept = [service.feed.fresh().mode("pai", "ctr", None) for _ in range(100)]
        taken = log.put(record(1))
        took_s = time.monotonic() - began
        with pytest.raises(StoreError):
            service.take_feedback(body([row("a")]), ANYONE)
    finally:
        server.start()

    assert set(kept) == {"enforce"}
    assert taken
    assert took_s < 2.0
    assert service.feed.trouble is not None
    assert service.take_feedback(body([row("a")]), ANYONE).accepted == 1
    assert service.feed.trouble is None
    log.stop()
    service.store.close()
