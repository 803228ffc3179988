"""The report's sections on the traces (jobs, statuses, sizes, machines), their users and groups, and data quality."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import altair as alt
import polars as pl

from pipelines.lake.views import COLUMNS
from pipelines.report.claims import Price, gpu_slack, priced
from pipelines.report.page import NULL
from pipelines.report.panels import (
    BLACK,
    BLUE,
    FAINT,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    counted_in,
    drawn,
    names,
    panel,
    share,
    tips,
    trace_colour,
    trace_dash,
    traces_in,
)
from pipelines.report.parts import Asked, Figure, Note, Part, Section, Table, Traces, known_sum, with_short_names

STATUSES: Final = {
    "completed": GREEN,
    "failed": VERMILLION,
    "cancelled": ORANGE,
    "timeout": PURPLE,
    "node_fail": BLACK,
    "oom": YELLOW,
    "running": BLUE,
    "waiting": SKY,
    "unknown": FAINT,
}
"""Colour of each status, in legend order."""
WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SIZES: Final = ("<1", "1", "2", "3-4", "5-8", "9-16", "17-64", "65+")
MOST_RANKED: Final = 10

_TYPICAL: Final = {"run_time": "p50_s", "queueing_delay": "p50_s", "sizes": "mean_gpus"}
_CONCENTRATION: Final = (
    "trace",
    "users",
    "tasks",
    "mean_tasks",
    "p50_tasks",
    "max_tasks",
    "top_tasks_share",
    "gpu_hours",
    "first_gpu_hours_share",
    "top_gpu_hours_share",
)
_RECURRENCE: Final = ("trace", "jobs", "groups", "recurring_jobs_share", "jobs_in_groups_of_5_share", "again_share")


def overview(traces: Traces) -> Section:
    """Build the overview: a table of facts with a column per trace; job statuses, arrivals, sizes, and machines."""
    status, held = traces.ask("status_counts"), traces.ask("gpu_hours_by_status")
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
    parts += _sizes(traces.ask("gpu_hours_by_status", "size"), traces)
    machines = traces.ask("machine_classes")
    said = "cpu_cores, mem_gib, gpus and gpu_mem_gib (of one GPU) are per machine"
    parts += machines.table("machines", "Classes of machines", said)
    return Section(
        name="overview",
        title="Overview",
        intro="Traces are shown separately; figures never mix them.",
        parts=(*traces.alternatives, *parts, *held.notes, *untold, *machines.notes),
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
        Figure(name=f"sizes_{column}", chart=by_size(rows, column, what, traces.names), rows=rows)
        for column, what in (("jobs_share", "jobs"), ("gpu_hours_share", "GPU-hours"))
        if rows[column].count()
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


def by_status(rows: pl.DataFrame, column: str, what: str, n: str) -> alt.TopLevelMixin:
    """Draw the share of each status, one bar per trace.

    `column` is that of shares and `n` that of counts; `what` names what is shared (jobs or GPU-hours).
    """
    shown = rows.filter(pl.col(column).is_not_null()).select(
        "trace", status=pl.col("status").fill_null("unknown"), share=column, count=n
    )
    there = [name for name in STATUSES if name in shown["status"].to_list()]
    ranks = shown.with_columns(
        rank=pl.col("status").replace_strict({s: i for i, s in enumerate(there)}, return_dtype=pl.Int64)
    )
    chart = drawn(
        ranks,
        "bar",
        x=share(alt.X, "share", f"share of {what}", whole=True),
        y=names("trace", shown),
        color=alt.Color("status:N").title(None).scale(domain=there, range=[STATUSES[name] for name in there]),
        order="rank:Q",
        tooltip=["trace:N", "status:N", *tips(".2%", "share"), "count:Q"],
    )
    unit = "jobs" if n == "jobs" else "GPU jobs, of statuses with known hours"
    height = max(60, 34 * shown["trace"].n_unique())
    return panel(chart, f"Status, share of {what}", [counted_in(shown, "count", unit)], height=height)


def arrivals(rows: pl.DataFrame, unit: str, every: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the share of jobs submitted in each local hour or on each weekday, one line per trace."""
    days = pl.col("weekday").replace_strict(dict(enumerate(WEEKDAYS, start=1)), return_dtype=pl.String)
    at = days if unit == "weekday" else pl.col("hour").cast(pl.String)
    order = list(WEEKDAYS) if unit == "weekday" else [str(hour) for hour in range(24)]
    title = f"local {unit}" if unit == "weekday" else "local hour of the day"
    chart = drawn(
        rows.select("trace", "share", "jobs", at=at),
        "line",
        style={"point": True, "strokeWidth": 2},
        x=alt.X("at:O").title(title).sort(order).axis(labelAngle=0, labelOverlap=True, labelSeparation=5),
        y=share(alt.Y, "share", "share of jobs"),
        color=trace_colour(rows, every, line=True),
        strokeDash=trace_dash(rows, every),
        tooltip=["trace:N", "at:O", *tips(".2%", "share"), "jobs:Q"],
    )
    zones = rows.group_by("trace", maintain_order=True).agg(pl.col("zone").first())
    of = [counted_in(rows, "jobs", "jobs"), "; ".join(f"{trace}: {zone}" for trace, zone in zones.iter_rows())]
    return panel(chart, f"Arrivals by local {unit}", of)


def by_size(rows: pl.DataFrame, column: str, what: str, every: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the share of each job size (GPUs over all instances), with the bars of traces side by side."""
    chart = drawn(
        rows,
        "bar",
        x=alt.X("size:O").title("GPUs of all instances of a job").sort(list(SIZES)).axis(labelAngle=0),
        xOffset=alt.XOffset("trace:N").sort(traces_in(rows)),
        y=share(alt.Y, column, f"share of {what}"),
        color=trace_colour(rows, every),
        tooltip=["trace:N", "size:O", *tips(".2%", column), "gpu_jobs:Q"],
    )
    return panel(chart, f"Size of jobs, share of {what}", [counted_in(rows, "gpu_jobs", "jobs that request GPUs")])


def people(traces: Traces, price: Price | None) -> Section:
    """Build the section: concentration of GPU-hours, recurrence of groups, largest users, owners of most slack.

    Names of users, groups and virtual clusters are shortened.
    """
    groups, users = traces.ask("group_recurrence"), traces.ask("user_concentration")
    said = "top: the 5 % of users with most; first: the user with most"
    parts = users.table("users", "Concentration on users", said, _CONCENTRATION)
    said = "Shares of jobs: in a group of 2 or more jobs, of 5 or more, and not the first of their group (again)"
    parts += groups.table("recurrence", "Recurring jobs", said, _RECURRENCE)
    parts += [part for by in ("user", "vc") for part in _most_hours(traces, by)]
    parts += [table for by in ("user", "group") for table in _slack(traces, by, price)]
    return Section(
        name="people",
        title="Users and groups",
        intro="Names are shortened but stay distinct. Equal names in different clusters are different users or groups.",
        parts=(*parts, *users.notes, *groups.notes),
    )


def _most_hours(traces: Traces, by: str) -> list[Part]:
    """Return a table of the users (or other dimension `by`) with the most GPU-hours of each trace."""
    asked = traces.ask("gpu_hours_by_status", "cluster", by)
    if not asked.rows.width or not asked.rows[by].count():
        return []
    held = Asked(
        rows=asked.rows.filter(pl.col(by).is_not_null())
        .group_by("trace", "cluster", by, maintain_order=True)
        .agg(pl.col("gpu_jobs").sum(), known_sum("gpu_hours"))
        .with_columns(gpu_hours_share=_share("gpu_hours"))
        .filter(pl.col("gpu_hours") > 0),
        reasons=(),
    )
    without = [name for name in asked.traces if name not in held.traces and asked.of(name)[by].count()]
    notes = [
        Note(text=f"{name}: GPU-hours by {by} not available; no {by} has known hours above 0.") for name in without
    ]
    rows = held.first("gpu_hours", ("cluster", by), MOST_RANKED)
    if rows.is_empty():
        return [*notes]
    said = f"Of each trace the {MOST_RANKED} with most, over jobs that request GPUs"
    title = f"Most GPU-hours by {'virtual cluster' if by == 'vc' else by}"
    return [Table(name=f"gpu_hours-by-{by}", title=title, rows=with_short_names(rows), said=said), *notes]


def _slack(traces: Traces, by: str, price: Price | None) -> list[Part]:
    """Return a table of the users or groups with the most GPU slack in each trace."""
    asked = traces.ask("over_claim", "cluster", by)
    if not asked.rows.width:
        return []
    columns = ("trace", "cluster", by, "tasks", "over_claim_share", "requested_h", "slack_h", "slack_share")
    owned = Asked(rows=gpu_slack(asked.rows).filter(pl.col(by).is_not_null()).select(columns), reasons=())
    rows = owned.first("slack_h", ("cluster", by), MOST_RANKED)
    if rows.is_empty():
        return []
    said = f"GPU-hours of measured tasks; of each trace the {MOST_RANKED} {by}s with most slack"
    table = priced(with_short_names(rows), price)
    return [Table(name=f"slack-by-{by}", title=f"GPU slack by {by}", rows=table, said=said)]


_KEYS = ("trace", "cluster", "job_id", "role")


def quality(traces: Traces) -> Section:
    """Build the section on data quality: share of known values per column, ingested files, quarantined rows by rule."""
    files, rules = traces.ask("files").rows, _rules(traces)
    parts: list[Part] = [
        Table(
            name="columns",
            title="Columns of jobs, share of rows with a value",
            rows=_known(traces),
            said=f"{NULL}: no row",
            upright=True,
        ),
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
    """Return one row per trace: the number of its jobs, and for each column the percentage of jobs with a value."""
    columns = [name for name in COLUMNS["jobs"] if name not in _KEYS]
    percent = [(100.0 * pl.col(name).count() / pl.len()).round(1).alias(f"{name} (%)") for name in columns]
    tables = [traces.lake.table("jobs", trace, traces.cluster_of(trace)) for trace in traces.names]
    rows = [table.select(pl.len().alias("jobs"), *percent).collect(engine="streaming") for table in tables]
    return pl.concat(rows).insert_column(0, pl.Series("trace", traces.names))


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
