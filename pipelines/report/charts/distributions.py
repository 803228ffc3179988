"""Charts of distributions: request and use, run times and queueing delays, as CDFs and as ranges."""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.panels import (
    BLACK,
    BLUE,
    VERMILLION,
    counted,
    drawn,
    panel,
    ranges,
    spaced,
    tips,
    total,
    trace_colour,
    trace_dash,
)

UNITS: Final = {"cpu_cores": "cores", "gpus": "GPUs", "mem_gib": "GiB", "gpu_mem_gib": "GiB"}
RESOURCES: Final = {"cpu_cores": "CPU", "gpus": "GPU", "mem_gib": "Memory", "gpu_mem_gib": "GPU memory"}
LEAST_AMOUNT: Final = 0.01
LEAST_S: Final = 1.0
_TICKS_S: Final = (1, 10, 60, 600, 3600, 21600, 86400, 604800, 2592000)
_TICK_LABELS: Final = (
    "datum.value >= 86400 ? datum.value / 86400 + ' d' : datum.value >= 3600 ? datum.value / 3600 + ' h' : "
    "datum.value >= 60 ? datum.value / 60 + ' min' : datum.value + ' s'"
)
_PERCENTS: Final = (5, 10, 25, 50, 75, 90, 95, 99)


def request_and_use(points: pl.DataFrame, trace: str) -> alt.TopLevelMixin:
    """Draw the CDFs of request and use per instance, for one trace, one resource and one measure of use.

    `points` are rows of the statistic `request_and_use`.
    """
    resource, use = points["resource"][0], points["use"][0]
    unit = UNITS[resource]
    shown = points.select(
        "probability",
        series=pl.col("series").replace_strict({"request": "requested", "used": f"used ({use})"}),
        value=pl.col("value").clip(lower_bound=LEAST_AMOUNT),
    )
    names = ["requested", f"used ({use})"]
    chart = drawn(
        shown,
        "line",
        style={"interpolate": "step-before", "strokeWidth": 2},
        x=alt.X("value:Q").title(f"{unit} per instance (log scale)").scale(type="log").axis(tickCount=5),
        y=alt.Y("probability:Q").title("share of tasks at or below").axis(format="%"),
        color=alt.Color("series:N").title(None).scale(domain=names, range=[BLACK, BLUE]),
        strokeDash=alt.StrokeDash("series:N").title(None).scale(domain=names, range=[[6, 3], [1, 0]]),
        order="probability:Q",
        tooltip=["series:N", *tips(".4~g", "value"), *tips(".0%", "probability")],
    )
    tasks = int(points["tasks"].max())  # type: ignore[arg-type]  # a column of integers
    of = [f"n = {spaced(tasks)} measured tasks; values below {LEAST_AMOUNT:g} drawn at {LEAST_AMOUNT:g}"]
    return panel(chart, f"{RESOURCES[resource]}: request against use, {trace}", of)


def durations(rows: pl.DataFrame, title: str, every: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the CDF of a duration, one line per trace, through the percentiles that the statistic gives."""
    columns = {"min_s": 0.0, **{f"p{p}_s": p / 100 for p in _PERCENTS}, "max_s": 1.0}
    points = (
        rows.unpivot(list(columns), index="trace", variable_name="at", value_name="seconds")
        .with_columns(
            probability=pl.col("at").replace_strict(columns, return_dtype=pl.Float64),
            seconds=pl.col("seconds").cast(pl.Float64).clip(lower_bound=LEAST_S),
        )
        .drop("at")
    )
    chart = drawn(
        points,
        "line",
        style={"point": alt.OverlayMarkDef(size=22), "strokeWidth": 2},
        x=_seconds("seconds:Q", "time (log scale)"),
        y=alt.Y("probability:Q").title("share of jobs at or below").axis(format="%"),
        color=trace_colour(rows, every, line=True),
        strokeDash=trace_dash(rows, every),
        order="probability:Q",
        tooltip=["trace:N", *tips(",.0f", "seconds"), *tips(".0%", "probability")],
    )
    of = [counted(rows.select("trace", "jobs").iter_rows(), "jobs"), "points: 0, 5, 10, 25, 50, 75, 90, 95, 99, 100 %"]
    return panel(chart, f"{title}: cumulative distribution", of, height=230)


def duration_ranges(rows: pl.DataFrame, title: str, by: str, label: str, trace: str, colour: int) -> alt.TopLevelMixin:
    """Draw for each category of one trace the 10th to 90th percentile (line), quartiles (bar) and median (tick)."""
    shown = rows.select(
        "jobs",
        part=pl.concat_str(pl.col(by).cast(pl.String).fill_null("unknown"), pl.lit("  n="), _counts("jobs")),
        **{f"p{p}": pl.col(f"p{p}_s").clip(lower_bound=LEAST_S) for p in (10, 25, 50, 75, 90)},
    )
    told = [alt.Tooltip(f"p{p}:Q", format=",.0f", title=f"p{p} (s)") for p in (10, 25, 50, 75, 90)]
    y = alt.Y("part:N").title(label).sort(shown["part"].to_list())
    chart = ranges(shown, y, _seconds("p10:Q", "time (log scale)"), ("p90", "p25", "p75", "p50"), colour, told)
    of = [
        f"n = {total(rows, 'jobs')} jobs; tick: median, bar: 25 to 75 %, line: 10 to 90 %",
        f"times under {LEAST_S:g} s drawn at {LEAST_S:g} s",
    ]
    return panel(chart, f"{title} by {label}, {trace}", of, height=max(70, 24 * rows.height))


def concentration(points: pl.DataFrame, every: Sequence[str], users: Sequence[tuple[str, int]]) -> alt.TopLevelMixin:
    """Draw the cumulative share of GPU-hours (y) by share of users (x), largest users first, one line per trace."""
    chart = drawn(
        points,
        "line",
        style={"strokeWidth": 2},
        x=alt.X("users_share:Q").title("share of users, most GPU-hours first").axis(format="%"),
        y=alt.Y("gpu_hours_share:Q").title("share of GPU-hours").axis(format="%"),
        color=trace_colour(points, every, line=True),
        strokeDash=trace_dash(points, every),
        order="users_share:Q",
        tooltip=["trace:N", *tips(".1%", "users_share", "gpu_hours_share")],
    )
    even = (
        alt.Chart(pl.DataFrame({"users_share": [0.0, 1.0], "gpu_hours_share": [0.0, 1.0]}))
        .mark_line(color=VERMILLION, strokeDash=[2, 3], strokeWidth=1)
        .encode(x="users_share:Q", y="gpu_hours_share:Q")
    )
    return panel(even + chart, "GPU-hours held by users", [counted(users, "users"), "dotted: all hold the same"])


def _seconds(field: str, title: str) -> alt.X:
    axis = alt.Axis(values=list(_TICKS_S), labelExpr=_TICK_LABELS, labelOverlap=True, labelSeparation=5)
    return alt.X(field).title(title).scale(type="log").axis(axis)


def _counts(column: str) -> pl.Expr:
    return pl.col(column).map_elements(spaced, return_dtype=pl.String)
