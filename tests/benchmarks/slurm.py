"""What the connection to Slurm costs a submission, on a real Slurm on loopback.

Latencies are measured in turn with submissions without the agent. Needs root and Slurm.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
import pytest

from modelserve.contract.models import Ready
from tests.benchmarks.harness import Bar, Row, amount_row, benchmark
from tests.modelserve.client.services import ANSWER_ID, Answer, answering, http, serving, silent
from tests.pipelines.connect.slurm.agents import (
    FAULTS,
    ROOT,
    agent_command,
    fake_agent,
    settings_text,
    wait_for_socket,
)
from tests.pipelines.connect.slurm.running import Cluster, running_cluster

BLOCKS, BLOCK = 10, 10
ANSWERED_BARS: Final = (Bar(side="at most", value=20.0), Bar(side="at most", value=50.0))
HANGS_BAR: Final = Bar(side="at most", value=520.0)
OPEN_BAR: Final = Bar(side="at most", value=2.0)
HELD: Final = "JobState=PENDING"
READY: Final = Ready(
    status="ready", generation=1, serving=1, failing=0, models=[], failures={}, mirror=None, store=None
)
SILENT = "function slurm_job_submit() return 0 end function slurm_job_modify() return 0 end return 0\n"


def submission_s(cluster: Cluster) -> float:
    """Return the seconds of one held submission, from the start of sbatch to its end."""
    started = time.perf_counter()
    cluster.submit("-H", "-J", "train", "-n1", "-c8", "--mem=4096M", "-t", "5")
    return time.perf_counter() - started


def timed(cluster: Cluster, script: str, *, first: int, many: int) -> list[float]:
    """Load a script, leave out its first submissions, and time the next."""
    cluster.script.write_text(script)
    cluster.reload()
    for _ in range(first):
        submission_s(cluster)
    return [submission_s(cluster) for _ in range(many)]


def compared(
    cluster: Cluster, what: str, *, first: int, many: int, bars: Sequence[Bar | None], answered: bool = False
) -> Iterator[Row]:
    """Time the plugin in turn with a script without it; yield what it adds to the median and to p99.

    The `first` submissions after each change do not count. With `answered`, each submission must have got an answer.
    """
    plugin = (cluster.run / "plugin.lua").read_text()
    base, with_plugin = list[float](), list[float]()
    for _ in range(BLOCKS):
        base += timed(cluster, SILENT, first=first, many=many)
        with_plugin += timed(cluster, plugin, first=first, many=many)
        waiting = [each for each in cluster.command("scontrol", "-o", "show", "job").splitlines() if HELD in each]
        got = sum(f"AdminComment=taut {ANSWER_ID}" in each for each in waiting)
        assert not answered or got == first + many, f"{got} of {first + many} submissions got an answer"
        cluster.command("scancel", "-u", "root", check=False)
    for name, percent, bar in zip(("median", "p99"), (50, 99), bars, strict=True):
        added_s = np.percentile(with_plugin, percent) - np.percentile(base, percent)
        yield amount_row(f"added, {what}: {name}", [1000 * float(added_s)], unit="ms", bar=bar)


def latency_rows() -> Iterator[Row]:
    """Measure an agent whose service answers, one that hangs, and the time in which the breaker is open."""

    def left_alone(what: str) -> Iterator[Row]:
        return compared(cluster, what, first=3, many=BLOCK, bars=(OPEN_BAR, None))

    with _cluster() as cluster:
        with _agent(cluster, answering()):
            yield from compared(
                cluster, "answered by a service at once", first=1, many=BLOCK, bars=ANSWERED_BARS, answered=True
            )
        with _agent(cluster, silent):
            yield from left_alone("service hangs, the agent's breaker open")
        with fake_agent(cluster.socket, FAULTS["late"]):
            what = "agent hangs, until it is left alone"
            yield from compared(cluster, what, first=0, many=3, bars=(HANGS_BAR, None))
            yield from left_alone("agent hangs, breaker open")
        yield from left_alone("no agent, breaker open")


@contextmanager
def _agent(cluster: Cluster, answer: Answer) -> Iterator[None]:
    config = cluster.run / "bench.toml"
    with serving(answer, without_body=http(READY.model_dump_json().encode())) as service:
        config.write_text(settings_text(service.address))
        cluster.start("agent", *agent_command(config, cluster.socket), PYTHONPATH=str(ROOT))
        try:
            wait_for_socket(cluster.socket)
            yield
        finally:
            cluster.end("agent")


@contextmanager
def _cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        (cluster.run / "plugin.lua").write_text(cluster.script.read_text())
        yield cluster


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print the table; without Slurm, only say so."""
    try:
        benchmark("slurm", __doc__, {"latency": latency_rows}, argv)
    except pytest.skip.Exception as absent:
        print(f"Slurm is not measured: {absent}", file=sys.stderr)


if __name__ == "__main__":
    main()
