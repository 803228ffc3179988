"""Rows of Philly's and Helios' tables in their published formats and numbers: plain draws, no model of a cluster.

The PAI tables are `taut synth pai`'s. Written a chunk at a time; called by the benchmark of ingest.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

PHILLY_START: Final = datetime(2017, 8, 7, 12)
MINUTES: Final = 81_071
"""Times 552 machines: the 44.75 million rows of the published GPU table."""

GPUS_OF_MACHINES: Final = (*([2] * 321), *([8] * 231))
"""As in the published machine list: 552 machines, 2490 GPUs."""

PHILLY_HEADERS: Final = {
    "cluster_gpu_util": "time,machineId," + ",".join(f"gpu{i}_util" for i in range(8)),
    "cluster_cpu_util": "time,machine_id,cpu_util",
    "cluster_mem_util": "time,machine_id,mem_total,mem_free",
}
CHUNK_MINUTES: Final = 400
Use = Callable[[np.random.Generator, npt.NDArray[np.int64]], list[pl.Series]]
"""Draws the columns of rows, given the GPUs that each row's machine has."""

HELIOS_JOBS: Final = 3_363_000
CHUNK_ROWS: Final = 200_000


def write_philly(folder: Path, scale: float, seed: int) -> int:
    """Write a job log of one job, the machine list and the GPU table of `scale` times its minutes; return its rows."""
    return _write_philly(folder, scale, seed, {"cluster_gpu_util": _gpu_use})


def write_philly_whole(folder: Path, scale: float, seed: int) -> int:
    """Write all three utilisation tables of `scale` times their minutes; return the rows of each."""
    uses = {"cluster_gpu_util": _gpu_use, "cluster_cpu_util": _cpu_use, "cluster_mem_util": _memory}
    return _write_philly(folder, scale, seed, uses)


def _write_philly(folder: Path, scale: float, seed: int, uses: Mapping[str, Use]) -> int:
    folder.mkdir(parents=True)
    minutes = max(1, round(MINUTES * scale))
    rng = np.random.default_rng(seed)
    job = {"status": "Pass", "vc": "a", "jobid": "j", "attempts": [], "submitted_time": "2017-10-03 00:00:00"}
    (folder / "cluster_job_log").write_text(json.dumps([job | {"user": "u"}]))
    listed = "\n".join(f"m{at},{gpus}, {12 if gpus == 2 else 24}GB" for at, gpus in enumerate(GPUS_OF_MACHINES))
    (folder / "cluster_machine_list").write_text(f"machineId, number of GPUs, single GPU mem\n{listed}\n")
    for name, use in uses.items():
        with (folder / name).open("wb") as out:
            out.write(f"{PHILLY_HEADERS[name]}\n".encode())
            for first in range(0, minutes, CHUNK_MINUTES):
                _minutes(rng, use, first, min(CHUNK_MINUTES, minutes - first)).write_csv(out, include_header=False)
    return minutes * len(GPUS_OF_MACHINES)


def write_helios(folder: Path, scale: float, seed: int) -> int:
    """Write one cluster's job log of `scale` times the published jobs of all; return its rows."""
    place = folder / "All"
    place.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    jobs = max(1, round(HELIOS_JOBS * scale))
    with (place / "cluster_log.csv").open("wb") as out:
        for first in range(0, jobs, CHUNK_ROWS):
            frame = _helios_jobs(rng, first, min(CHUNK_ROWS, jobs - first))
            frame.write_csv(out, include_header=first == 0, datetime_format="%Y-%m-%d %H:%M:%S")
    return jobs


def _minutes(rng: np.random.Generator, use: Use, first: int, minutes: int) -> pl.DataFrame:
    """Draw all machines' rows of some minutes, in the published order: by minute, then by the machine's name."""
    order = sorted(range(len(GPUS_OF_MACHINES)), key=lambda at: f"m{at}")
    names, gpus = pl.Series([f"m{at}" for at in order]), np.array(GPUS_OF_MACHINES)[order]
    times = [(PHILLY_START + timedelta(minutes=first + m)).strftime("%Y-%m-%d %H:%M:%S PDT") for m in range(minutes)]
    time = pl.Series(times).gather(np.repeat(np.arange(minutes), len(order)))
    machine = names.gather(np.tile(np.arange(len(order)), minutes))
    used = use(rng, np.tile(gpus, minutes))
    return pl.DataFrame([c.alias(str(i)) for i, c in enumerate((time, machine, *used))])


def _gpu_use(rng: np.random.Generator, gpus: npt.NDArray[np.int64]) -> list[pl.Series]:
    """Draw use of each GPU that the row's machine has; `NA` stands for the others, and a comma ends the row."""
    rows = pl.DataFrame({"gpus": gpus, **{f"use{i}": _use(rng, len(gpus)) for i in range(8)}})
    used = [
        pl.when(pl.col("gpus") > i).then(pl.col(f"use{i}").cast(pl.String)).otherwise(pl.lit("NA")) for i in range(8)
    ]
    drawn = rows.select(each.alias(f"gpu{i}") for i, each in enumerate(used))
    return [*drawn.get_columns(), pl.Series([None], dtype=pl.String).new_from_index(0, len(gpus))]


def _cpu_use(rng: np.random.Generator, gpus: npt.NDArray[np.int64]) -> list[pl.Series]:
    return [_use(rng, len(gpus))]


def _memory(rng: np.random.Generator, gpus: npt.NDArray[np.int64]) -> list[pl.Series]:
    """Draw total and free memory in KiB: 64 GiB for every GPU up to 256."""
    total = np.minimum(64 * gpus, 256).astype(np.float64) * (1 << 20)
    return [pl.Series(total), pl.Series(np.floor(total * rng.random(len(gpus))))]


def _use(rng: np.random.Generator, rows: int) -> pl.Series:
    """Draw use in percent with up to nine digits, idle in two rows of five."""
    busy = np.round(rng.uniform(0.0, 100.0, rows) / 12, 9) * 12
    return pl.Series(np.round(np.where(rng.random(rows) < 0.4, 0.0, busy), 9))


def _helios_jobs(rng: np.random.Generator, first: int, rows: int) -> pl.DataFrame:
    seconds = np.sort(rng.integers(0, 15_000_000, rows))
    wait, run = rng.integers(0, 4000, rows), rng.integers(1, 90_000, rows)
    start = pl.lit(datetime(2020, 4, 1)) + pl.duration(seconds="submit")
    drawn = pl.DataFrame({"submit": seconds, "wait": wait, "run": run})
    return drawn.select(
        pl.Series("job_id", np.arange(first, first + rows)),
        pl.format("u{}", pl.Series(rng.integers(0, 1000, rows))).alias("user"),
        pl.lit("vc1").alias("vc"),
        pl.Series("gpu_num", rng.choice([0, 1, 2, 4, 8], rows)),
        pl.Series("cpu_num", rng.choice([1, 4, 16, 64], rows)),
        pl.lit(1).alias("node_num"),
        pl.Series("state", rng.choice(["COMPLETED", "FAILED", "CANCELLED"], rows)),
        start.alias("submit_time"),
        (start + pl.duration(seconds="wait")).alias("start_time"),
        (start + pl.duration(seconds=pl.col("wait") + pl.col("run"))).alias("end_time"),
        pl.col("run").alias("duration"),
        pl.col("wait").alias("queue"),
    )
