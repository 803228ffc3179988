"""The report's section on users, groups and virtual clusters: GPU-hours, recurrence and slack.

Names of users, groups and virtual clusters are shortened.
"""

from typing import Final

import numpy as np
import polars as pl

from pipelines.report.charts.distributions import concentration
from pipelines.report.charts.panels import traces_in
from pipelines.report.charts.shares import ranked, recurrence
from pipelines.report.claims import Price, gpu_slack, priced
from pipelines.report.parts import Asked, Figure, Part, Section, Table, Traces, known_sum, with_short_names

MOST_RANKED: Final = 12
CURVE_POINTS: Final = 100
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


def people(traces: Traces, price: Price | None) -> Section:
    """Build the section: concentration of GPU-hours, largest users, recurrence of groups, owners of most slack."""
    parts: list[Part] = []
    users, clusters = _held(traces, "user"), _held(traces, "vc")
    if users.rows.width:
        curve = _curve(users.rows)
        counts = [(trace, users.of(trace).height) for trace in users.traces]
        chart = concentration(curve, traces.names, counts)
        parts.append(Figure(name="concentration", chart=chart, rows=curve))
    parts += [*_ranked(users, "user", traces), *_ranked(clusters, "vc", traces)]
    groups, whole = traces.ask("group_recurrence"), traces.ask("user_concentration")
    parts += groups.figure("recurrence", lambda rows: recurrence(rows, traces.names))
    said = "top: the 5 % of users with most; first: the user with most"
    parts += whole.table("users", "Concentration on users", said, _CONCENTRATION)
    parts += [table for by in ("user", "group") for table in _slack(traces, by, price)]
    return Section(
        name="people",
        title="Users and groups",
        intro="Names are shortened but stay distinct. Equal names in different clusters are different users or groups.",
        parts=(*parts, *whole.notes, *groups.notes, *users.notes, *clusters.notes),
    )


def _held(traces: Traces, by: str) -> Asked:
    """Return the GPU-hours per user (or other dimension `by`) of each trace, largest first.

    Rows without a name or known hours are left out. Traces without any such row are left out with a reason.
    """
    asked = traces.ask("gpu_hours_by_status", "cluster", by)
    if not asked.rows.width or not asked.rows[by].count():
        return Asked(rows=pl.DataFrame(), reasons=())
    named = (
        asked.rows.filter(pl.col(by).is_not_null())
        .group_by("trace", "cluster", by, maintain_order=True)
        .agg(pl.col("gpu_jobs").sum(), known_sum("gpu_hours"))
    )
    rows = named.filter(pl.col("gpu_hours").is_not_null(), pl.col("gpu_hours").sum().over("trace") > 0)
    without = [name for name in traces_in(named) if name not in traces_in(rows)]
    reasons = tuple(f"{name}: GPU-hours by {by} not available; no {by} has known hours above 0." for name in without)
    if not rows.height:
        return Asked(rows=pl.DataFrame(), reasons=reasons)
    order = pl.col("trace").replace_strict({name: i for i, name in enumerate(traces.names)}, return_dtype=pl.Int64)
    return Asked(rows=rows.sort([order, -pl.col("gpu_hours"), "cluster", by]), reasons=reasons)


def _curve(held: pl.DataFrame) -> pl.DataFrame:
    """Return the cumulative share of GPU-hours of the users, largest first, with at most 100 points per trace."""
    curves = []
    for (trace,), rows in held.partition_by("trace", as_dict=True, maintain_order=True).items():
        hours = rows["gpu_hours"].to_numpy()
        at = np.unique(np.linspace(0, len(hours), min(len(hours), CURVE_POINTS) + 1).astype(np.int64))
        shares = np.concatenate([[0.0], np.cumsum(hours)])[at] / hours.sum()
        curves.append(pl.DataFrame({"trace": trace, "users_share": at / len(hours), "gpu_hours_share": shares}))
    return pl.concat(curves)


def _ranked(held: Asked, by: str, traces: Traces) -> list[Part]:
    figures: list[Part] = []
    for trace in held.traces:
        rows = held.of(trace)
        if rows.height > 1:
            first = _labelled(rows.head(MOST_RANKED), by)
            chart = ranked(first, by, trace, traces.colour(trace), rows.height)
            figures.append(Figure(name=f"gpu_hours-by-{by}-{trace}", chart=chart, rows=first))
    return figures


def _labelled(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """Shorten names; append the cluster's name if there are several clusters."""
    short = with_short_names(rows)
    if rows["cluster"].n_unique() == 1:
        return short
    return short.with_columns(pl.concat_str("cluster", pl.lit("/"), by).alias(by))


def _slack(traces: Traces, by: str, price: Price | None) -> list[Part]:
    """Return a table of the users or groups with the most GPU slack in each trace."""
    asked = traces.ask("over_claim", "cluster", by)
    columns = ("trace", "cluster", by, "tasks", "over_claim_share", "requested_h", "slack_h", "slack_share")
    worst = []
    for trace in asked.traces:
        rows = gpu_slack(asked.of(trace)).filter(pl.col(by).is_not_null()).select(columns)
        worst.append(with_short_names(rows.sort("slack_h", "cluster", by, descending=[True, False, False]).head(10)))
    if not any(rows.height for rows in worst):
        return []
    table = pl.concat(worst)
    table = table if price is None else priced(table, price)
    said = f"GPU-hours of measured tasks; of each trace the ten {by}s with most slack"
    return [Table(name=f"slack-by-{by}", title=f"GPU slack by {by}", rows=table, said=said)]
