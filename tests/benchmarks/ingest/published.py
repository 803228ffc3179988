"""Rows of Philly's GPU table in its published format and number: plain draws, no model of a cluster.

The PAI tables are `taut synth pai`'s. Written a chunk at a time.
"""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

PHILLY_START: Final = datetime(2017, 8, 7, 12)
MINUTES: Final = 81_071
"""Times 552 machines: the 44.75 million rows of the published GPU table."""
GPUS_OF_MACHINES: Final = (*([2] * 321), *([8] * 231))
"""As in the published machine list: 552 machines, 2490 GPUs."""
ORDER: Final = sorted(range(len(GPUS_OF_MACHINES)), key=lambda at: f"m{at}")
CHUNK_MINUTES: Final = 400


def write_philly(folder: Path, scale: float, seed: int = 0) -> int:
    """Write a job log of one job, the machine list and the GPU table of `scale` times its minutes; return its rows."""
    folder.mkdir(parents=True)
    minutes, rng = max(1, round(MINUTES * scale)), np.random.default_rng(seed)
    job = {"status": "Pass", "vc": "a", "jobid": "j", "attempts": [], "submitted_time": "2017-10-03 00:00:00"}
    (folder / "cluster_job_log").write_text(json.dumps([job | {"user": "u"}]))
    listed = "\n".join(f"m{at},{gpus}, {12 if gpus == 2 else 24}GB" for at, gpus in enumerate(GPUS_OF_MACHINES))
    (folder / "cluster_machine_list").write_text(f"machineId, number of GPUs, single GPU mem\n{listed}\n")
    with (folder / "cluster_gpu_util").open("wb") as out:
        out.write(f"time,machineId,{','.join(f'gpu{i}_util' for i in range(8))}\n".encode())
        for first in range(0, minutes, CHUNK_MINUTES):
            _minutes(rng, first, min(CHUNK_MINUTES, minutes - first)).write_csv(out, include_header=False)
    return minutes * len(GPUS_OF_MACHINES)


def _minutes(rng: np.random.Generator, first: int, minutes: int) -> pl.DataFrame:
    """Draw all machines' rows of some minutes, in the published order: by minute, then by the machine's name.

    `NA` stands for a GPU that the machine does not have, and a comma ends the row.
    """
    times = [(PHILLY_START + timedelta(minutes=first + m)).strftime("%Y-%m-%d %H:%M:%S PDT") for m in range(minutes)]
    gpus = np.tile(np.array(GPUS_OF_MACHINES)[ORDER], minutes)
    uses = {f"use{i}": _use(rng, len(gpus)) for i in range(8)}
    drawn = pl.DataFrame(
        {
            "time": pl.Series(times).gather(np.repeat(np.arange(minutes), len(ORDER))),
            "machine": pl.Series([f"m{at}" for at in ORDER]).gather(np.tile(np.arange(len(ORDER)), minutes)),
            "gpus": gpus,
            **uses,
        }
    )
    used = [
        pl.when(pl.col("gpus") > i).then(pl.col(name).cast(pl.String)).otherwise(pl.lit("NA")).alias(name)
        for i, name in enumerate(uses)
    ]
    return drawn.select("time", "machine", *used, pl.lit(None, dtype=pl.String).alias("end"))


def _use(rng: np.random.Generator, rows: int) -> pl.Series:
    """Draw use in percent with up to nine digits, idle in two rows of five."""
    busy = np.round(rng.uniform(0.0, 100.0, rows) / 12, 9) * 12
    return pl.Series(np.round(np.where(rng.random(rows) < 0.4, 0.0, busy), 9))
