"""Full load on one URL: Debian's wrk on a core of its own, eight connections, bodies taken in turn from a file.

A closed loop, so its latencies are those of a server that is never idle; a steady pace is `paced`'s.
Called by the parts of the serving benchmarks that measure throughput.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.serving.processes import CLIENT_CORE, cpu_s

CONNECTIONS: Final = 8
SCRIPT: Final = Path(__file__).with_name("asks.lua")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is asked: a URL, the bodies to send to it, and the process that answers (with those below it)."""

    name: str
    url: str
    bodies: Path
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One round: answers a second, and the processor time that each took, in microseconds.

    The second says what the first would be were nothing else at work on the machine.
    """

    per_s: float
    cpu_us: float


def write_bodies(bodies: Sequence[bytes], place: Path) -> Path:
    """Write one body a line and return the file."""
    if any(b"\n" in body for body in bodies):
        raise SystemExit("a body with a line break in it, expected compact JSON")
    place.write_bytes(b"\n".join(bodies) + b"\n")
    return place


def full_load(target: Target, *, seconds: float) -> Load:
    """Ask for a while, as fast as it is answered; any refused or broken call ends the benchmark.

    Raises
    ------
    SystemExit
        wrk is not installed, or a call was not answered 200.
    """
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed; expected the load generator of that name: apt-get install wrk")
    command = ["taskset", "--cpu-list", str(CLIENT_CORE), "wrk", "--threads", "1"]
    command += ["--connections", str(CONNECTIONS), "--duration", f"{max(1, round(seconds))}s"]
    before = cpu_s(target.pid)
    run = subprocess.run(
        [*command, "--script", str(SCRIPT), target.url, "--", str(target.bodies)],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 60,
    )
    spent = cpu_s(target.pid) - before
    said = [line for line in run.stdout.splitlines() if line.startswith("figures ")]
    if run.returncode or not said:
        raise SystemExit(f"wrk on {target.name} failed: {run.stdout[-500:]}{run.stderr[-500:]}")
    figures = json.loads(said[0].removeprefix("figures "))
    if figures["refused"] or figures["broken"] or not figures["answers"]:
        print(run.stdout, file=sys.stderr)
        raise SystemExit(f"{target.name}: {figures}, expected every call to be answered 200")
    return Load(per_s=figures["answers"] / figures["duration_s"], cpu_us=spent / figures["answers"] * 1e6)
