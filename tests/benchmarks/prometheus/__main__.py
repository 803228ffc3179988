"""Time how long jobs take to measure: `python -m tests.benchmarks.prometheus [--jobs 4000 20000]`.

Each job holds one GPU for about half an hour and is scraped every 60 s: utilisation, memory, and power of the GPU. Both
Prometheus and taut run on this machine; the time is that of the whole command, without its start. On a busy machine the
CPU time of both is steadier than the time that passes.
"""

import argparse
import os
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pipelines.connect.prometheus.measuring import Wanted, measure
from pipelines.connect.prometheus.server import open_server
from pipelines.render import render
from tests.pipelines.connect.prometheus.live import lake_of, prometheus, write_blocks
from tests.pipelines.connect.prometheus.truth import T0, Job, Series, gpu_labels

HOUR_S = 3600.0
INTERVAL_S = 60.0
RUN_S = 1740.0
GPUS_PER_HOST = 8
JOBS_PER_HOUR = 2
TARGET_MS = 0.3


def cluster(jobs: int, gpus: int) -> list[Job]:
    """Return jobs that follow each other on every GPU, two an hour."""
    made = []
    for number in range(jobs):
        slot, gpu = divmod(number, gpus)
        start = T0 + slot * HOUR_S / JOBS_PER_HOUR + 20
        place = (f"n{gpu // GPUS_PER_HOST}", gpu % GPUS_PER_HOST)
        made.append(Job(job_id=str(100_000 + number), start_s=start, end_s=start + RUN_S, gpus=(place,)))
    return made


def series(jobs: list[Job]) -> Iterator[Series]:
    """Yield the series of the jobs' GPUs."""
    rng = np.random.default_rng(0)
    for job in jobs:
        at = np.arange(job.start_s + 5, job.end_s, INTERVAL_S)
        labels = gpu_labels(*job.gpus[0]) | {"hpc_job": job.job_id}
        for metric, most in (("GPU_UTIL", 100), ("FB_USED", 15_000), ("POWER_USAGE", 300)):
            values = rng.integers(0, most, len(at)).astype(np.float64)
            yield Series(metric=f"DCGM_FI_DEV_{metric}", labels=labels, at_s=at, values=values)


def cpu_s(url: str) -> float:
    """Return the CPU time of this process and of Prometheus together."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    spent = next(line.split()[1] for line in lines if line.startswith("process_cpu_seconds_total"))
    return time.process_time() + float(spent)


def timed(jobs: int, gpus: int, rounds: int) -> dict[str, object]:
    """Measure the jobs anew in each round; return the times."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        made = cluster(jobs, gpus)
        samples = write_blocks(folder, series(made))
        took, cpu, again = [], [], 0.0
        with prometheus(folder) as url:
            for _ in range(rounds):
                shutil.rmtree(folder / "lake", ignore_errors=True)
                lake = lake_of(folder / "lake", made)
                wanted = Wanted(trace="live", cluster="main", dialect="dcgm-job")
                for kept in (False, True):
                    with open_server(url) as server:
                        spent, begin = cpu_s(url), time.perf_counter()
                        found = measure(lake, server, wanted)
                        again = time.perf_counter() - begin
                    if not kept:
                        took.append(again)
                        cpu.append(cpu_s(url) - spent)
    median = float(np.median(took))
    return {
        "jobs": jobs,
        "gpus": gpus,
        "hours": found.hours_kept,
        "samples": samples,
        "measured": found.jobs["measured"],
        "median_s": round(median, 2),
        "slowest_s": round(max(took), 2),
        "ms_per_job": round(1000 * median / jobs, 3),
        "cpu_ms_per_job": round(1000 * float(np.median(cpu)) / jobs, 3),
        "load": round(os.getloadavg()[0], 1),
        "again_s": round(again, 2),
        "target_ms": TARGET_MS,
    }


def main() -> None:
    """Print one row per number of jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[4000, 20_000])
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    render([timed(jobs, options.gpus, options.rounds) for jobs in options.jobs], "table", stream=sys.stdout)


if __name__ == "__main__":
    main()
