"""Published measurements of GPU speed and power, and hours of recorded grids: the energy folder (`TAUT_ENERGY`)."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from pipelines.errors import BadUsage, SourceError
from pipelines.simulation.energy.grid_files import zone_files
from scheduler_core.planning.hourly import HourlySeries
from scheduler_core.types import FloatArray

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
    values = frame.drop(FREQUENCY).to_numpy()
    if heads != sorted(set(heads)) or not values.size or not (np.isfinite(values) & (values > 0.0)).all():
        raise SourceError(f"{name}: expected frequencies that ascend, and finite numbers above zero")
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


def recorded_hours(folder: Path, zone: str, kind: Literal["carbon", "price"]) -> tuple[HourlySeries, tuple[str, ...]]:
    """Return a zone's series, which repeats so that a run that begins in December may go on, and notes on its files."""
    files = zone_files(folder, zone)
    series = files.carbon if kind == "carbon" else files.price
    if series is None:
        raise BadUsage(f"--zone {zone}: found no file of {kind} in {folder}, expected {kind}_YEAR.csv; add one")
    return series.going_round(), files.notes


def month_of(series: HourlySeries, month: int) -> tuple[float, float]:
    """Return the Unix times at which a month and the next one begin, in the year in which the series begins."""
    year = datetime.fromtimestamp(series.start_s, UTC).year
    begin_ts, end_ts = (datetime(year + at // 12, at % 12 + 1, 1, tzinfo=UTC).timestamp() for at in (month - 1, month))
    if not series.start_s <= begin_ts < end_ts <= series.until_s:
        raise BadUsage(
            f"found {series.unit} without all of {year}-{month:02}, expected hours of the whole year; add files"
        )
    return begin_ts, end_ts
