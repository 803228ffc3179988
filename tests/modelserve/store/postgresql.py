"""A PostgreSQL of our own for tests: made in a folder of its own, on a free port, stopped and started at will."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.benchmarks.serving.processes import free_port

BINARIES = Path(os.environ.get("TAUT_POSTGRESQL", "/usr/lib/postgresql/15/bin"))


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


@contextmanager
def postgresql() -> Iterator[Server]:
    """Run a PostgreSQL of our own on a free port until the block ends; skip the test if it is not installed."""
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
