"""Measure the jobs and machines of a trace: read the hours that are missing, fold them, and add rows to the lake."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import polars as pl

from features.frames import has_ended
from pipelines.connect.prometheus.dialects import DIALECTS, Dialect, checked_matchers
from pipelines.connect.prometheus.folding import environment, fold, machine_usage, matched_jobs, named_hosts
from pipelines.connect.prometheus.holdings import SKEW_S, attributed, pieces_in, read_holdings, within_runs
from pipelines.connect.prometheus.readings import HOUR_S, READING, read_hour
from pipelines.connect.prometheus.server import Server
from pipelines.errors import BadUsage, LakeError
from pipelines.lake.additions import add_rows
from pipelines.lake.lake import Lake

__all__ = ["Measured", "Wanted", "measure"]

FOLDER: Final = "measured"
"""Folder of the lake with the whole hours that were read: a broken run goes on where it stopped."""

LAG_S: Final = 120.0
"""A job is measured when it ended this long ago by the server's clock: the last scrapes are then stored. An hour
is kept when it ended this long ago."""

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
    over = math.floor((now_s - LAG_S) / HOUR_S)
    reader = _Reader(server=server, dialect=dialect, match=match, folder=folder, holdings=holdings, jobs=jobs)
    found, machines, devices = [], [], []
    for number in range(first, last + 1):
        hour_s = number * HOUR_S
        readings = named_hosts(reader.read(hour_s, whole=number < over))
        if number < over:
            machines.append(machine_usage(readings, hour_s))
            devices.append(environment(readings, hour_s))
        of_jobs = readings.filter(pl.col("job") != "").with_columns(hour_s=pl.lit(hour_s))
        found.append(of_jobs)
        if progress is not None:
            progress(number - first + 1, last - first + 1)
    folded = fold(pl.concat(found), jobs, by_pod=dialect.by_pod, margin_s=SKEW_S if dialect.held else 0.0)
    tables = {"usage": folded.usage, "machine_usage": _joined(machines), "environment": _joined(devices)}
    filled = {name: rows for name, rows in tables.items() if rows.height}
    if filled:
        add_rows(lake, wanted.trace, wanted.cluster, filled)
    return Measured(
        jobs={**folded.counts, "just_ended": waiting},
        rows={name: rows.height for name, rows in tables.items()},
        hours_read=reader.read_now,
        hours_kept=reader.read_before,
        hours_partial=reader.partial,
    )


def _joined(hours: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(hours) if hours else pl.DataFrame()


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Reads hours from their files, or from the server; whole hours are kept."""

    server: Server
    dialect: Dialect
    match: str
    folder: Path
    holdings: pl.DataFrame | None
    jobs: pl.DataFrame
    read_now: int = 0
    read_before: int = 0
    partial: int = 0

    def read(self, hour_s: float, *, whole: bool) -> pl.DataFrame:
        """Return the readings of an hour; only a `whole` one is kept."""
        path, pieces = self._place(hour_s)
        kept = read_kept(path)
        if kept is not None:
            self.read_before += 1
            return kept
        before = self.server.partial
        readings = read_hour(self.server, self.dialect, self.match, hour_s)
        asked = self.server, self.dialect, self.match, hour_s, readings
        if self.holdings is None:
            of_jobs = readings.with_columns(hour_s=pl.lit(hour_s))
            named = matched_jobs(of_jobs, self._ended(hour_s), by_pod=self.dialect.by_pod)
            runs = named.select("job", from_s="start_s", to_s="end_s").unique()
            readings = within_runs(*asked, runs)
        else:
            readings = pl.concat([readings, attributed(*asked, pieces)])
        self.read_now += 1
        if self.server.partial > before:
            self.partial += 1
        elif whole:
            self.folder.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".tmp")  # the file appears whole or not at all
            readings.write_parquet(fresh, compression="zstd")
            fresh.replace(path)
        return readings

    def _ended(self, hour_s: float) -> pl.DataFrame:
        return self.jobs.filter(pl.col("end_s").is_between(hour_s, hour_s + HOUR_S, closed="right"))

    def _place(self, hour_s: float) -> tuple[Path, pl.DataFrame]:
        """Return the file of an hour, and the GPUs held in it, or if series name their jobs, the jobs ended in it."""
        ended = self._ended(hour_s).select("job_id", "start_s", "end_s").sort("job_id")
        pieces = ended if self.holdings is None else pieces_in(self.holdings, hour_s)
        part = f"-{_digest(pieces.write_json())}" if pieces.height or self.holdings is not None else ""
        return self.folder / f"{datetime.fromtimestamp(hour_s, UTC):%Y%m%dT%H}{part}.parquet", pieces


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
    """Return the jobs to measure that had ended by `until_s`, and the number of those that ended later."""
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
    over = jobs.filter(pl.col("end_s") <= until_s).with_row_index("at")
    if over.is_empty():
        raise LakeError(
            f"{wanted.trace}: {jobs.height} jobs ended in the last two minutes by the server's clock; repeat it then"
            if jobs.height
            else f"{wanted.trace} has no job that started and ended in this time; ingest its jobs first"
        )
    return over, jobs.height - over.height
