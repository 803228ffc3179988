"""A command in a process of its own: how long it took, and the most memory it and its children held.

What is run is `commands`'; nothing is judged here. Called by `tests.benchmarks.ingest.__main__`.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a command took: wall and processor seconds, peak resident memory, and what it printed."""

    seconds: float
    cpu_s: float
    peak_mib: float
    printed: list[str]


def run(name: str, *arguments: object) -> Taken:
    """Run one of `commands` and wait for it.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    command = [sys.executable, "-m", "tests.benchmarks.ingest.commands", name, *map(str, arguments)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        printed = child.stdout.read().split()
        _, state, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(state)
    seconds = time.perf_counter() - start
    if child.returncode:
        raise RuntimeError(f"{name} ended with {child.returncode}")
    cpu_s = used.ru_utime + used.ru_stime
    return Taken(seconds=seconds, cpu_s=cpu_s, peak_mib=int(printed[-1]) / 1024, printed=printed[:-1])
