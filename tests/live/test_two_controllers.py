"""Two slurmctld that share their state, each with an agent, as docs/slurm.md says; the primary's host dies under load.

The hosts are names in a UTS namespace and addresses of the loopback. Each has a folder of settings of its own.
"""

import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.tools import tool
from tests.modelserve.client.services import answering, serving
from tests.modelserve.running import running
from tests.pipelines.connect.slurm.agents import ROOT, agent_command, settings_text, wait_for_socket
from tests.pipelines.connect.slurm.running import Cluster, running_cluster, until

pytestmark = pytest.mark.live

ASKED = ("-J", "train", "-n1", "-c8", "--mem=65536M", "-t", "5")
ADVISED = "taut x-1 mem 65536->4711 MiB, cpus-per-task 8->3"
BACKUP = "SlurmctldHost=spare(127.0.0.2)\nSlurmctldTimeout=6\nMessageTimeout=10\n"
NAMED = 'hostname spare && mount --bind "$1" /etc/hosts && shift && exec "$@"'
PLUGIN = "JobSubmitPlugins=lua\n"
MAIN = "from pipelines.cli import main; main()"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    """Yield a cluster with a backup controller, and an agent beside each of the two."""
    with running_cluster(BACKUP) as cluster, serving(answering()) as service:
        shutil.copytree(cluster.run / "etc", cluster.run / "spare")
        edit(cluster.run / "spare" / "job_submit.lua", "agent.sock", "spare.sock")
        # On one host, a controller ends the one that its file of the process id names.
        edit(cluster.run / "spare" / "slurm.conf", "slurmctld.pid", "spare.pid")
        edit(cluster.run / "spare" / "slurm.conf", "log/slurmctld", "log/spare")
        (cluster.run / "hosts").write_text("127.0.0.2 spare\n")
        (cluster.run / "agents.toml").write_text(settings_text(service.address))
        for name in ("agent", "spare"):
            path = cluster.run / f"{name}.sock"
            command = agent_command(cluster.run / "agents.toml", path)
            cluster.start(f"beside {path.name}", *command, PYTHONPATH=str(ROOT))
            wait_for_socket(path)
        start_spare(cluster)
        cluster.reload()
        yield cluster


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def start_spare(slurm: Cluster) -> None:
    conf = str(slurm.run / "spare" / "slurm.conf")
    names = ("unshare", "--uts", "--mount", "sh", "-c", NAMED, "spare", str(slurm.run / "hosts"))
    slurm.start("spare", *names, tool("slurmctld"), "-D", "-i", "-f", conf, SLURM_CONF=conf)


def await_controllers(slurm: Cluster, *states: str) -> None:
    """Wait until primary and backup are in these states."""

    def found() -> list[str]:
        return re.findall(r" is (\w+)$", slurm.command("scontrol", "ping", check=False), re.MULTILINE)

    until(lambda: found() == [*states], what=f"controllers that are {states}")


def test_a_backup_takes_over_and_every_submission_is_kept_and_advised(slurm: Cluster) -> None:
    await_controllers(slurm, "UP", "UP")
    numbers, kept = [slurm.submit("-H", *ASKED) for _ in range(5)], slurm.run / "state" / "job_state"
    begun = time.time()
    until(lambda: kept.exists() and kept.stat().st_mtime > begun, what="Slurm's writing of its state")
    for name in ("slurmctld", "beside agent.sock"):
        slurm.processes[name].kill()
        slurm.processes.pop(name).wait(10)

    numbers += [slurm.submit("-H", *ASKED) for _ in range(5)]  # the first waits for the backup

    await_controllers(slurm, "DOWN", "UP")
    assert {number: slurm.admin_comment(number) for number in numbers} == dict.fromkeys(numbers, ADVISED)
    assert len(set(numbers)) == len(numbers)


def test_the_primary_comes_back_and_has_them_all(slurm: Cluster) -> None:
    held = slurm.command("squeue", "-h", "-o", "%i").split()
    slurm.start_controller()
    await_controllers(slurm, "UP", "UP")

    assert set(slurm.command("squeue", "-h", "-o", "%i").split()) == set(held)
    number = slurm.submit("-H", *ASKED)  # its agent is still away
    assert (slurm.job(number)["MinMemoryNode"], slurm.admin_comment(number)) == ("64G", "")


def test_feedback_on_both_counts_a_job_once_and_leaves_what_was_given_back(slurm: Cluster, tmp_path: Path) -> None:
    slurm.end("slurmctld")  # the backup has the agent
    await_controllers(slurm, "DOWN", "UP")
    until(slurm.idle, what="two idle nodes")
    slurm.submit("-W", *ASKED)
    number = slurm.submit(*ASKED, wrap="sleep 300")
    until(lambda: slurm.job(number)["JobState"] == "RUNNING", what="the job's start")
    slurm.command("scontrol", "requeuehold", str(number))
    until(lambda: slurm.job(number)["JobState"] == "PENDING", what="its return to the queue")

    def feedback(host: str, url: str) -> str:
        place = ("--url", url, "--state", str(tmp_path / host))
        return slurm.command(sys.executable, "-c", MAIN, "slurm", "feedback", *place, "--once")

    with running(tmp_path, trace="slurm") as url:
        said = feedback("primary", url)
        assert "since it was requeued" in said, said
        assert "reported 0" not in said
        assert slurm.job(number)["MinMemoryNode"] == "64G"
        slurm.command("scontrol", "update", f"JobId={number}", "MinMemoryNode=1000")
        assert feedback("spare", url).splitlines()[-1] == "reported 0 ended jobs"
    assert slurm.job(number)["MinMemoryNode"] == "1000M"


def test_undo(slurm: Cluster) -> None:
    waiting = slurm.submit("-H", *ASKED)
    slurm.end("beside spare.sock")
    after = slurm.submit("-H", *ASKED)
    assert (slurm.job(after)["MinMemoryNode"], slurm.admin_comment(after)) == ("64G", "")

    for folder in ("etc", "spare"):
        edit(slurm.run / folder / "slurm.conf", PLUGIN, "")
    slurm.end("spare")
    slurm.start_controller()
    start_spare(slurm)
    await_controllers(slurm, "UP", "UP")
    assert slurm.job(slurm.submit("-H", *ASKED))["MinMemoryNode"] == "64G"
    assert slurm.admin_comment(waiting) == ADVISED
    assert slurm.job(waiting)["MinMemoryNode"] == "4711M"
