"""The section on the data itself: files read, rows quarantined by rule, warnings, columns that are told.

Called by `pipelines.report.report`.
"""

import polars as pl

from pipelines.lake.lake import COLUMNS
from pipelines.report.charts.grids import known_columns
from pipelines.report.parts import Figure, Note, Part, Section, Table, Traces

_KEYS = ("trace", "cluster", "job_id", "role")


def quality(traces: Traces) -> Section:
    """Return which share of jobs tells each column, the files that were read, and what was quarantined and why."""
    known, files = _known(traces), traces.ask("files").rows
    rules = _rules(traces)
    parts: list[Part] = [
        Figure(name="columns", chart=known_columns(known), rows=known),
        Table(
            name="files",
            title="Files that were read",
            rows=files.with_columns(sha256=pl.col("sha256").str.slice(0, 12)),
            said="sha256: the first 12 digits. Without a file: the publisher's table was not there",
        ),
    ]
    if rules.height:
        said = "Rows that broke a rule were set aside, not dropped: table quarantine of the lake"
        parts.append(Table(name="quarantine", title="Quarantined rows by rule", rows=rules, said=said))
    else:
        parts.append(Note(text="No row of these traces was quarantined."))
    warned = [Note(text=f"{name}: {said}") for name in traces.names for said in traces.lake.manifest(name).warnings]
    return Section(
        name="data",
        title="Data quality",
        intro="What went in, what was set aside, and what the traces do not tell.",
        parts=(*parts, *warned),
    )


def _known(traces: Traces) -> pl.DataFrame:
    """Return one row per trace and column of `jobs`: the rows, and the share of them that tells it."""
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
