"""Measure the jobs and machines of a trace: read the hours that are missing, fold them, and add rows to the lake."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import polars as pl

from features.frames import has_ended
from pipelines.connect.prometheus.dialects import DIALECTS, Dialect, checked_matchers
from pipelines.connect.prometheus.folding import environment, fold, machine_usage, named_hosts
from pipelines.connect.prometheus.holdings import SKEW_S, attributed, pieces_in, read_holdings
from pipelines.connect.prometheus.readings import HOUR_S, READING, read_hour
from pipelines.connect.prometheus.server import Server
from pipelines.errors import BadUsage, LakeError
from pipelines.lake.additions import add_rows
from pipelines.lake.lake import Lake

__all__ = ["Measured", "Wanted", "measure"]

FOLDER: Final = "measured"
"""Folder of the lake with the whole hours that were read: a broken run goes on where it stopped."""

LAG_S: Final = 120.0
"""An hour is read when it ended this long ago by the server's clock: the last scrapes are then stored."""

Progress = Callable[[int, int], None]
"""Function called with the number of hours done and of all hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to measure: the dialect, which of the server's series, jobs of which trace, cluster and time.

    `since` and `until` select jobs by their end. `held` is the file of GPUs held, for dialects that need it.
    """

    trace: str
    cluster: str
    dialect: str
    match: str = ""
    since: datetime | None = None
    until: datetime | None = None
    held: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The number of jobs by outcome, rows by table, hours read now and before, and hours that were incomplete."""

    jobs: Mapping[str, int]
    rows: Mapping[str, int]
    hours_read: int
    hours_kept: int
    hours_partial: int


def read_kept(path: Path) -> pl.DataFrame | None:
    """Return the readings of an hour; None if the file is missing or cannot be read."""
    try:
        found = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None
    return found if found.schema == READING else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def measure(lake: Lake, server: Server, wanted: Wanted, progress: Progress | None = None) -> Measured:
    """Read what the server knows of the ended jobs of a cluster, and add it to the lake in one commit."""
    dialect, match = _checked(wanted)
    now_s = server.now()
    jobs, waiting = _ended_jobs(lake, wanted, now_s - LAG_S)
    holdings = None if wanted.held is None else read_holdings(wanted.held, jobs.rename({"job_id": "job"}))
    selection = f"{dialect.name}-{_digest(chr(10).join((server.address, match)))}"
    folder = lake.path / FOLDER / wanted.trace / wanted.cluster / selection
    first = math.floor(float(jobs["start_s"].min()) / HOUR_S)  # type: ignore[arg-type]  # of floats
    last = math.floor(float(jobs["end_s"].max()) / HOUR_S)  # type: ignore[arg-type]  # of floats
    last = min(last, math.floor((now_s - LAG_S) / HOUR_S) - 1)
    reader = _Reader(server=server, dialect=dialect, match=match, folder=folder, holdings=holdings)
    found, machines, devices = [], [], []
    for number in range(first, last + 1):
        hour_s = number * HOUR_S
        readings = named_hosts(reader.read(hour_s))
        machines.append(machine_usage(readings, hour_s))
        devices.append(environment(readings, hour_s))
        of_jobs = readings.filter(pl.col("job") != "").with_columns(hour_s=pl.lit(hour_s))
        found.append(of_jobs)
        if progress is not None:
            progress(number - first + 1, last - first + 1)
    folded = fold(pl.concat(found), jobs, by_pod=dialect.by_pod, margin_s=SKEW_S if dialect.held else 0.0)
    tables = {"usage": folded.usage, "machine_usage": pl.concat(machines), "environment": pl.concat(devices)}
    filled = {name: rows for name, rows in tables.items() if rows.height}
    if filled:
        add_rows(lake, wanted.trace, wanted.cluster, filled)
    return Measured(
        jobs={**folded.counts, "hour_not_over": waiting},
        rows={name: rows.height for name, rows in tables.items()},
        hours_read=reader.read_now,
        hours_kept=reader.read_before,
        hours_partial=reader.partial,
    )


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Reads hours from their files, or from the server; whole hours are kept."""

    server: Server
    dialect: Dialect
    match: str
    folder: Path
    holdings: pl.DataFrame | None
    read_now: int = 0
    read_before: int = 0
    partial: int = 0

    def read(self, hour_s: float) -> pl.DataFrame:
        """Return the readings of an hour."""
        path, pieces = self._place(hour_s)
        kept = read_kept(path)
        if kept is not None:
            self.read_before += 1
            return kept
        before = self.server.partial
        readings = read_hour(self.server, self.dialect, self.match, hour_s)
        if pieces is not None:
            of_jobs = attributed(self.server, self.dialect, self.match, hour_s, readings, pieces)
            readings = pl.concat([readings, of_jobs])
        self.read_now += 1
        if self.server.partial > before:
            self.partial += 1
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".tmp")  # the file appears whole or not at all
            readings.write_parquet(fresh, compression="zstd")
            fresh.replace(path)
        return readings

    def _place(self, hour_s: float) -> tuple[Path, pl.DataFrame | None]:
        """Return the file of an hour, and the GPUs held in it if jobs are known by these."""
        pieces = None if self.holdings is None else pieces_in(self.holdings, hour_s)
        held = "" if pieces is None else f"-{_digest(pieces.write_json())}"
        return self.folder / f"{datetime.fromtimestamp(hour_s, UTC):%Y%m%dT%H}{held}.parquet", pieces


def _checked(wanted: Wanted) -> tuple[Dialect, str]:
    dialect = DIALECTS.get(wanted.dialect)
    if dialect is None:
        raise BadUsage(f"no dialect {wanted.dialect!r}; expected one of {', '.join(DIALECTS)}")
    if dialect.held and wanted.held is None:
        raise BadUsage(f"--dialect {dialect.name} needs --held: a CSV file of the GPUs that each job held")
    if wanted.held is not None and not dialect.held:
        raise BadUsage(f"found --held with --dialect {dialect.name}, whose series name their jobs; leave it out")
    return dialect, checked_matchers(wanted.match)


def _ended_jobs(lake: Lake, wanted: Wanted, until_s: float) -> tuple[pl.DataFrame, int]:
    """Return the ended jobs to measure, and the number of those in an hour that is not over yet."""
    since = wanted.since or datetime.fromtimestamp(0, UTC)
    until = wanted.until or datetime.max.replace(tzinfo=UTC)
    ended = (
        lake.table("jobs", wanted.trace, wanted.cluster)
        .filter(has_ended(), pl.col("start_ts").is_not_null(), pl.col("end_ts").is_between(since, until))
        .collect()
    )
    start_s, end_s = (pl.col(name).dt.epoch("us") / 1e6 for name in ("start_ts", "end_ts"))
    jobs = ended.filter(pl.len().over("job_id") == 1).select(
        "job_id",
        "role",
        "instances",
        "req_gpus",
        "nodes",
        start_s=start_s,
        end_s=end_s,
        elapsed_s=pl.coalesce("run_s", end_s - start_s),
    )
    over = jobs.filter(((pl.col("end_s") / HOUR_S).floor() + 1) * HOUR_S <= until_s).with_row_index("at")
    if over.is_empty():
        raise LakeError(
            f"{wanted.trace} has no job that ended in this time and in an hour that is over; ingest its jobs first"
        )
    return over, jobs.height - over.height
