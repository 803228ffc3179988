"""How ingest, training, answers and rounds grow with jobs and machines; commands run in a process of their own.

All jobs are made up. Prints processor seconds and peak memory at each size; 10^7 jobs take an hour and 2 GB of disk.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from scheduler_core.reserve import ReservePolicy, Running, admits, free_capacity, reserve
from scheduler_core.round import round_of
from scheduler_core.scene import Scene
from scheduler_core.snapshot import MachineState, QueuedJob, Snapshot
from scheduler_core.types import Request
from tests.benchmarks.harness import Row, amount_row, child, cpu_seconds, measure, parser_of
from tests.benchmarks.made_jobs import write

SIZES: Final = (10_000, 100_000, 1_000_000)
ASKED: Final = 1000
"""Recommendations."""
ROUNDS: Final = 3
ROUND_SIZES: Final = ((1_000, 100), (10_000, 1_000), (100_000, 10_000))
"""Jobs and machines."""
NEWCOMERS: Final = 100


def taut(what: str, folder: Path, *arguments: object) -> Iterator[Row]:
    """Run a command of `taut` on the lake of a folder; yield its CPU seconds and the peak memory of one process."""
    taken = child([Path(sys.executable).with_name("taut"), *arguments, "--lake", folder / "lake"])
    yield amount_row(what, [taken.cpu_s], unit="CPU s")
    yield amount_row(f"{what}: wall time", [taken.seconds], unit="s")
    yield amount_row(f"{what}: peak memory", [taken.peak_mib], unit="MiB")


def ask(file: Path, groups: int) -> None:
    """Write `ASKED` jobs of known groups, for `taut recommend`."""
    kind = {"trace": "made", "task_type": "cv", "user": "u1"}
    request = {"request": {"cpu_cores": 8.0, "mem_gib": 64.0, "gpus": 1.0}}
    rows = [{"job_id": f"new-{n}", **kind, "group": f"train-{5 * (n % groups) + 1}", **request} for n in range(ASKED)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def command_rows(sizes: Sequence[int]) -> Iterator[Row]:
    """Yield what each command takes at each size."""
    with tempfile.TemporaryDirectory() as scratch:
        for jobs in sizes:
            place = Path(scratch) / str(jobs)
            table, mapping = write(place, jobs)
            ingest = ("ingest", "generic", "--mapping", mapping, "--from", table, "--as", "made")
            yield from taut(f"{jobs} jobs: ingest", place, *ingest)
            yield from taut(f"{jobs} jobs: train", place, "train", "--trace", "made")
            list(taut("promote", place, "promote", "--force"))
            ask(place / "asked.jsonl", groups=jobs // 1000)
            yield from taut(f"{jobs} jobs: recommend {ASKED}", place, "recommend", place / "asked.jsonl")


def round_rows() -> Iterator[Row]:
    """Yield the CPU seconds of a scheduler's round and of one of reclaiming at each size."""
    for jobs, machines in ROUND_SIZES:
        placed = [placing_s(jobs, machines) for _ in range(ROUNDS)]
        yield amount_row(f"submit and place {jobs} waiting jobs, {machines} machines", placed, unit="CPU s")
    for jobs, machines in ROUND_SIZES:
        reclaimed = [reclaiming_s(seed, jobs, machines) for seed in range(ROUNDS)]
        yield amount_row(f"reserve for {jobs} running jobs, {machines} machines", reclaimed, unit="CPU s")


def placing_s(jobs: int, count: int) -> float:
    """Time a round on empty machines; each job asks for a GPU, 8 cores and 64 GiB."""
    request = Request(cpu_cores=8.0, mem_gib=64.0, gpus=1.0)
    machines = [Machine(name=f"m{n}", cpu_cores=96.0, mem_gib=512.0, gpus=8) for n in range(count)]

    def placed() -> None:
        queue = tuple(QueuedJob(job_id=str(n), request=request) for n in range(jobs))
        states = tuple(MachineState(machine=machine) for machine in machines)
        round_of(Scene(Snapshot(machines=states, jobs=queue, rules=Discipline())))

    return cpu_seconds(placed)


def reclaiming_s(seed: int, running: int, machines: int) -> float:
    """Time reservations of running jobs drawn at random, free capacity of the machines, and newcomers' admission."""
    rng = np.random.default_rng(seed)
    pairs = (running, 2)
    age_s = rng.uniform(0.0, 7200.0, running)
    known = Running(
        at_s=age_s - rng.uniform(0.0, 90.0, running),
        pressed_s=np.full(pairs, -np.inf),
        count=rng.integers(0, 120, running).astype(np.float64),
        mean=rng.uniform(0.1, 4.0, pairs),
        squares=rng.uniform(0.0, 40.0, pairs),
        recent=rng.uniform(0.1, 4.0, pairs),
        memory=rng.uniform(0.0, 1.0, pairs),
    )
    requests, machine = rng.uniform(1.0, 8.0, (running, 3)), rng.integers(0, machines, running)
    newcomers, ones, policy = rng.uniform(1.0, 8.0, (NEWCOMERS, 2)), np.ones(running), ReservePolicy()
    capacity = np.full(machines, 96.0)
    begin = time.process_time()
    reserved = reserve(requests, known, age_s, np.zeros(running, dtype=np.bool_), policy)
    for at in range(2):
        mean, spread = reserved.mean[:, at], reserved.spread[:, at]
        free = free_capacity(capacity, machine, ones, mean, spread, policy.z)
        variance = np.bincount(machine, weights=spread**2, minlength=machines)
        for newcomer in newcomers[:, at]:
            admits(free, variance, float(newcomer), 0.0, 1, policy.z)
    return time.process_time() - begin


def main(argv: Sequence[str] | None = None) -> None:
    """Run the chosen sizes in order, and print the table."""
    parser = parser_of("scale", __doc__, ["rounds", "commands"])
    parser.add_argument("--jobs", action="append", type=int, metavar="N", help=f"a size (repeatable; {SIZES} if none)")
    options = parser.parse_args(argv)
    sizes = options.jobs or SIZES
    measure({"rounds": round_rows, "commands": lambda: command_rows(sizes)}, options)


if __name__ == "__main__":
    main()
