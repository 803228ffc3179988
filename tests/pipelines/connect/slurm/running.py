"""A real Slurm on loopback: munged, MariaDB, slurmdbd, slurmctld and two slurmd, all under one folder, without systemd.

Each process is a child of the tests and is ended by its own id. Needs root. Imported by the tests and the benchmark.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipelines.connect.slurm.files import write_files
from tests.benchmarks.serving.processes import free_port
from tests.deploy.tools import tool

HERE = Path(__file__).parent / "cluster"
PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch")
CGROUP = Path("/sys/fs/cgroup/memory")
UP_S = 60.0


def until(true: Callable[[], object], *, within_s: float = UP_S, what: str = "it") -> None:
    """Wait for something to become true, looking often."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, f"{what} did not happen within {within_s} s"
        time.sleep(0.05)


@dataclass
class Cluster:
    """A running cluster; `run` is its folder, `environment` what its commands need."""

    run: Path
    environment: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills_for_memory: bool = False
    ticks: float = field(default_factory=time.time)

    @property
    def script(self) -> Path:
        return self.run / "etc" / "job_submit.lua"

    @property
    def socket(self) -> Path:
        return self.run / "agent.sock"

    def command(self, *words: str, check: bool = True, within_s: float = 60.0) -> str:
        done = subprocess.run(
            words, capture_output=True, text=True, env=self.environment, timeout=within_s, cwd=self.run / "home"
        )
        assert done.returncode == 0 or not check, f"{words}: {done.stderr}"
        return done.stdout + done.stderr

    def submit(self, *words: str, wrap: str = "true") -> int:
        """Submit a job and return its id."""
        said = self.command("sbatch", "--parsable", "-o", "/dev/null", *words, "--wrap", wrap)
        return int([line for line in said.splitlines() if line.isdecimal()][-1])

    def job(self, number: int) -> dict[str, str]:
        """Return the fields of a job that slurmctld holds; of the first, if it has several parts."""
        said = self.command("scontrol", "-o", "show", "job", str(number)).strip().splitlines()[0]
        return dict(part.split("=", 1) for part in said.split(" ") if "=" in part)

    def admin_comment(self, number: int) -> str:
        said = self.command("scontrol", "show", "job", str(number))
        found = [line.strip() for line in said.splitlines() if line.strip().startswith("AdminComment=")]
        return found[0].removeprefix("AdminComment=") if found else ""

    def reload(self) -> None:
        """Make slurmctld load the script anew, so that its breaker is closed."""
        self.ticks += 10
        os.utime(self.script, (self.ticks, self.ticks))

    def start(self, name: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a program that stays in the foreground."""
        with (self.run / "log" / f"{name}.out").open("ab") as log:
            made = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self.environment, **environment},
                start_new_session=True,
            )
        self.processes[name] = made
        return made

    def end(self, name: str, within_s: float = 15) -> None:
        made = self.processes.pop(name)
        made.send_signal(signal.SIGCONT)
        made.terminate()
        try:
            made.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            made.kill()
            made.wait(timeout=5)

    def start_controller(self) -> None:
        self.start("slurmctld", tool("slurmctld"), "-D", "-i", "-f", self.environment["SLURM_CONF"])

    def idle(self) -> bool:
        said = self.command("sinfo", "-h", "-p", "gpu", "-o", "%T %D", check=False, within_s=20)
        return said.strip() == "idle 2"


@contextmanager
def running_cluster(more: str = "") -> Iterator[Cluster]:
    """Bring a cluster up with the files of `taut slurm files`, which ask an agent at its socket.

    `more` are lines for its slurm.conf.
    """
    for name in PROGRAMS:
        tool(name)
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons are started as root here")
    run = Path(tempfile.mkdtemp(prefix="taut-slurm-", dir="/tmp"))  # a socket's path is short, pytest's are not
    environment = {
        "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        "SLURM_CONF": str(run / "etc/slurm.conf"),
        "TZ": "UTC",
    }
    cluster = Cluster(run=run, environment=environment)
    try:
        _lay_out(cluster)
        with (run / "etc" / "slurm.conf").open("a") as conf:
            conf.write(more)
        _start(cluster)
        yield cluster
    finally:
        if "slurmctld" in cluster.processes:
            with contextlib.suppress(Exception):
                cluster.command("scancel", "--full", "-u", "root", check=False)
        for made in cluster.processes.values():
            made.send_signal(signal.SIGCONT)
            made.terminate()
        for name in list(cluster.processes):
            cluster.end(name, within_s=3)
        shutil.rmtree(run, ignore_errors=True)


def _lay_out(cluster: Cluster) -> None:
    run = cluster.run
    run.chmod(0o755)
    for name in ("etc", "log", "munge", "state", "spool/n1", "spool/n2", "db", "dev", "home", "gpus"):
        (run / name).mkdir(parents=True)
    (run / "munge").chmod(0o711)
    (run / "home").chmod(0o777)
    key = run / "munge" / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    cluster.kills_for_memory = (CGROUP / "memory.limit_in_bytes").is_file() and os.access(CGROUP, os.W_OK)
    group = cluster.kills_for_memory
    values = {
        "RUN": str(run),
        "HOST": socket.gethostname().partition(".")[0],
        "TRACK": "cgroup" if group else "linuxproc",
        "TASK": "cgroup" if group else "none",
        "GATHER": "cgroup" if group else "linux",
        **{name: str(free_port()) for name in ("CTLD", "DBD", "N1", "N2")},
    }
    for template in HERE.glob("*.in"):
        text = template.read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        target = run / "etc" / template.stem
        target.write_text(text)
        target.chmod(0o600)
    (run / "etc" / "slurm.conf").chmod(0o644)
    write_files(
        run / "etc",
        cluster="taut",
        socket=cluster.socket,
        gpus=run / "gpus",
        program="taut",
        service="http://127.0.0.1:9",
        user="root",
    )
    for number in range(4):
        os.mknod(run / "dev" / f"nvidia{number}", 0o20666, os.makedev(1, 3))  # stand-ins: the numbers of /dev/null


def _start(cluster: Cluster) -> None:
    run = cluster.run
    files = {"key-file": "key", "socket": "s", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munge = [f"--{name}={run}/munge/{file}" for name, file in files.items()]
    cluster.start("munged", tool("munged"), "--foreground", "--force", "--num-threads=2", *munge)
    database = f"{run}/db.sock"
    cluster.command(
        "mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={run}/db", "--skip-test-db",
        "--auth-root-authentication-method=socket",
    )  # fmt: skip
    cluster.start(
        "mariadbd", tool("mariadbd"), "--no-defaults", "--user=root", f"--datadir={run}/db", f"--socket={database}",
        f"--pid-file={run}/db.pid", "--skip-networking", "--innodb-buffer-pool-size=64M",
        "--innodb-lock-wait-timeout=900", "--innodb-log-file-size=64M", "--innodb-flush-log-at-trx-commit=2",
        "--performance-schema=0",
    )  # fmt: skip
    grant = "create database slurm_acct_db; create user slurm@localhost identified by 'x'; "
    grant += "grant all on slurm_acct_db.* to slurm@localhost"
    query = ("mariadb", "-uroot", "-S", database, "-e")
    until(lambda: not cluster.command(*query, "select 'up'", check=False).startswith("ERROR"), what="MariaDB")
    cluster.command(*query, grant)
    cluster.start("slurmdbd", tool("slurmdbd"), "-D", MYSQL_UNIX_PORT=database)
    accounts = ("sacctmgr", "-i")
    until(lambda: "Cluster" in cluster.command(*accounts, "list", "cluster", check=False, within_s=20), what="slurmdbd")
    cluster.command(*accounts, "add", "cluster", "taut")
    cluster.command(*accounts, "add", "account", "research,teaching", "cluster=taut")
    cluster.command(*accounts, "add", "user", "root,nobody,games", "account=research")
    cluster.command(*accounts, "add", "user", "root", "account=teaching")
    cluster.start_controller()
    for name in ("n1", "n2"):
        cluster.start(name, tool("slurmd"), "-D", "-N", name, "-f", cluster.environment["SLURM_CONF"])
    until(cluster.idle, what="two idle nodes")
