"""Published measurements of GPU speed and power, in the energy folder (`TAUT_ENERGY`)."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import SourceError
from scheduler_core.types import FloatArray

__all__ = ["ByFrequency", "by_frequency", "gavel_throughputs"]

MOST_BYTES: Final = 64 * 2**20
"""Maximum size of a file; the largest published table has less than half a mebibyte."""

FREQUENCY: Final = "frequency(MHz)"
NODE_TYPES: Final = {
    name: (gpu_type, consolidated)
    for gpu_type in ("p100", "v100")
    for name, consolidated in ((gpu_type, True), (f"{gpu_type}_unconsolidated", False))
}
"""GPU type, and whether GPUs are on as few nodes as possible, by key of the throughput table. K80 is left out, because
its watts were not measured."""

_JOB: Final = re.compile(r"\('(?P<model>[^('\"]+?)(?: \(batch size (?P<batch>\d+)\))?', (?P<gpus>\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ByFrequency:
    """Measured workloads on a V100: speed relative to the highest frequency, and watts (both (W, F)), by `mhz` (F,)."""

    names: tuple[str, ...]
    mhz: FloatArray
    perf: FloatArray
    watts: FloatArray


def by_frequency(folder: Path) -> ByFrequency:
    """Read the tables of speed and power by core frequency."""
    perf, watts = (_wide(folder, f"gpu_frequency/dataset_{name}.csv") for name in ("performance", "power"))
    if perf.columns != watts.columns or perf[FREQUENCY].to_list() != watts[FREQUENCY].to_list():
        raise SourceError(
            "dataset_performance.csv and dataset_power.csv differ, expected the same workloads and frequencies in both"
        )
    return ByFrequency(
        names=tuple(perf[FREQUENCY]),
        mhz=np.array([float(head) for head in perf.columns[1:]]),
        perf=perf.drop(FREQUENCY).to_numpy(),
        watts=watts.drop(FREQUENCY).to_numpy(),
    )


def _wide(folder: Path, name: str) -> pl.DataFrame:
    """Read a table with workloads as rows, and frequencies as columns in ascending order."""
    try:
        read = pl.read_csv(_found(folder, name), schema_overrides={FREQUENCY: pl.String})
        heads = [float(head) for head in read.columns[1:]]
        frame = read.select(FREQUENCY, pl.exclude(FREQUENCY).cast(pl.Float64))
    except (pl.exceptions.PolarsError, ValueError, OSError) as error:
        raise SourceError(f"{name} is not in its format: {str(error).splitlines()[0][:200]}") from error
    whole = frame.select(pl.exclude(FREQUENCY).is_finite() & (pl.exclude(FREQUENCY) > 0.0)).fill_null(value=False)
    if not (len(heads) and heads == sorted(set(heads)) and frame[FREQUENCY].is_unique().all() and len(frame)):
        raise SourceError(f"{name}: expected each workload once, and frequencies that ascend")
    if not whole.to_numpy().all():
        row = int(np.flatnonzero(~whole.to_numpy().all(axis=1))[0])
        raise SourceError(f"{name}, row {row + 2}: expected finite numbers above zero; mend or leave out the row")
    return frame


def gavel_throughputs(folder: Path) -> pl.DataFrame:
    """Return the speeds of jobs that run alone: `model, batch, gpus, gpu_type, consolidated, steps_per_s`.

    `batch` is null for models that were measured with one batch size only. K80 is left out.
    """
    name = "throughput/gavel_throughputs.json"
    try:
        held = json.loads(_found(folder, name).read_bytes())
        rows = [
            {
                **_job(job, name),
                "gpu_type": gpu_type,
                "consolidated": consolidated,
                "steps_per_s": float(speeds["null"]),
            }
            for node, (gpu_type, consolidated) in NODE_TYPES.items()
            for job, speeds in held[node].items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{name} is not in its format: {type(error).__name__} {str(error)[:80]}") from error
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if bad := frame.filter(~(pl.col("steps_per_s").is_finite() & (pl.col("steps_per_s") > 0.0))).rows(named=True):
        raise SourceError(f"{name}: {bad[0]} has no speed above zero; expected one ({len(bad)} such rows)")
    return frame


def _job(key: str, name: str) -> dict[str, object]:
    """Parse a job's key in the table, such as `('ResNet-18 (batch size 16)', 1)`, into model, batch and GPUs."""
    parts = _JOB.fullmatch(key)
    if parts is None:
        raise SourceError(f"{name} names a job {key[:60]!r}, expected the form ('ResNet-18 (batch size 16)', 1)")
    batch = parts["batch"]
    return {"model": parts["model"], "batch": None if batch is None else int(batch), "gpus": int(parts["gpus"])}


def _found(folder: Path, name: str) -> Path:
    path = folder / name
    if not folder.is_dir():
        raise SourceError(
            f"no folder of energy data at {folder}; name it with --energy or TAUT_ENERGY (expected there: {name})"
        )
    if not path.is_file():
        raise SourceError(f"{folder} lacks {name}; expected the measured tables as they were published")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise SourceError(f"{name} has {size} bytes, expected at most {MOST_BYTES}; is it the published table?")
    return path
