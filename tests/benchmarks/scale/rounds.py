"""How one round of a scheduler and one round of reclaiming grow with jobs and machines, in processor seconds.

The rounds are those of `tests.benchmarks.scheduling`. Called by `tests.benchmarks.scale`.
"""

import time
from collections.abc import Iterator
from statistics import median
from typing import Final

from scheduler_core.queueing import Discipline
from scheduler_core.types import Job, Request
from tests.benchmarks.scheduling.reclaim import round_s
from tests.benchmarks.scheduling.rounds import timed_round

ROUNDS: Final = 3
SIZES: Final = ((1_000, 100), (10_000, 1_000), (100_000, 10_000))
"""Jobs and machines."""
LARGEST: Final = (1_000_000, 100_000)
"""Only for reclaiming: as objects of Python, so many waiting jobs take minutes."""

Row = dict[str, object]


def round_rows() -> Iterator[Row]:
    """Yield the cost of both rounds at each size; the jobs ask for a GPU, 8 cores and 64 GiB."""
    for jobs, machines in SIZES:
        request = Request(cpu_cores=8.0, mem_gib=64.0, gpus=1.0)
        waiting = [Job(job_id=str(n), trace="made", task_type="cv", request=request) for n in range(jobs)]
        placed = [timed_round(waiting, Discipline(), count=machines).cpu_s for _ in range(ROUNDS)]
        yield {"what": "submit and place waiting jobs", "jobs": jobs, "machines": machines, "cpu_s": median(placed)}
    for jobs, machines in (*SIZES, LARGEST):
        reclaimed = [_cpu_s(seed, jobs, machines) for seed in range(ROUNDS)]
        yield {"what": "reserve for running jobs", "jobs": jobs, "machines": machines, "cpu_s": median(reclaimed)}


def _cpu_s(seed: int, jobs: int, machines: int) -> float:
    began = time.process_time()
    round_s(seed, jobs, machines)
    return time.process_time() - began
