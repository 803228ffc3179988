"""Reclaiming on a real Slurm: the room beside a job that claims too much, and what `OverSubscribe` then admits."""

import csv
import io
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from modelserve.client import Client
from pipelines.connect.slurm.reclaim import SlurmReclaimer
from tests.modelserve.running import running
from tests.pipelines.connect.slurm.agents import fake_agent, saying
from tests.pipelines.connect.slurm.closed_loop import taut
from tests.pipelines.connect.slurm.running import Cluster, until

pytestmark = pytest.mark.slow

WORK = """
import time
held = bytearray(100 * 2**20)
held[::4096] = b"x" * len(held[::4096])
while True:
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    time.sleep(0.4)
"""
"""Uses a fifth of a CPU and 100 MiB."""
AGED = timedelta(minutes=7)
"""By which the rounds' clock is ahead: jobs are then past their first minutes."""


@pytest.fixture
def partition(slurm: Cluster) -> Iterator[str]:
    """Yield a partition whose nodes run nothing, and which is as it was afterwards."""
    name, change = "test", ("scontrol", "update", "PartitionName=test")
    with fake_agent(slurm.socket, saying(b"end=1\n")):
        slurm.reload()
        until(slurm.idle, what="two idle nodes")
        yield name
    slurm.command("scancel", "-p", name, "-u", "root")
    slurm.command(*change, "OverSubscribe=NO")
    until(slurm.idle, what="two idle nodes")


def claims(slurm: Cluster, name: str, *, mem: str = "100G") -> int:
    """Submit a job that claims three quarters of the CPUs of n2 and uses a fifth of one."""
    script = slurm.run / "home" / "work.py"
    script.write_text(WORK)
    asked = ("-J", name, "-p", "test", "-w", "n2", "-n1", "-c48", f"--mem={mem}")
    return slurm.submit(*asked, wrap=f"exec {sys.executable} {script}")


def state(slurm: Cluster, number: int) -> str:
    return slurm.job(number)["JobState"]


def test_the_ledger_reports_room_and_oversubscribe_admits_a_second_job_there(
    slurm: Cluster, partition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm.environment[name])
    first = claims(slurm, "first")
    until(lambda: state(slurm, first) == "RUNNING", what="the first job")
    second = claims(slurm, "second")
    until(lambda: slurm.job(second)["Reason"] == "Resources", what="a second job that waits")
    with running(tmp_path) as url, Client(url) as client:
        reclaimer, rows = SlurmReclaimer(client=client, trace="slurm"), []
        until(lambda: reclaimer.round(datetime.now(UTC) + AGED) and reclaimer.ledger.accounts, what="a first sample")
        for _ in range(4):
            time.sleep(2.0)
            rows = reclaimer.round(datetime.now(UTC) + AGED)
        said = taut(slurm, "reclaim", "slurm", "--url", url, "--once", "--lake", "reclaimed/lake", "--format", "csv")

    by_name = {row["name"]: row for row in rows}
    node, waiting = by_name["n2"], by_name[str(second)]
    assert node["cpus_given"] == 48
    assert 0.0 < float(str(node["cpus_reserved"])) < 4.0
    assert 0.2 < float(str(node["mem_reserved_gib"])) < 1.0  # 2.2 times 100 MiB and an interpreter
    assert (waiting["fits_on"], waiting["shares"]) == ("n2", "cpus")
    [at_once] = [row for row in csv.DictReader(io.StringIO(said)) if row["name"] == "n2"]
    assert float(at_once["cpus_reserved"]) == 48.0  # it keeps its request in its first minutes
    assert (slurm.run / "home" / "reclaimed" / "reclaim-slurm.json").stat().st_size > 100

    assert state(slurm, second) == "PENDING"
    slurm.command("scancel", str(first), str(second))
    until(slurm.idle, what="two idle nodes")
    slurm.command("scontrol", "update", f"PartitionName={partition}", "OverSubscribe=FORCE:2")
    beside = [claims(slurm, name) for name in ("again", "beside")]
    until(lambda: [state(slurm, each) for each in beside] == ["RUNNING"] * 2, what="two jobs on the same CPUs")
    assert [slurm.job(each)["NodeList"] for each in beside] == ["n2", "n2"]
    slurm.command("scancel", str(beside[1]))
    large = claims(slurm, "large", mem="450G")
    until(lambda: slurm.job(large)["Reason"] == "Resources", what="a job whose memory is not shared")
