"""Charts of shares and amounts: job status, arrivals, job sizes, GPU-hours by user or group, slack, recurrence."""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.distributions import RESOURCES
from pipelines.report.charts.panels import (
    BLACK,
    BLUE,
    FAINT,
    GREEN,
    ORANGE,
    PURPLE,
    SERIES,
    SKY,
    THOUSANDS,
    VERMILLION,
    YELLOW,
    counted,
    counted_in,
    drawn,
    panel,
    spaced,
    tips,
    total,
    trace_colour,
    trace_dash,
    traces_in,
)

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


def by_status(rows: pl.DataFrame, share: str, what: str, n: str) -> alt.TopLevelMixin:
    """Draw the share of each status, one bar per trace.

    `share` is the column of shares and `n` that of counts; `what` names what is shared (jobs or GPU-hours).
    """
    shown = rows.filter(pl.col(share).is_not_null()).select(
        "trace", status=pl.col("status").fill_null("unknown"), share=share, count=n
    )
    there = [name for name in STATUSES if name in shown["status"].to_list()]
    ranks = shown.with_columns(
        rank=pl.col("status").replace_strict({s: i for i, s in enumerate(there)}, return_dtype=pl.Int64)
    )
    chart = drawn(
        ranks,
        "bar",
        x=alt.X("share:Q").title(f"share of {what}").axis(format="%").scale(domain=[0, 1]),
        y=alt.Y("trace:N").title(None).sort(traces_in(shown)),
        color=alt.Color("status:N").title(None).scale(domain=there, range=[STATUSES[name] for name in there]),
        order="rank:Q",
        tooltip=["trace:N", "status:N", *tips(".2%", "share"), "count:Q"],
    )
    unit = "jobs" if n == "jobs" else "GPU jobs, of statuses with known hours"
    height = max(60, 34 * shown["trace"].n_unique())
    return panel(chart, f"Status, share of {what}", [counted_in(shown, "count", unit)], height=height)


def arrivals(rows: pl.DataFrame, unit: str, every: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the share of jobs submitted in each local hour or on each weekday, one line per trace."""
    shown = rows.select("trace", "share", "jobs", at=_slot(unit))
    order = list(WEEKDAYS) if unit == "weekday" else [str(hour) for hour in range(24)]
    title = f"local {unit}" if unit == "weekday" else "local hour of the day"
    chart = drawn(
        shown,
        "line",
        style={"point": True, "strokeWidth": 2},
        x=alt.X("at:O").title(title).sort(order).axis(labelAngle=0, labelOverlap=True, labelSeparation=5),
        y=alt.Y("share:Q").title("share of jobs").axis(format="%"),
        color=trace_colour(rows, every, line=True),
        strokeDash=trace_dash(rows, every),
        tooltip=["trace:N", "at:O", *tips(".2%", "share"), "jobs:Q"],
    )
    zones = rows.group_by("trace", maintain_order=True).agg(pl.col("zone").first())
    of = [counted_in(rows, "jobs", "jobs"), "; ".join(f"{trace}: {zone}" for trace, zone in zones.iter_rows())]
    return panel(chart, f"Arrivals by local {unit}", of)


def by_size(rows: pl.DataFrame, share: str, what: str, every: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the share of each job size (GPUs over all instances), with the bars of traces side by side."""
    chart = drawn(
        rows,
        "bar",
        x=alt.X("size:O").title("GPUs of all instances of a job").sort(list(SIZES)).axis(labelAngle=0),
        xOffset=alt.XOffset("trace:N").sort(traces_in(rows)),
        y=alt.Y(f"{share}:Q").title(f"share of {what}").axis(format="%"),
        color=trace_colour(rows, every),
        tooltip=["trace:N", "size:O", *tips(".2%", share), "gpu_jobs:Q"],
    )
    return panel(chart, f"Size of jobs, share of {what}", [counted_in(rows, "gpu_jobs", "jobs that request GPUs")])


def slack_share(rows: pl.DataFrame, every: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the unused share of requested resource-hours by resource and measure of use, one bar per trace."""
    part = pl.concat_str(pl.col("resource").replace_strict(RESOURCES), pl.lit(", "), "use")
    shown = rows.filter(pl.col("slack_share").is_not_null()).select("trace", "tasks", "slack_share", part=part)
    chart = drawn(
        shown,
        "bar",
        y=alt.Y("part:N").title(None).sort(shown["part"].unique(maintain_order=True).to_list()),
        yOffset=alt.YOffset("trace:N").sort(traces_in(shown)),
        x=alt.X("slack_share:Q").title("share of requested resource-hours").axis(format="%").scale(domain=[0, 1]),
        color=trace_colour(shown, every),
        tooltip=["trace:N", "part:N", *tips(".1%", "slack_share"), "tasks:Q"],
    )
    most = shown.group_by("trace", maintain_order=True).agg(pl.col("tasks").max())
    of = [counted(most.iter_rows(), "measured tasks, at most"), "hours: amount x instances x run time"]
    return panel(chart, "Slack: requested but not used", of, height=230)


def slack_hours(rows: pl.DataFrame, by: str, trace: str, unit: str = "GPU-hours") -> alt.TopLevelMixin:
    """Draw for each category of one trace the requested hours (grey) and, in front of them, the slack hours."""
    shown = rows.select(pl.col(by).alias("part"), "requested_h", "slack_h", "tasks")
    base = alt.Chart(shown).encode(y=alt.Y("part:N").title(None).sort(shown["part"].to_list()))
    told = ["part:N", *tips(",.0f", "requested_h", "slack_h", "tasks")]
    asked = base.mark_bar(color=FAINT).encode(
        x=alt.X("requested_h:Q").title(unit).axis(labelExpr=THOUSANDS), tooltip=told
    )
    slack = base.mark_bar(color=VERMILLION, height={"band": 0.5}).encode(x="slack_h:Q", tooltip=told)
    of = [f"n = {total(rows, 'tasks')} measured tasks; grey: requested, red: slack"]
    return panel(
        asked + slack, f"{unit} requested and slack by {by.replace('_', ' ')}, {trace}", of, height=_tall(rows)
    )


def ranked(rows: pl.DataFrame, by: str, trace: str, colour: int, whole: int) -> alt.TopLevelMixin:
    """Draw the users (or values of another dimension `by`) with the most GPU-hours in one trace, out of `whole`."""
    shown = rows.select(pl.col(by).fill_null("unknown").alias("part"), "gpu_hours", "gpu_jobs")
    chart = drawn(
        shown,
        "bar",
        style={"color": SERIES[colour % len(SERIES)]},
        y=alt.Y("part:N").title(None).sort(shown["part"].to_list()),
        x=alt.X("gpu_hours:Q").title("GPU-hours").axis(labelExpr=THOUSANDS),
        tooltip=["part:N", alt.Tooltip("gpu_hours:Q", format=",.0f"), "gpu_jobs:Q"],
    )
    of = [f"n = {rows.height} of {spaced(whole)}, with {total(rows, 'gpu_jobs')} jobs that request GPUs"]
    return panel(chart, f"Most GPU-hours by {by}, {trace}", of, height=_tall(rows))


def recurrence(rows: pl.DataFrame, every: Sequence[str]) -> alt.TopLevelMixin:
    """Draw three shares of jobs: in groups of 2 or more jobs, in groups of 5 or more, and not first of their group."""
    columns = {
        "recurring_jobs_share": "in a group of 2 or more",
        "jobs_in_groups_of_5_share": "in a group of 5 or more",
        "again_share": "not its group's first",
    }
    shown = rows.unpivot(list(columns), index="trace", variable_name="part", value_name="share").with_columns(
        pl.col("part").replace_strict(columns)
    )
    chart = drawn(
        shown,
        "bar",
        y=alt.Y("part:N").title(None).sort(list(columns.values())),
        yOffset=alt.YOffset("trace:N").sort(traces_in(rows)),
        x=alt.X("share:Q").title("share of jobs with a group").axis(format="%").scale(domain=[0, 1]),
        color=trace_colour(rows, every),
        tooltip=["trace:N", "part:N", alt.Tooltip("share:Q", format=".1%")],
    )
    of = [
        counted(rows.select("trace", "jobs").iter_rows(), "jobs"),
        counted(rows.select("trace", "groups").iter_rows(), "groups"),
    ]
    return panel(chart, "Recurring jobs", of, height=max(90, 40 * rows.height + 60))


def _slot(unit: str) -> pl.Expr:
    if unit == "weekday":
        return pl.col("weekday").replace_strict(dict(enumerate(WEEKDAYS, start=1)), return_dtype=pl.String)
    return pl.col("hour").cast(pl.String)


def _tall(rows: pl.DataFrame) -> int:
    return max(70, 20 * rows.height)
