"""Keep the ended jobs of Slurm clusters as tables of records, and ingest these into the lake.

A record is one run of a job; its key is cluster, id and submission (`run`), so periods may overlap. It has the original
request, also if the job was shrunk. Reading and ingesting may be on two hosts: reading needs Slurm's commands, and
ingesting needs the libraries of the lake, which are imported late.
"""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Final, Literal

from pipelines.connect.files import replace_text
from pipelines.connect.slurm.accounting import EndedJob, read_jobs
from pipelines.connect.slurm.commands import INTERVAL_S, jobs_between, sampling_interval_s
from pipelines.errors import SourceError

__all__ = ["update"]

COLUMNS: Final = (
    "run", "job_id", "user", "name", "group", "vc", "gpu_type", "submit_ts", "start_ts", "end_ts", "run_s", "status",
    "instances", "req_cpu_cores", "req_mem_gib", "req_gpus", "time_limit_s", "used_cpu_cores", "mem_max_gib",
)  # fmt: skip
"""Columns of a file of records: its key, then the canonical columns."""

FIRST, OVERLAP = timedelta(days=30), timedelta(days=1)
CLUSTER: Final = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
MAPPING: Final = Path(__file__).with_name("templates") / "history.toml"

Record = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What one cluster's records became: jobs read, of these new ones, and records in all.

    `recurring` is the share of records with others of their group, `spread` how far the peak memory of a group varies;
    `*_by_name` are the same if jobs with other names shared no group (`recurrence`).
    """

    cluster: str
    read: int
    new: int
    records: int
    recurring: float
    recurring_by_name: float
    spread: float | None
    spread_by_name: float | None


def update(
    folder: Path,
    lake: str | Path,
    *,
    trace: str,
    since: datetime | None,
    told: tuple[str, str] | None,
    interval_s: float | None,
    only: Literal["read", "ingest"] | None,
) -> tuple[list[Added], int]:
    """Add ended jobs to the records in a folder and ingest all records; return the numbers added and quarantined.

    Parameters
    ----------
    since
        Read jobs that ended since then; by default since a day before the newest record, or for 30 days.
    told
        Text to read instead of running `sacct`, and the name of the cluster if the text has none.
    interval_s
        Seconds between two samples of use; None means slurmctld's setting, or Slurm's default for a text.
    only
        The part to do; None does both.
    """
    if only != "read":
        from pipelines.lake.ingest import check_trace_name

        check_trace_name(trace)
    added = [] if only == "ingest" else _read_ended(folder, since, told, interval_s)
    return added, ingest_records(folder, lake, trace) if (added and only is None) or only == "ingest" else 0


def _read_ended(
    folder: Path, since: datetime | None, told: tuple[str, str] | None, interval_s: float | None
) -> list[Added]:
    if told is not None:
        every_s = INTERVAL_S if interval_s is None else interval_s
        jobs = read_jobs(told[0], cluster=told[1], interval_s=every_s)
    else:
        now, newest = datetime.now(UTC), newest_end(folder)
        begin = since or (now - FIRST if newest is None else newest - OVERLAP)
        jobs = jobs_between(begin, now, interval_s=sampling_interval_s() if interval_s is None else interval_s)
    return add_records(folder, jobs)


def add_records(folder: Path, jobs: Iterable[EndedJob]) -> list[Added]:
    """Add jobs to the records in a folder, one file for each cluster; an existing record of a job is replaced."""
    found: dict[str, dict[str, Record]] = {}
    for job in jobs:
        found.setdefault(job.cluster, {})[job.run_id] = record_of(job)
    for name in found:
        if not CLUSTER.fullmatch(name):
            raise SourceError(f"cluster {name[:60]!r}: expected letters, digits and ._- only, as ClusterName")
    added = []
    try:
        if found:
            folder.mkdir(parents=True, exist_ok=True)
        for cluster, records in sorted(found.items()):
            path = folder / f"{cluster}.csv"
            held = _read(path)
            new = len(records.keys() - held.keys())
            held |= records
            _write(path, held)
            recurring, spread = recurrence(held.values(), lambda record: record["group"])
            by_name, spread_by_name = recurrence(held.values(), lambda record: f"{record['group']}\n{record['name']}")
            added.append(
                Added(
                    cluster=cluster, read=len(records), new=new, records=len(held), recurring=recurring, spread=spread,
                    recurring_by_name=by_name, spread_by_name=spread_by_name,
                )
            )  # fmt: skip
    except OSError as error:
        raise SourceError(
            f"records {folder}: {error.strerror}; expected a folder that this user may write to"
        ) from error
    return added


def recurrence(records: Iterable[Record], key: Callable[[Record], str]) -> tuple[float, float | None]:
    """Return the share of records that share their key with others, and how far the peak memory of a key varies.

    The second is a key's largest peak over its median: the median over keys with two or more measured runs.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record["mem_max_gib"])
    peaks = [[float(each) for each in group if each] for group in groups.values()]
    ratios = [max(each) / median(each) for each in peaks if len(each) > 1 and median(each) > 0.0]
    recurring = sum(len(group) for group in groups.values() if len(group) > 1)
    return recurring / sum(map(len, groups.values())), median(ratios) if ratios else None


def newest_end(folder: Path) -> datetime | None:
    """Return the latest end in the records of a folder; None without any."""
    ends = [record["end_ts"] for path in sorted(folder.glob("*.csv")) for record in _read(path).values()]
    return datetime.fromisoformat(max(ends)) if ends else None


def ingest_records(folder: Path, lake: str | Path, trace: str) -> int:
    """Ingest all records into the lake as one trace; return the number of jobs in quarantine."""
    from pipelines.lake.generic.opening import opened_source
    from pipelines.lake.ingest import ingest

    opened = opened_source(MAPPING, folder)
    report = ingest(opened.source, opened.folder, lake, as_name=trace)
    return sum(account.rows_quarantined for account in report.manifest.accounts)


def record_of(job: EndedJob) -> Record:
    """Return a job as a record: texts by column, "" if unknown."""
    values: dict[str, object] = {
        **job.names,
        "name": job.name,
        "run": job.run_id,
        "job_id": job.job_id,
        "submit_ts": _written(job.submit),
        "start_ts": _written(job.start),
        "end_ts": _written(job.end),
        "run_s": job.run_s if job.start is not None else None,
        "status": str(job.status),
        "instances": job.instances,
        "req_cpu_cores": job.asked.cpu_cores,
        "req_mem_gib": job.asked.mem_gib,
        "req_gpus": job.asked.gpus,
        "time_limit_s": job.time_limit_s,
        "used_cpu_cores": job.use.taught_cpu_cores,
        "mem_max_gib": job.use.taught_mem_gib,
    }
    return {name: "" if values[name] is None else str(values[name]) for name in COLUMNS}


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")


def _read(path: Path) -> dict[str, Record]:
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as stream:
        return {row["run"]: row for row in csv.DictReader(stream)}


def _write(path: Path, records: dict[str, Record]) -> None:
    """Write records; the runs of a requeued job get the run as id, since the lake takes an id once."""
    runs = Counter(record["run"].partition("@")[0] for record in records.values())
    for record in records.values():
        number = record["run"].partition("@")[0]
        record["job_id"] = record["run"] if runs[number] > 1 else number
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(records.values(), key=lambda record: (record["submit_ts"], record["run"])))
    replace_text(path, text.getvalue())
