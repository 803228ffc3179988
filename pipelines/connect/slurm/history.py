"""Keep the ended jobs of Slurm clusters as tables of records, and ingest these into the lake.

A record is one run of a job; its key is cluster, id and submission, so windows may overlap. The request is the original
one, also where a job was shrunk. Called by `taut slurm history`.
"""

import csv
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pipelines.connect.slurm.accounting import EndedJob
from pipelines.errors import SourceError
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import ingest

__all__ = ["add_records", "ingest_records", "newest_end"]

COLUMNS: Final = (
    "job_id", "user", "group", "vc", "gpu_type", "submit_ts", "start_ts", "end_ts", "run_s", "status", "instances",
    "req_cpu_cores", "req_mem_gib", "req_gpus", "time_limit_s", "used_cpu_cores", "mem_max_gib",
)  # fmt: skip
"""Columns of a file of records, by their canonical names."""

MAPPING: Final = Path(__file__).with_name("templates") / "history.toml"

Record = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What one cluster's records became: jobs read, of these new ones, and records in all."""

    cluster: str
    read: int
    new: int
    records: int


def add_records(folder: Path, jobs: Iterable[EndedJob]) -> list[Added]:
    """Add jobs to the records in a folder, one file for each cluster; a job that is there is replaced.

    Raises
    ------
    SourceError
        A file of records cannot be read or written.
    """
    found: dict[str, dict[str, Record]] = {}
    for job in jobs:
        found.setdefault(job.cluster, {})[job.job_id] = record_of(job)
    added = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for cluster, records in sorted(found.items()):
            path = folder / f"{cluster}.csv"
            held = _read(path)
            new = len(records.keys() - held.keys())
            held |= records
            _write(path, held)
            added.append(Added(cluster=cluster, read=len(records), new=new, records=len(held)))
    except OSError as error:
        raise SourceError(
            f"records {folder}: {error.strerror}; expected a folder that this user may write to"
        ) from error
    return added


def newest_end(folder: Path) -> datetime | None:
    """Return the latest end in the records of a folder; None without any."""
    ends = [record["end_ts"] for path in sorted(folder.glob("*.csv")) for record in _read(path).values()]
    return datetime.fromisoformat(max(ends)) if ends else None


def ingest_records(folder: Path, lake: Path, trace: str) -> int:
    """Ingest all records into the lake as one trace; return the number of jobs in quarantine.

    Raises
    ------
    SourceError
        The folder holds no records.
    """
    with opened_source(MAPPING, str(folder)) as opened:
        report = ingest(opened.source, opened.folder, lake, as_name=trace)
    return sum(account.rows_quarantined for account in report.manifest.accounts)


def record_of(job: EndedJob) -> Record:
    """Return a job as a record: texts by column, "" if unknown."""
    values: dict[str, object] = {
        "job_id": job.job_id,
        "user": job.user,
        "group": job.group,
        "vc": job.partition,
        "gpu_type": job.gpu_type,
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
        return {row["job_id"]: row for row in csv.DictReader(stream)}


def _write(path: Path, records: dict[str, Record]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(records.values(), key=lambda record: (record["submit_ts"], record["job_id"])))
    part.replace(path)
