"""The report's sections on the traces (jobs, users, machines, statuses, sizes) and on data quality."""

from functools import partial
from typing import Final

import polars as pl

from pipelines.lake.views import COLUMNS
from pipelines.report.charts.grids import known_columns
from pipelines.report.charts.shares import arrivals, by_size, by_status
from pipelines.report.page import NULL
from pipelines.report.parts import Asked, Figure, Note, Part, Section, Table, Traces, known_sum

_TYPICAL: Final = {"run_time": "p50_s", "queueing_delay": "p50_s", "sizes": "mean_gpus"}


def overview(traces: Traces) -> Section:
    """Build the overview: a table of facts with a column per trace; job statuses, arrivals, sizes, and machines."""
    status, held = traces.ask("status_counts"), traces.ask("gpu_hours_by_status")
    sizes = traces.ask("gpu_hours_by_status", "size")
    parts: list[Part] = [
        Table(
            name="traces",
            title="The traces",
            rows=_facts(traces),
            said="tasks are rows of jobs; a job of PAI has several. Runs and waits in seconds. "
            f"{NULL}: not in the trace",
            upright=True,
        ),
        Figure(name="status_jobs", chart=by_status(status.rows, "share", "jobs", "jobs"), rows=status.rows),
    ]
    if held.rows.width and held.rows["gpu_hours_share"].count():
        chart = by_status(held.rows, "gpu_hours_share", "GPU-hours", "gpu_jobs")
        parts.append(Figure(name="status_gpu_hours", chart=chart, rows=held.rows))
    untold: tuple[Note, ...] = ()
    for unit in ("hour", "weekday"):
        found = traces.ask(f"arrivals_by_{unit}")
        parts += found.figure(f"arrivals_by_{unit}", partial(arrivals, unit=unit, every=traces.names))
        untold += found.notes
    parts += _sizes(sizes, traces)
    machines = traces.ask("machine_classes")
    said = "cpu_cores, mem_gib, gpus and gpu_mem_gib (of one GPU) are per machine"
    parts += machines.table("machines", "Classes of machines", said)
    reasons = (*held.notes, *untold, *machines.notes)
    return Section(
        name="overview",
        title="Overview",
        intro="Traces are shown separately; figures never mix them.",
        parts=(*traces.alternatives, *parts, *reasons),
    )


def _sizes(sizes: Asked, traces: Traces) -> list[Part]:
    """Return charts of job sizes, as shares of jobs and of GPU-hours, over jobs of all statuses."""
    if not sizes.rows.width:
        return []
    rows = (
        sizes.rows.group_by("trace", "size", maintain_order=True)
        .agg(pl.col("gpu_jobs").sum(), known_sum("gpu_hours"))
        .with_columns(jobs_share=_share("gpu_jobs"), gpu_hours_share=_share("gpu_hours"))
    )
    return [
        Figure(name=f"sizes_{share}", chart=by_size(rows, share, what, traces.names), rows=rows)
        for share, what in (("jobs_share", "jobs"), ("gpu_hours_share", "GPU-hours"))
        if rows[share].count()
    ]


def _share(column: str) -> pl.Expr:
    """Return a column divided by its sum over the trace; null if the sum is zero or unknown."""
    whole = pl.col(column).sum().over("trace")
    return pl.when(whole > 0).then(pl.col(column) / whole)


def _facts(traces: Traces) -> pl.DataFrame:
    """Return one row of facts per trace; facts that the trace does not record are null."""
    facts = traces.ask("period").rows.drop("zone")
    for statistic, column in _TYPICAL.items():
        asked = traces.ask(statistic)
        name = column if statistic == "sizes" else f"median_{statistic}_s"
        values = {row["trace"]: row[column] for row in asked.rows.iter_rows(named=True)}
        facts = facts.with_columns(_by_trace(values, pl.Float64).alias(name))
    held, machines = traces.ask("gpu_hours_by_status"), traces.ask("machine_classes")
    return facts.with_columns(
        _by_trace(_sums(held, "gpu_hours"), pl.Float64).alias("gpu_hours"),
        _by_trace(_sums(machines, "machines"), pl.Int64).alias("machines"),
        _by_trace(_sums(machines, "total_gpus"), pl.Int64).alias("machines_gpus"),
    )


def _sums(asked: Asked, column: str) -> dict[str, object]:
    if not asked.rows.width:
        return {}
    known = asked.rows.filter(pl.col(column).is_not_null())
    return {str(trace): value for trace, value in known.group_by("trace").agg(pl.col(column).sum()).iter_rows()}


def _by_trace(values: dict[str, object], dtype: type[pl.DataType]) -> pl.Expr:
    return pl.col("trace").replace_strict(values, default=None, return_dtype=dtype)


_KEYS = ("trace", "cluster", "job_id", "role")


def quality(traces: Traces) -> Section:
    """Build the section on data quality: share of known values per column, ingested files, quarantined rows by rule."""
    known, files = _known(traces), traces.ask("files").rows
    rules = _rules(traces)
    parts: list[Part] = [
        Figure(name="columns", chart=known_columns(known), rows=known),
        Table(
            name="files",
            title="Ingested files",
            rows=files.with_columns(sha256=pl.col("sha256").str.slice(0, 12)),
            said="sha256: the first 12 digits. Without a file: the publisher's table was missing",
        ),
    ]
    if rules.height:
        said = "Rows that broke a rule are kept in the lake's table quarantine"
        parts.append(Table(name="quarantine", title="Quarantined rows by rule", rows=rules, said=said))
    else:
        parts.append(Note(text="No row of these traces was quarantined."))
    warned = [Note(text=f"{name}: {said}") for name in traces.names for said in traces.lake.manifest(name).warnings]
    return Section(
        name="data",
        title="Data quality",
        intro="Ingested rows, quarantined rows, and missing values.",
        parts=(*parts, *warned),
    )


def _known(traces: Traces) -> pl.DataFrame:
    """Return one row per trace and column of `jobs`: number of rows, and share of rows with a value."""
    columns = [name for name in COLUMNS["jobs"] if name not in _KEYS]
    frames = []
    for trace in traces.names:
        counts = traces.lake.table("jobs", trace, traces.cluster_of(trace)).select(
            pl.len().alias("rows"), *(pl.col(c).count() for c in columns)
        )
        rows, *told = counts.collect(engine="streaming").row(0)
        shares = [count / rows if rows else 0.0 for count in told]
        frames.append(pl.DataFrame({"trace": trace, "column": columns, "rows": rows, "known": shares}))
    return pl.concat(frames)


def _rules(traces: Traces) -> pl.DataFrame:
    schema = {"trace": pl.String, "cluster": pl.String, "table": pl.String, "file": pl.String, "rule": pl.String}
    rows = [
        (name, account.cluster, account.table, account.file, rule, count, account.rows_in)
        for name in traces.names
        for account in traces.lake.manifest(name).accounts
        for rule, count in sorted(account.quarantined.items())
        if count
    ]
    return pl.DataFrame(rows, schema=schema | {"rows": pl.Int64, "of_rows": pl.Int64}, orient="row")
