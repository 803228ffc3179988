"""Submissions to a real slurmctld: changed as advised, and exactly as asked under every fault of agent and service."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.modelserve.client.services import Answer, answering, dripping, http, replying, serving, silent
from tests.pipelines.connect.slurm.agents import (
    FAULTS,
    ROOT,
    agent_command,
    fake_agent,
    settings_text,
    wait_for_socket,
)
from tests.pipelines.connect.slurm.running import Cluster, until

pytestmark = pytest.mark.slow

ASKED = ("-J", "train", "-n1", "-c8", "--mem=65536M", "-t", "5")
STANDS = {"NumCPUs": "8", "CPUs/Task": "8", "MinMemoryNode": "64G"}


@contextmanager
def real_agent(slurm: Cluster, service: Answer, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start `taut slurm agent` in front of a service that answers so."""
    config = slurm.run / "slurm.toml"
    with serving(service) as running:
        config.write_text(settings_text(running.address, **settings))
        made = slurm.start("agent", *agent_command(config, slurm.socket), PYTHONPATH=str(ROOT))
        try:
            wait_for_socket(slurm.socket)
            slurm.reload()
            yield made
        finally:
            slurm.end("agent")


def fields(slurm: Cluster, number: int) -> dict[str, str]:
    found = slurm.job(number)
    return {name: found[name] for name in STANDS if name in found}


def check_as_asked(slurm: Cluster, *more: str, jobs: int = 1) -> float:
    """Submit jobs, see that each stands as asked, and return the seconds of the slowest submission."""
    slowest = 0.0
    for _ in range(jobs):
        started = time.monotonic()
        number = slurm.submit(*ASKED, *more)
        slowest = max(slowest, time.monotonic() - started)
        assert fields(slurm, number) == STANDS
        assert slurm.admin_comment(number) == ""
    return slowest


def test_a_batch_job_is_shrunk_runs_and_is_recorded(slurm: Cluster) -> None:
    with real_agent(slurm, answering()):
        said = slurm.command(
            "sbatch", "-W", "-o", "out", *ASKED, "--wrap", "env; srun -c $SLURM_CPUS_PER_TASK printenv SLURM_STEP_ID"
        )
        number = int(said.split("batch job ")[1].split()[0])
    assert fields(slurm, number) == {"NumCPUs": "3", "CPUs/Task": "3", "MinMemoryNode": "4711M"}
    assert slurm.admin_comment(number) == "taut x-1 mem 65536->4711 MiB, cpus-per-task 8->3"
    assert "taut: mem 65536->4711 MiB" in said
    out = (slurm.run / "home" / "out").read_text()
    assert "SLURM_CPUS_PER_TASK=3" in out
    assert out.rstrip().endswith("\n0")


@pytest.mark.parametrize(
    "words",
    [
        ("--exclusive",),
        ("--mem=0",),
        ("--comment=taut=off",),
        ("-n2", "--ntasks-per-node=1", "-N2", "--mincpus=16"),
    ],
)
def test_a_job_that_is_left_alone_keeps_what_it_asked(slurm: Cluster, words: tuple[str, ...]) -> None:
    with fake_agent(slurm.socket, lambda _: None):
        slurm.reload()
        before = slurm.job(slurm.submit("-H", *ASKED, *words))  # held: once a job runs, its fields are what it got
    with real_agent(slurm, answering()):
        after = slurm.job(slurm.submit("-H", *ASKED, *words))
    slurm.command("scancel", "-u", "root", check=False)
    names = ("NumCPUs", "CPUs/Task", "NumNodes") if "--mincpus=16" in words else (*STANDS, "NumNodes")
    assert {name: before.get(name) for name in names} == {name: after.get(name) for name in names}


def test_arrays_and_jobs_by_srun_and_in_parts_run(slurm: Cluster) -> None:
    with real_agent(slurm, answering()):
        array = slurm.submit(*ASKED, "--array=0-4")
        ran = slurm.command("srun", *ASKED[2:], "hostname")
        parts = slurm.command("sbatch", "--parsable", "-o", "/dev/null", "-c4", "--mem=1G", ":", "-c2", "--mem=1G",
                              "--wrap", "true")  # fmt: skip
        until(lambda: slurm.command("squeue", "-h") == "", what="an empty queue")
    assert "taut x-1 mem" in slurm.admin_comment(array)
    assert os.uname().nodename.partition(".")[0] in ran
    number = int(parts.split()[-1])
    assert slurm.job(number)["CPUs/Task"] == "4"


@pytest.mark.parametrize("fault", ["late", "garbage", "killed mid-answer", "absurd"])  # all of them in test_plugin
def test_a_fault_of_the_agent_leaves_submissions_as_asked(slurm: Cluster, fault: str) -> None:
    with fake_agent(slurm.socket, FAULTS[fault]) as came:
        slurm.reload()
        slowest = check_as_asked(slurm, jobs=4)
    assert len(came) == 3  # then the breaker is open
    assert slowest < 2.0


SERVICE_FAULTS: dict[str, Answer] = {"slow": silent, "drips": dripping, "64 MB": replying(http(b" " * 2**26))}
"""Others are those of the agent's own tests."""


@pytest.mark.parametrize("fault", SERVICE_FAULTS)
def test_a_fault_of_the_service_leaves_submissions_as_asked(slurm: Cluster, fault: str) -> None:
    with real_agent(slurm, SERVICE_FAULTS[fault]):
        check_as_asked(slurm, jobs=2)


def _stopped(slurm: Cluster, agent: subprocess.Popen[bytes]) -> None:
    agent.send_signal(signal.SIGSTOP)


def _killed(slurm: Cluster, agent: subprocess.Popen[bytes]) -> None:
    agent.kill()
    agent.wait(timeout=10)


def _socket_gone(slurm: Cluster, agent: subprocess.Popen[bytes]) -> None:
    slurm.socket.unlink()


@pytest.mark.parametrize("fault", [_stopped, _killed, _socket_gone])
def test_an_agent_that_stops_leaves_submissions_as_asked(
    slurm: Cluster, fault: Callable[[Cluster, subprocess.Popen[bytes]], None]
) -> None:
    with real_agent(slurm, answering()) as agent:
        assert fields(slurm, slurm.submit(*ASKED))["NumCPUs"] == "3"
        fault(slurm, agent)
        check_as_asked(slurm, jobs=4)


def test_an_agent_killed_while_it_answers(slurm: Cluster) -> None:
    with real_agent(slurm, silent) as agent:
        sbatch = subprocess.Popen(
            ["sbatch", "--parsable", "-o", "/dev/null", *ASKED, "--wrap", "true"],
            stdout=subprocess.PIPE, text=True, env=slurm.environment, cwd=slurm.run / "home",
        )  # fmt: skip
        time.sleep(0.05)
        agent.kill()
        said, _ = sbatch.communicate(timeout=20)
    assert fields(slurm, int(said)) == STANDS


@pytest.mark.parametrize("what", ["broken", "removed"])
def test_a_script_broken_while_running_leaves_the_last_one(slurm: Cluster, what: str) -> None:
    good = slurm.script.read_text()
    try:
        with real_agent(slurm, answering()):
            assert fields(slurm, slurm.submit(*ASKED))["NumCPUs"] == "3"
            if what == "broken":
                slurm.script.write_text("function slurm_job_submit(")
                slurm.reload()
            else:
                slurm.script.unlink()
            assert fields(slurm, slurm.submit(*ASKED))["NumCPUs"] == "3"
    finally:
        slurm.script.write_text(good)
        slurm.reload()


def test_a_controller_restarts_and_takes_jobs_without_agent_and_service(slurm: Cluster) -> None:
    slurm.end("slurmctld")
    slurm.start_controller()
    until(slurm.idle, what="two idle nodes")
    check_as_asked(slurm, jobs=2)


def test_many_submissions_at_once_are_all_taken_though_the_agent_hangs(slurm: Cluster) -> None:
    with fake_agent(slurm.socket, FAULTS["late"]):
        slurm.reload()
        command = ["sbatch", "--parsable", "-o", "/dev/null", *ASKED, "--wrap", "true"]
        started = time.monotonic()
        running = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=slurm.environment, cwd=slurm.run / "home")
            for _ in range(24)
        ]
        numbers = [int(each.communicate(timeout=30)[0]) for each in running]
        took = time.monotonic() - started
    assert len(set(numbers)) == 24
    assert all(fields(slurm, number) == STANDS for number in numbers)
    assert took < 10.0
