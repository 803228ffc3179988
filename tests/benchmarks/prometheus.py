"""Time how long jobs take to measure: `python -m tests.benchmarks.prometheus [--jobs 4000 20000]`.

Each job holds one GPU for about half an hour and is scraped every 60 s: utilisation, memory, and power of the GPU. Both
Prometheus and taut run on this machine; the time is that of the whole command, without its start. On a busy machine the
CPU time of both is steadier than the time that passes.
"""

import shutil
import time
import urllib.request
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pipelines.connect.prometheus.measuring import Wanted
from pipelines.connect.prometheus.measuring import measure as measure_use
from pipelines.connect.prometheus.server import open_server
from tests.benchmarks.harness import Bar, Row, amount_row, measure, parser_of
from tests.pipelines.connect.prometheus.live import lake_of, prometheus, write_blocks
from tests.pipelines.connect.prometheus.truth import T0, Job, Series, gpu_labels

HOUR_S = 3600.0
INTERVAL_S = 60.0
RUN_S = 1740.0
GPUS_PER_HOST = 8
JOBS_PER_HOUR = 2
BAR = Bar(side="at most", value=0.3)


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


def timed(jobs: int, gpus: int, rounds: int) -> Iterator[Row]:
    """Measure the jobs anew in each round; yield the times."""
    took_ms, cpu_ms = list[float](), list[float]()
    made, wanted = cluster(jobs, gpus), Wanted(trace="live", cluster="main", dialect="dcgm-job")
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_blocks(folder, series(made))
        with prometheus(folder) as url:
            for _ in range(rounds):
                shutil.rmtree(folder / "lake", ignore_errors=True)
                lake = lake_of(folder / "lake", made)
                with open_server(url) as server:
                    spent, begin = cpu_s(url), time.perf_counter()
                    measured = measure_use(lake, server, wanted).jobs["measured"]
                    took_ms.append(1000 * (time.perf_counter() - begin) / jobs)
                    cpu_ms.append(1000 * (cpu_s(url) - spent) / jobs)
    yield amount_row(f"{jobs} jobs on {gpus} GPUs, {measured} measured", took_ms, unit="ms a job", bar=BAR)
    yield amount_row("the same: CPU of taut and Prometheus", cpu_ms, unit="ms a job")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure each number of jobs, and print the table."""
    parser = parser_of("prometheus", __doc__, ["usage"])
    parser.add_argument("--jobs", type=int, nargs="+", default=[4000, 20_000])
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    sizes = options.jobs
    measure({"usage": lambda: chain.from_iterable(timed(n, options.gpus, options.rounds) for n in sizes)}, options)


if __name__ == "__main__":
    main()
