"""Measure the jobs and machines of a trace: read the hours that are missing, fold them, and add rows to the lake.

Samples of a part of an hour go to the job that ran then. If series name no job, a file of the GPUs held by jobs is
joined by machine and time. Series with names may keep a job's name after its end.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import polars as pl

from features.frames import has_ended
from pipelines.connect.prometheus.dialects import DIALECTS, Dialect, Measure, checked_matchers
from pipelines.connect.prometheus.folding import OF_GPUS, environment, fold, machine_usage, matched_jobs, named_hosts
from pipelines.connect.prometheus.readings import HOUR_S, KEY, READING, interval_of, read_hour, samples_of
from pipelines.connect.prometheus.server import Server
from pipelines.errors import BadUsage, LakeError
from pipelines.lake.ingest import add_rows
from pipelines.lake.lake import Lake

__all__ = ["Measured", "Wanted", "measure"]

FOLDER: Final = "measured"
"""Folder of the lake with the whole hours that were read, so that a broken run continues where it stopped."""

LAG_S: Final = 120.0
"""Seconds from the end of a job or hour (by the server's clock) until its last scrapes count as stored."""

SKEW_S: Final = 5.0
"""Samples within these seconds of a job's start or end do not count: clocks differ, and another job may be near."""

NAMES_AT_ONCE: Final = 50
"""Number of machines or jobs whose samples are read in one query."""

REQUIRED: Final = ("job_id", "machine", "gpu")

Progress = Callable[[int, int], None]
"""Function called with the number of hours done and of all hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to measure: the dialect, the server's series, and the trace, cluster and time of the jobs.

    `since` and `until` select jobs by their end. `held` is the file of GPUs held by jobs, if the dialect needs it.
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
    """The number of jobs by outcome, of rows by table, of hours read now and earlier, and of incomplete hours."""

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
    """Read the measurements of a cluster's ended jobs from the server, and add them to the lake in one commit."""
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
        if self.holdings is None:
            readings = self._within_runs(hour_s, readings)
        else:
            readings = pl.concat([readings, self.attributed(hour_s, readings, pieces)])
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
        """Return an hour's file, and the GPUs held in it; if series name their jobs, the jobs that ended in it."""
        ended = self._ended(hour_s).select("job_id", "start_s", "end_s").sort("job_id")
        pieces = ended if self.holdings is None else pieces_in(self.holdings, hour_s)
        part = f"-{_digest(pieces.write_json())}" if pieces.height or self.holdings is not None else ""
        return self.folder / f"{datetime.fromtimestamp(hour_s, UTC):%Y%m%dT%H}{part}.parquet", pieces

    def attributed(self, hour_s: float, readings: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
        """Return readings of jobs from those of GPUs: a job that held a GPU for the whole hour gets the GPU's reading.

        If jobs changed within the hour, each of the GPU's samples goes to the jobs that held the GPU then.
        """
        of_gpus, place = readings.filter(pl.col("measure").is_in(OF_GPUS)).drop("job"), ["place", "device"]
        whole = pl.col("to_s") - pl.col("from_s") >= HOUR_S
        full = of_gpus.join(pieces.filter(whole).select("job", *place), on=place).select(*READING)
        parts = pieces.filter(~whole).join(of_gpus.select(place).unique(), on=place)
        return pl.concat([full, *self._anew(hour_s, of_gpus["measure"], parts, place)]).pipe(_once)

    def _within_runs(self, hour_s: float, readings: pl.DataFrame) -> pl.DataFrame:
        """Return the readings; GPUs that kept a job's name after its end are read again, from samples of its run."""
        of_jobs = readings.with_columns(hour_s=pl.lit(hour_s))
        named = matched_jobs(of_jobs, self._ended(hour_s), by_pod=self.dialect.by_pod)
        runs = named.select("job", from_s="start_s", to_s="end_s").unique()
        ran_s = pl.col("to_s") - pl.max_horizontal("from_s", pl.lit(hour_s))
        of_gpus = readings.filter(pl.col("measure").is_in(OF_GPUS))
        stale = of_gpus.join(runs, on="job").filter(pl.col("seconds") > ran_s)  # also by one sample, if it is by chance
        kept = readings.join(stale, on=KEY, how="anti")
        parts = runs.join(stale.select("job").unique(), on="job")
        return pl.concat([kept, *self._anew(hour_s, stale["measure"], parts, ["job"])]).pipe(_once)

    def _anew(self, hour_s: float, wanted: pl.Series, parts: pl.DataFrame, on: list[str]) -> Iterator[pl.DataFrame]:
        """Yield the readings of measures from the samples in parts of runs, selected by place or by job."""
        names = parts[on[0]].str.split("/").list.last().unique().sort().to_list()
        for measure in self.dialect.measures:
            if measure.name in wanted:
                labels = measure.place[0] if "place" in on else measure.job[-1]
                for at in range(0, len(names), NAMES_AT_ONCE):
                    some = names[at : at + NAMES_AT_ONCE]
                    samples = samples_of(self.server, measure, self.match, hour_s + HOUR_S, some, labels)
                    yield _of_pieces(samples.drop([] if "job" in on else ["job"]).join(parts, on=on), measure)


def _once(readings: pl.DataFrame) -> pl.DataFrame:
    return readings.unique(KEY, keep="first", maintain_order=True).sort(KEY)


def _of_pieces(samples: pl.DataFrame, measure: Measure) -> pl.DataFrame:
    """Return readings of the samples between `from_s` and `to_s`."""
    if samples.is_empty():
        return pl.DataFrame(schema=READING)
    interval_s = interval_of(samples.drop("from_s", "to_s"))
    inside = pl.col("at_s").is_between("from_s", "to_s")
    return (
        samples.filter(inside)
        .group_by("job", "place", "device", "kind")
        .agg(total=pl.col("value").sum() * interval_s, seconds=pl.len() * interval_s, peak=pl.col("value").max())
        .select(pl.lit(measure.name).alias("measure"), "job", "place", "device", "kind", "total", "seconds", "peak")
        .cast(READING)
    )


def read_holdings(path: Path, jobs: pl.DataFrame) -> pl.DataFrame:
    """Read a CSV file with columns `job_id,machine,gpu` and, optionally, `start,end` in Unix seconds.

    Without times, a job (with `job`, `start_s`, `end_s`) holds its GPUs from its start to its end.
    """
    try:
        rows = pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadUsage(f"--held {path} cannot be read; expected a CSV file of {','.join(REQUIRED)}") from error
    absent = [name for name in REQUIRED if name not in rows.columns]
    if absent:
        raise BadUsage(f"--held {path} has no column {absent[0]}; expected {','.join(REQUIRED)} and perhaps start,end")
    times = [pl.col(name) if name in rows.columns else pl.lit(None).alias(name) for name in ("start", "end")]
    known = rows.select(*REQUIRED, *(each.cast(pl.Float64, strict=False) for each in times))
    held = known.join(jobs.select("job", "start_s", "end_s"), left_on="job_id", right_on="job", how="inner")
    return held.select(
        job="job_id",
        place="machine",
        device="gpu",
        from_s=pl.coalesce("start", "start_s") + SKEW_S,
        to_s=pl.coalesce("end", "end_s") - SKEW_S,
    ).drop_nulls()


def pieces_in(holdings: pl.DataFrame, hour_s: float) -> pl.DataFrame:
    """Return the pieces of holdings within an hour, sorted."""
    cut = holdings.with_columns(
        from_s=pl.col("from_s").clip(lower_bound=hour_s), to_s=pl.col("to_s").clip(upper_bound=hour_s + HOUR_S)
    )
    return cut.filter(pl.col("from_s") < pl.col("to_s")).unique().sort(pl.all())


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
    """Return the jobs to measure that had ended by `until_s`, and the number of jobs that ended later."""
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
