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
    if heads != sorted(set(heads)) or not heads or frame.is_empty() or not frame[FREQUENCY].is_unique().all():
        raise SourceError(f"{name}: expected each workload once, and frequencies that ascend")
    values = frame.drop(FREQUENCY).to_numpy()
    if wrong := np.flatnonzero(~(np.isfinite(values) & (values > 0.0)).all(axis=1)).tolist():
        raise SourceError(f"{name}, row {wrong[0] + 2}: expected finite numbers above zero; mend or leave out the row")
    return frame


def gavel_throughputs(folder: Path) -> pl.DataFrame:
    """Return the speeds of jobs that run alone: `model, batch, gpus, gpu_type, consolidated, steps_per_s`.

    `batch` is null for models that were measured with one batch size only. K80 is left out.
    """
    name = "throughput/gavel_throughputs.json"
    try:
        held = json.loads(_found(folder, name).read_bytes())
        rows = [
            {**_job(job, name), "gpu_type": gpu_type, "consolidated": consolidated, "steps_per_s": float(each["null"])}
            for node, (gpu_type, consolidated) in NODE_TYPES.items()
            for job, each in held[node].items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{name} is not in its format: {type(error).__name__} {str(error)[:80]}") from error
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if not (frame["steps_per_s"].is_finite() & (frame["steps_per_s"] > 0.0)).all():
        raise SourceError(f"{name}: expected a speed above zero of every job")
    return frame


def _job(key: str, name: str) -> dict[str, object]:
    """Parse a job's key in the table, such as `('ResNet-18 (batch size 16)', 1)`, into model, batch and GPUs."""
    if (parts := _JOB.fullmatch(key)) is None:
        raise SourceError(f"{name} names a job {key[:60]!r}, expected the form ('ResNet-18 (batch size 16)', 1)")
    batch = parts["batch"] and int(parts["batch"])
    return {"model": parts["model"], "batch": batch, "gpus": int(parts["gpus"])}


def _found(folder: Path, name: str) -> Path:
    if not folder.is_dir():
        raise SourceError(
            f"no folder of energy data at {folder}; name it with --energy or TAUT_ENERGY (expected there: {name}); "
            "get them with `taut fetch energy`, then set TAUT_ENERGY=data/raw/energy"
        )
    if not (folder / name).is_file():
        raise SourceError(
            f"{folder} lacks {name}; expected the measured tables as they were published (`taut fetch energy`)"
        )
    return folder / name
