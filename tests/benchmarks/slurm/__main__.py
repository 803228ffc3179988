"""What the connection to Slurm costs a submission, and what it frees, on a real Slurm on loopback.

Latencies are measured in turn with submissions that ask nobody. Needs root and Slurm; nothing passes or fails.
Run by hand: `python -m tests.benchmarks.slurm`, or with `--only latency` or `--only loop --jobs 200`.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles

import pytest

from pipelines.render import render
from tests.modelserve.client.services import Answer, answering, serving, silent
from tests.pipelines.connect.slurm.agents import (
    FAULTS,
    ROOT,
    agent_command,
    fake_agent,
    settings_text,
    wait_for_socket,
)
from tests.pipelines.connect.slurm.closed_loop import (
    ASKED_CPUS,
    ASKED_MIB,
    GROUPS,
    ended,
    enforcing,
    mib,
    round_of_work,
    train,
    wait_for_end,
)
from tests.pipelines.connect.slurm.running import Cluster, running_cluster

BLOCKS, BLOCK = 10, 10
SILENT = "function slurm_job_submit() return 0 end function slurm_job_modify() return 0 end return 0\n"

Row = dict[str, object]


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


def compared(cluster: Cluster, what: str, *, first: int, many: int, blocks: int) -> Row:
    """Time the plugin in turn with a script that asks nobody; `first` submissions after each change do not count."""
    plugin = (cluster.run / "plugin.lua").read_text()
    base: list[float] = []
    with_plugin: list[float] = []
    for _ in range(blocks):
        base += timed(cluster, SILENT, first=first, many=many)
        with_plugin += timed(cluster, plugin, first=first, many=many)
        cluster.command("scancel", "-u", "root", check=False)
    row = {"what": what, "submissions": len(with_plugin), "base_p50_ms": 1000 * median(base)}
    shares: dict[str, Callable[[Sequence[float]], float]] = {"p50": median, "p99": _p99, "max": max}
    return row | {f"added_{name}_ms": 1000 * (share(with_plugin) - share(base)) for name, share in shares.items()}


def latency_rows(cluster: Cluster) -> Iterator[Row]:
    """Measure an agent whose service answers, one that hangs, and the time in which the breaker is open."""
    with _agent(cluster, answering()):
        yield compared(cluster, "answered by a service that knows at once", first=1, many=BLOCK, blocks=BLOCKS)
    with _agent(cluster, silent):
        yield compared(cluster, "service hangs, the agent's breaker open", first=3, many=BLOCK, blocks=BLOCKS)
    with fake_agent(cluster.socket, FAULTS["late"]):
        yield compared(cluster, "agent hangs, until it is left alone", first=0, many=3, blocks=BLOCKS)
        yield compared(cluster, "agent hangs, breaker open", first=3, many=BLOCK, blocks=BLOCKS)
    yield compared(cluster, "no agent, breaker open", first=3, many=BLOCK, blocks=BLOCKS)


def loop_rows(cluster: Cluster, jobs: int) -> list[Row]:
    """Train on the cluster's own history, then submit jobs of the same groups in mode enforce."""
    lake = cluster.run / "home" / "lake"
    by_gate = train(cluster, lake, many=60, later=25)
    with enforcing(cluster, lake):
        numbers = round_of_work(cluster, jobs // len(GROUPS), seed=9)
        wait_for_end(cluster, numbers)
        render(
            [compared(cluster, "answered by taut serve", first=1, many=BLOCK, blocks=BLOCKS)],
            "table",
            stream=sys.stdout,
        )
    rows = [ended(cluster)[number] for number in numbers]
    return [
        {
            "jobs": len(rows),
            "promoted_by": "the gate" if by_gate else "force",
            "mem_share": sum(mib(row["mem"]) for row in rows) / (ASKED_MIB * len(rows)),
            "cpu_share": sum(int(row["cpu"]) for row in rows) / (ASKED_CPUS * len(rows)),
            "killed_for_memory": sum(row["state"] == "OUT_OF_MEMORY" for row in rows),
            "completed": sum(row["state"] == "COMPLETED" for row in rows),
        }
    ]


@contextmanager
def _agent(cluster: Cluster, answer: Answer) -> Iterator[None]:
    config = cluster.run / "bench.toml"
    with serving(answer) as service:
        config.write_text(settings_text(service.address))
        cluster.start("agent", *agent_command(config, cluster.socket), PYTHONPATH=str(ROOT))
        try:
            wait_for_socket(cluster.socket)
            yield
        finally:
            cluster.end("agent")


def _p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100, method="inclusive")[98]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the parts asked for, and print their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("latency", "loop"))
    parser.add_argument("--jobs", type=int, default=200)
    options = parser.parse_args(arguments)
    try:
        _measure(options.only, options.jobs)
    except pytest.skip.Exception as absent:
        print(f"Slurm is not measured: {absent}", file=sys.stderr)


def _measure(only: str | None, jobs: int) -> None:
    if only != "loop":
        with running_cluster() as cluster:
            _keep_plugin(cluster)
            render(list(latency_rows(cluster)), "table", stream=sys.stdout)
    if only != "latency":
        with running_cluster() as cluster:
            _keep_plugin(cluster)
            render(loop_rows(cluster, jobs), "table", stream=sys.stdout)


def _keep_plugin(cluster: Cluster) -> None:
    (cluster.run / "plugin.lua").write_text(cluster.script.read_text())


if __name__ == "__main__":
    main()
