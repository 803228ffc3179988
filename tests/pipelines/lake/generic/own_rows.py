"""A small job table of somebody's own, its mapping, and the same rows written in every format that can be read.

What must become of them is the tests' matter. Called by the tests beside it.
"""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import CheckReport, IngestReport, check, ingest
from pipelines.lake.lake import Lake

NAMES: Final = (
    *("JobID", "User", "Name", "Submit", "Start", "End", "Elapsed", "State", "Tres", "CpuTime", "Rss", "Gpu"),
)
Row = tuple[str | None, ...]


def row(nth: int, **changed: str | None) -> Row:
    """Return one finished job of an hour; columns may be changed."""
    day = f"2024-03-{1 + nth % 28:02}"
    told = (
        *(f"{1000 + nth}", f"u{nth % 3}", f"train, {nth % 5}", f"{day}T08:00:00", f"{day}T08:01:00"),
        *(f"{day}T09:01:00", "01:00:00", "COMPLETED", "cpu=8,gres/gpu:a100=2,mem=32G", "02:00:00", "4194304K", "55.5"),
    )
    return tuple((dict(zip(NAMES, told, strict=True)) | changed).values())


ROWS: Final = tuple(row(nth) for nth in range(8))
BAD: Final = {
    "unparsable_submit_ts": row(20, Submit="01.03.2024"),
    "unparsable_status": row(21, State="WEIRD"),
    "missing_key": row(22, JobID=""),
    "no_submit_time": row(23, Submit="Unknown"),
    "end_before_start": row(24, End="2024-02-01T00:00:00"),
    "start_before_submit": row(25, Start="2024-02-01T00:00:00", End=None),
    "unparsable_req_mem_gib": row(26, Tres="cpu=8,mem=lots"),
    "unparsable_used_gpus": row(27, Gpu="often"),
    "negative": row(28, Gpu="-1"),
    "use_beyond_measure": row(29, Gpu="1e12"),
    "request_beyond_measure": row(30, Tres="cpu=8,mem=1000000000T"),
    "job_step": row(31, JobID="1003_4.batch"),
    "duplicate_key": row(0, Rss="1G"),
}
"""A row for each rule, which comes after the good ones."""

COLUMNS: Final = """
[jobs.columns]
job_id = "JobID"
user = "User"
group = "Name"
submit_ts = "Submit"
start_ts = "Start"
end_ts = "End"
run_s = { column = "Elapsed", as = "slurm_time" }
status = { column = "State", as = "slurm_state" }
req_cpu_cores = { column = "Tres", as = "slurm_cpus" }
req_mem_gib = { column = "Tres", as = "slurm_memory" }
req_gpus = { column = "Tres", as = "slurm_gpus" }
gpu_type = { column = "Tres", as = "slurm_gpu_type" }

[usage.columns]
used_cpu_cores = { column = "CpuTime", as = "slurm_time", per = "run_s" }
mem_max_gib = { column = "Rss", as = "slurm_memory" }
used_gpus = { column = "Gpu", unit = "percent" }
"""


def written_as_csv(path: Path, rows: Sequence[Row], delimiter: str = ",") -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([NAMES, *rows])
    path.write_text(out.getvalue(), encoding="utf-8")


def written_as_parquet(path: Path, rows: Sequence[Row]) -> None:
    columns = zip(*rows, strict=True)
    pq.write_table(pa.table({n: pa.array(c, pa.string()) for n, c in zip(NAMES, columns, strict=True)}), path)


WRITERS: Final[dict[str, Callable[[Path, Sequence[Row]], None]]] = {
    "csv": written_as_csv,
    "parquet": written_as_parquet,
}


def mapping_text(form: str, *, more: str = "", columns: str = COLUMNS) -> str:
    """Return the mapping of a file called `jobs` in a format; `more` are settings of its rows."""
    return f'[jobs]\nfile = "jobs"\nformat = "{form}"\n{more}{columns}'


def own_files(place: Path, form: str, rows: Sequence[Row] = ROWS) -> tuple[Path, Path]:
    """Write rows and their mapping; return the folder of the rows, and the mapping's file."""
    folder = place / "from"
    folder.mkdir(parents=True, exist_ok=True)
    WRITERS[form](folder / "jobs", rows)
    mapping = place / "mapping.toml"
    mapping.write_text(mapping_text(form))
    return folder, mapping


def ingest_own(place: Path, source: Path, mapping: Path | str, name: str = "own") -> IngestReport:
    """Ingest own rows into the lake in `place`; `mapping` is a file, or the text of one."""
    opened = opened_source(_mapping_file(place, mapping), source)
    return ingest(opened.source, opened.folder, place / "lake", as_name=name)


def check_own(place: Path, source: Path, mapping: Path | str) -> CheckReport:
    """Check own rows against the lake in `place`."""
    opened = opened_source(_mapping_file(place, mapping), source)
    return check(opened.source, opened.folder, place / "lake", as_name="own")


def _mapping_file(place: Path, mapping: Path | str) -> Path:
    if isinstance(mapping, str):
        (place / "m.toml").write_text(mapping, encoding="utf-8")
    return place / "m.toml" if isinstance(mapping, str) else mapping


def table_of(place: Path, name: str = "jobs") -> pl.DataFrame:
    """Return a table of the lake in `place`, in order of job id."""
    rows = Lake(place / "lake").table(name).collect()
    return rows.sort("job_id") if "job_id" in rows.columns else rows
