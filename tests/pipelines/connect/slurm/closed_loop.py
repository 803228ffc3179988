"""The whole loop on a real Slurm: jobs run, their history trains models, a service and agent shrink the next ones.

Imported by the end-to-end test and the benchmark.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.serving.processes import free_port
from tests.pipelines.connect.slurm.agents import ROOT, agent_command, settings_text, wait_for_socket
from tests.pipelines.connect.slurm.running import Cluster, until

ASKED_MIB, ASKED_CPUS = 4096, 8
GROUPS = {"small": 48, "medium": 96, "large": 160}
"""Median memory that the jobs of each group hold, in MiB."""

WORK = "import time; held = bytearray({size}); held[::4096] = b'x' * len(held[::4096]); time.sleep({seconds})"


IN_TURN = """
import json, sys
from pipelines.cli import app
for words in json.loads(sys.argv[1]):
    if status := app(words, standalone_mode=False):
        sys.exit(status)
"""


def taut(cluster: Cluster, *words: str, check: bool = True, **environment: str) -> str:
    """Run a command of taut; return what it wrote to stdout."""
    return _run(cluster, words, "from pipelines.cli import main; main()", *words, check=check, **environment)


def in_turn(cluster: Cluster, *commands: tuple[str, ...], **environment: str) -> str:
    """Run commands of taut in one process, as loading the libraries takes most of their time."""
    return _run(cluster, commands, IN_TURN, json.dumps(commands), **environment)


def _run(cluster: Cluster, what: object, code: str, *words: str, check: bool = True, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT), **environment},
        cwd=cluster.run / "home",
        timeout=300,
    )
    assert done.returncode == 0 or not check, f"taut {what}: {done.stderr}"
    return done.stdout


def round_of_work(cluster: Cluster, many: int, *, seed: int, pause_s: float = 0.0) -> list[int]:
    """Submit `many` jobs of each group in turn, whose memory varies by a tenth; return their ids."""
    rng, numbers = random.Random(seed), list[int]()
    for _ in range(many):
        numbers += [
            submit_work(cluster, name, mib=round(mib * rng.lognormvariate(0.0, 0.1))) for name, mib in GROUPS.items()
        ]
        time.sleep(pause_s)
    return numbers


def submit_work(
    cluster: Cluster, name: str, *options: str, mib: int, mem_mib: int = ASKED_MIB, seconds: float = 2.5
) -> int:
    """Submit a job that holds memory for a while and asks for far more."""
    code = WORK.format(size=mib * 2**20, seconds=seconds)
    asked = ("-J", name, "-n1", f"-c{ASKED_CPUS}", f"--mem={mem_mib}M", "-t", "10")
    return cluster.submit(*asked, *options, wrap=f'exec {sys.executable} -c "{code}"')


def held_shrunk(cluster: Cluster, name: str, *, mib: int, seconds: float = 2.5) -> int:
    """Submit a job that is shrunk and waits until it is released; on a busy machine some advice comes too late."""
    while True:
        number = submit_work(cluster, name, "-H", mib=mib, seconds=seconds)
        if f"mem {ASKED_MIB}->" in cluster.admin_comment(number):
            return number
        cluster.command("scancel", str(number))


def wait_for_end(cluster: Cluster, numbers: list[int]) -> None:
    """Wait until accounting holds the end of every job; it lags behind the queue."""
    until(lambda: cluster.command("squeue", "-h") == "", within_s=300, what="an empty queue")
    until(lambda: set(numbers) <= ended(cluster).keys(), within_s=60, what="accounting")


def ended(cluster: Cluster) -> Mapping[int, dict[str, str]]:
    """Return the jobs whose end accounting holds: state, memory and CPUs given, admin comment."""
    fields = "JobIDRaw,State,ReqTRES,AdminComment"
    said = cluster.command("sacct", "-a", "-X", "-n", "-P", "-S", "now-1day", "-o", fields)
    rows = [line.split("|") for line in said.splitlines()]
    return {
        int(number): {"state": state, "comment": comment, **dict(each.split("=", 1) for each in tres.split(","))}
        for number, state, tres, comment in rows
        if state.split(" ")[0] not in ("PENDING", "RUNNING", "COMPLETING")
    }


def mib(text: str) -> float:
    """Return memory as Slurm writes it in ReqTRES in MiB."""
    return float(text[:-1]) * {"M": 1, "G": 1024}[text[-1]]


def train(cluster: Cluster, lake: Path, *, many: int = 26, later: int = 0) -> bool:
    """Run `many` jobs of each group, train on the cluster's own history, and promote the models.

    Return whether the gate promoted them. It wants fifty later jobs: `later` more of each group run after the cut.
    Without them, or if the gate refuses, the models are promoted by force. The served bounds of memory are half above
    the prediction.
    """
    # Over several seconds, since the latest submissions are kept for early stopping.
    wait_for_end(cluster, round_of_work(cluster, many, seed=0, pause_s=0.15))
    time.sleep(1.0)  # Slurm's times are whole seconds
    until = datetime.now(UTC)
    if later:
        wait_for_end(cluster, round_of_work(cluster, later, seed=1, pause_s=0.15))
    place = ("--lake", str(lake))
    said = in_turn(
        cluster,
        ("slurm", "history", *place),
        ("train", *place, "--until", f"{until:%Y-%m-%dT%H:%M:%S}"),
        *(() if later else (("promote", "--force", *place),)),
        TAUT_THREADS="1",  # more only wait for each other on so few rows
    )
    assert "usage.slurm.other" in said, said
    if not later:
        return False
    by_gate = "usage.slurm.other" in taut(cluster, "promote", *place, "--format", "json", check=False)
    if not by_gate:
        taut(cluster, "promote", "--force", *place)
    return by_gate


@contextmanager
def enforcing(cluster: Cluster, lake: Path) -> Iterator[str]:
    """Serve the models, and connect the cluster by an agent; yield the service's address."""
    address = f"http://127.0.0.1:{free_port()}"
    code = "from pipelines.cli import main; main()"
    serve = (sys.executable, "-c", code, "serve", "--lake", str(lake), "--port", address.rpartition(":")[2])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TAUT_SERVE_MODE": "enforce"}
    cluster.start("service", *serve, **environment)
    try:
        until(lambda: is_ready(address), within_s=150, what="a ready service")
        config = cluster.run / "loop.toml"
        config.write_text(settings_text(address, least_mem_mib=32))
        cluster.start("agent", *agent_command(config, cluster.socket), PYTHONPATH=str(ROOT))
        wait_for_socket(cluster.socket)
        cluster.reload()
        yield address
    finally:
        for name in ("agent", "service"):
            if name in cluster.processes:
                cluster.end(name)


def is_ready(address: str) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=2) as reply:
            return bool(json.loads(reply.read())["status"] == "ready")
    except (OSError, ValueError, urllib.error.URLError):
        return False
