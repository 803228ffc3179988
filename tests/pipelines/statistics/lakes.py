"""Tiny lakes for the tests of statistics: canonical rows in, a folder with Parquet files and a manifest out."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from features.frames import frame_schema
from features.tables import TABLES
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Account, Input, Manifest, Output
from pipelines.lake.views import COLUMNS

T0 = datetime(2020, 7, 1, tzinfo=UTC)  # a Wednesday, 08:00 in Shanghai
Rows = list[dict[str, object]]


def job(at: int, **fields: object) -> dict[str, object]:
    """Return job `at`, submitted in hour `at` after T0; unknown is what is not given."""
    submit = T0 + timedelta(hours=at)
    return {
        "trace": "toy",
        "cluster": "c",
        "job_id": f"j{at:03d}",
        "role": "job",
        "task_type": "other",
        "submit_ts": submit,
        "run_s_censored": False,
        "instances": 1,
    } | fields


def ran(at: int, run_s: float, **fields: object) -> dict[str, object]:
    """Return a job that completed after `run_s`, without a wait unless `queue_s` is given."""
    start = T0 + timedelta(hours=at, seconds=float(str(fields.get("queue_s", 0.0))))
    known = {"start_ts": start, "end_ts": start + timedelta(seconds=run_s), "run_s": run_s, "status": "completed"}
    return job(at, **(known | fields))


def used(at: int, **fields: object) -> dict[str, object]:
    """Return what job `at` used."""
    key = {"trace": "toy", "cluster": "c", "job_id": f"j{at:03d}", "role": "job", "instances_measured": 1}
    return key | fields


def make_lake(
    folder: Path,
    tables: Mapping[str, Rows],
    *,
    trace: str = "toy",
    source: str | None = None,
    zone: str = "UTC",
    raw: Mapping[tuple[str, str], int] | None = None,
) -> Lake:
    """Write the rows of each table, clusters apart, and a manifest that names them.

    `source` is the format they came in, by default the trace's name. `raw` says how many rows each published table
    `(cluster, table)` had; by default one table `log` fed the jobs.
    """
    outputs, clusters = [], set()
    for name, rows in tables.items():
        frame = pl.DataFrame(rows, schema=frame_schema(COLUMNS[name])).with_columns(trace=pl.lit(trace))
        TABLES[name].validate(frame)
        for (cluster,), part in frame.partition_by("cluster", as_dict=True).items():
            path = Path(name) / f"trace={trace}" / f"cluster={cluster}" / "rows.parquet"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            part.write_parquet(folder / path)
            clusters.add(str(cluster))
            size = (folder / path).stat().st_size
            outputs.append(Output(table=name, cluster=str(cluster), path=str(path), rows=part.height, bytes=size))
    counts = raw or {(cluster, "log"): len(tables.get("jobs", [])) for cluster in clusters or {"c"}}
    accounts = [
        Account(
            cluster=cluster,
            table=table,
            file=f"{cluster}/{table}.csv",
            feeds="jobs",
            rows_in=rows,
            rows_good=rows,
            rows_quarantined=0,
            quarantined={},
        )
        for (cluster, table), rows in counts.items()
    ]
    manifest = Manifest(
        trace=trace,
        source=source or trace,
        inputs=tuple(Input(file=str(a.file), bytes=7, sha256="ab" * 32) for a in accounts),
        accounts=tuple(accounts),
        outputs=tuple(outputs),
        warnings=(),
        zone=zone,
    )
    (folder / "manifests").mkdir(parents=True, exist_ok=True)
    (folder / "manifests" / f"{trace}.json").write_text(manifest.to_json())
    return Lake(folder)
