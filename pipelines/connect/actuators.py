"""Carry out a plan: commands that hold and release Slurm jobs, suspend Kubernetes jobs, and set GPU clocks and limits.

Nothing runs unless `carry_out` is called.
Plans come from `modelserve.calls.plans`.
"""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipelines.errors import BadUsage, SourceError

__all__ = ["ACTUATORS", "Change", "carry_out", "commands_of", "shown"]

LIMIT_S: Final = 60.0

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One job's change: whether it ran before, whether it runs now, and its nodes with the clock of each in MHz.

    The clock is None if the plan sets none. A `suspended` job was stopped while it ran.
    """

    job_id: str
    ran: bool
    runs: bool
    suspended: bool = False
    nodes: Mapping[str, float | None]


def slurm(change: Change) -> list[Command]:
    """Hold or release a waiting job; suspend or resume a running job.

    >>> slurm(Change(job_id="4711", ran=False, runs=True, nodes={"n1": None}))
    [('scontrol', 'release', '4711')]
    """
    if not re.fullmatch(r"[0-9]+([_+][0-9]+)?", change.job_id):
        raise BadUsage(f"job_id {change.job_id[:40]!r}: expected the number of a Slurm job, such as 4711 or 68_149")
    if change.ran:
        return [] if change.runs else [("scontrol", "suspend", change.job_id)]
    if change.suspended:
        return [("scontrol", "resume", change.job_id)] if change.runs else []
    return [("scontrol", "release" if change.runs else "hold", change.job_id)]


def kubernetes(change: Change) -> list[Command]:
    """Suspend a Job of Kubernetes, or resume it; the id is its name, or namespace/name.

    >>> kubernetes(Change(job_id="team/train", ran=True, runs=False, nodes={}))[0][-1]
    '{"spec":{"suspend":true}}'
    """
    namespace, _, name = change.job_id.rpartition("/")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) or not re.fullmatch(r"([a-z0-9][a-z0-9-]*)?", namespace):
        raise BadUsage(f"job_id {change.job_id[:40]!r}: expected the name of a Job, or namespace/name")
    if change.ran == change.runs:
        return []
    patch = json.dumps({"spec": {"suspend": not change.runs}}, separators=(",", ":"))
    where = ("--namespace", namespace) if namespace else ()
    return [("kubectl", *where, "patch", "job", name, "--type=merge", "--patch", patch)]


def nvidia(change: Change) -> list[Command]:
    """Lock the GPU clocks of the nodes of a running job, or unlock them if the plan sets none; for whole nodes.

    >>> nvidia(Change(job_id="a", ran=True, runs=True, nodes={"n-0": 1140.0}))
    [('ssh', 'n-0', 'nvidia-smi', '--lock-gpu-clocks=0,1140')]
    """
    for node in change.nodes:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", node):
            raise BadUsage(f"node {node[:40]!r}: expected a host name")
    if not change.runs:
        return []
    return [
        ("ssh", node, "nvidia-smi", "--reset-gpu-clocks" if mhz is None else f"--lock-gpu-clocks=0,{mhz:.0f}")
        for node, mhz in change.nodes.items()
    ]


ACTUATORS: Final[dict[str, Callable[[Change], list[Command]]]] = {
    "slurm": slurm, "kubernetes": kubernetes, "nvidia": nvidia,
}  # fmt: skip
"""Functions that return the commands of a change by system, in order; none if the system needs none."""


def commands_of(
    name: str, rows: Sequence[Mapping[str, Any]], ran: Collection[str], suspended: Collection[str] = ()
) -> list[Command]:
    """Return the commands that carry out a plan; `ran` are the ids of the jobs that run now.

    Jobs that share a node get the lowest of their clocks there, which draws the least power.
    """
    clocks: dict[str, float | None] = {}
    for row in rows:
        for node in row["nodes"]:
            clocks[node] = min(filter(None, (clocks.get(node), row["mhz"])), default=None)
    changes = [
        Change(
            job_id=row["job_id"],
            ran=row["job_id"] in ran,
            runs=row["gpus"] > 0,
            suspended=row["job_id"] in suspended,
            nodes={node: clocks[node] for node in row["nodes"]},
        )
        for row in rows
    ]
    ordered = sorted(changes, key=lambda change: change.runs)  # stopped jobs make room for those that start
    return list(dict.fromkeys(command for change in ordered for command in ACTUATORS[name](change)))


def shown(command: Command) -> str:
    """Return a command as a line for a shell."""
    return shlex.join(command)


def carry_out(commands: Iterable[Command], *, say: Callable[[str], None]) -> int:
    """Run the commands, and return how many failed; a failure is reported, and the others still run."""
    failed = 0
    for command in commands:
        program = shutil.which(command[0])
        if program is None:
            raise SourceError(f"{command[0]} is not installed here; run this where it is, or leave --apply out")
        done = subprocess.run(  # noqa: S603  # a program of the cluster, without a shell
            [program, *command[1:]], capture_output=True, timeout=LIMIT_S, check=False
        )
        if done.returncode:
            failed += 1
            said = done.stderr.decode(errors="replace").strip().split("\n")[-1]
            say(f"failed: {shown(command)}: {said[:200]}")
    return failed
