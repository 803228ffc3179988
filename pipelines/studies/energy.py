"""Published measurements of GPU speed and power, and hours of recorded grids: the energy folder (`TAUT_ENERGY`)."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from pipelines.errors import BadUsage, SourceError
from pipelines.simulation.energy.grid_files import zone_files
from pipelines.studies.study import option
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.types import FloatArray

__all__ = ["ByFrequency", "RecordedHours", "by_frequency", "gavel_throughputs", "months_option", "recorded_hours"]

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


def months_option(default: tuple[int, ...], shown: str) -> tuple[int, ...]:
    """Declare `--months`, the months of the year in which simulations start."""
    return option(
        default,
        name="--months",
        help="Month in which simulations start, 1 to 12 (may be repeated).",
        minimum=1,
        maximum=12,
        shown=shown,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedHours:
    """A zone's series of `kind`, and the first moments of the chosen months `starts_ts` and of the months after them.

    The series repeats, so that a run that starts in December may go on; every chosen month itself is covered.
    """

    zone: str
    series: HourlySeries
    starts_ts: FloatArray
    ends_ts: FloatArray
    notes: tuple[str, ...]

    def drawn_ts(self, rng: np.random.Generator) -> float:
        """Draw the Unix time of one hour of the chosen months, all equally likely."""
        hours = ((self.ends_ts - self.starts_ts) / HOUR_S).astype(np.int64)
        hour = int(rng.integers(hours.sum()))
        month = int(np.searchsorted(np.cumsum(hours), hour, side="right"))
        return float(self.starts_ts[month]) + HOUR_S * (hour - int(hours[:month].sum()))


def recorded_hours(
    folder: Path,
    zones: Sequence[str],
    kind: Literal["carbon", "price"],
    *,
    year: int | None,
    months: Sequence[int],
) -> list[RecordedHours]:
    """Read a series of every zone, and check that it covers the months of the year; without both, use all its hours."""
    found: list[RecordedHours] = []
    for zone in dict.fromkeys(zones):
        files = zone_files(folder, zone)
        series = files.carbon if kind == "carbon" else files.price
        if series is None:
            raise BadUsage(f"--zone {zone}: found no file of {kind} in {folder}, expected {kind}_YEAR.csv; add one")
        year = year or (datetime.fromtimestamp(series.start_s, UTC).year if months else None)
        starts_ts, ends_ts = _months(year, months) if year else (np.array([series.start_s]), np.array([series.until_s]))
        if (starts_ts < series.start_s).any() or (ends_ts > series.until_s).any():
            first, last = (datetime.fromtimestamp(ts, UTC) for ts in (series.start_s, series.until_s))
            wanted = f"months {', '.join(map(str, sorted(set(months))))} of {year}" if months else f"year {year}"
            raise BadUsage(
                f"--zone {zone}: found {kind} from {first:%Y-%m-%d} to {last:%Y-%m-%d}, expected all of the {wanted}; "
                "choose --year and --months, or add files"
            )
        found.append(
            RecordedHours(
                zone=zone,
                series=series.going_round(),
                starts_ts=starts_ts,
                ends_ts=ends_ts,
                notes=files.notes,
            )
        )
    return found


def _months(year: int, months: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Return the Unix times at which the months begin, and those at which the months after them do; all by default."""
    chosen = sorted(set(months)) or range(1, 13)
    begins = [(year, month) for month in chosen]
    ends = [(year + month // 12, month % 12 + 1) for month in chosen]
    starts_ts, ends_ts = (
        np.array([datetime(*each, 1, tzinfo=UTC).timestamp() for each in moments]) for moments in (begins, ends)
    )
    return starts_ts, ends_ts
