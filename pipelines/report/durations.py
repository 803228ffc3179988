"""The report's sections on run times and queueing delays: as distributions, and as ranges by size, status and kind."""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.overview import SIZES
from pipelines.report.panels import (
    counted,
    drawn,
    names,
    panel,
    ranges,
    share,
    tall,
    tips,
    total,
    trace_colour,
    trace_dash,
    with_counts,
)
from pipelines.report.parts import Figure, Section, Traces, with_short_names

_COLUMNS: Final = ("trace", "jobs", "mean_s", "p50_s", "p90_s", "p99_s", "max_s", "over_24h_share")
_BY: Final = {"size": "GPUs of the job", "status": "status", "task_type": "kind", "vc": "virtual cluster"}
_INTRO: Final = {
    "run_time": "From start to end, over all jobs with a known run time, whatever their status; for jobs cut off at "
    "the trace's end, the time until then.",
    "queueing_delay": "From submission to start, over all jobs with a known wait.",
}
MOST_PARTS: Final = 12
LEAST_S: Final = 1.0
_TICKS_S: Final = (1, 10, 60, 600, 3600, 21600, 86400, 604800, 2592000)
_TICK_LABELS: Final = (
    "datum.value >= 86400 ? datum.value / 86400 + ' d' : datum.value >= 3600 ? datum.value / 3600 + ' h' : "
    "datum.value >= 60 ? datum.value / 60 + ' min' : datum.value + ' s'"
)
_PERCENTS: Final = (5, 10, 25, 50, 75, 90, 95, 99)


def run_times(traces: Traces) -> Section:
    """Build the section on run times: their distribution, and ranges by size, status and type of work."""
    return _section(traces, "run_time", "Run times", "run-times", ("size", "status", "task_type"))


def waits(traces: Traces) -> Section:
    """Build the section on queueing delays: their distribution, and ranges by size and by virtual cluster."""
    return _section(traces, "queueing_delay", "Queueing", "queueing", ("size", "vc"))


def _section(traces: Traces, statistic: str, title: str, name: str, by: tuple[str, ...]) -> Section:
    whole = traces.ask(statistic)
    parts = whole.figure(statistic, lambda rows: durations(rows, title, traces.names))
    for dimension in by if whole.rows.width else ():
        split = traces.ask(statistic, dimension)
        for trace in split.traces:
            rows = _most_jobs(with_short_names(split.of(trace)), dimension)
            if rows.height > 1:
                chart = duration_ranges(rows, title, dimension, trace, traces.colour(trace))
                parts.append(Figure(name=f"{statistic}-by-{dimension}-{trace}", chart=chart, rows=rows))
    extra = tuple(n for n in ("gpu_hours_over_24h_share", "censored_share") if n in whole.rows.columns)
    said = "Seconds; shares of jobs, and of GPU-hours, beyond 24 hours"
    parts += whole.table(f"{statistic}-table", title, said, (*_COLUMNS, *extra))
    return Section(name=name, title=title, intro=_INTRO[statistic], parts=(*parts, *whole.notes))


def _most_jobs(rows: pl.DataFrame, dimension: str) -> pl.DataFrame:
    """Keep the values of `dimension` with the most jobs: sizes in their order, others with most jobs first."""
    kept = rows.sort("jobs", descending=True, maintain_order=True).head(MOST_PARTS)
    if dimension != "size":
        return kept
    order = {name: i for i, name in enumerate(("0", *SIZES))}
    return kept.filter(pl.col("size").is_not_null()).sort(pl.col("size").replace_strict(order, return_dtype=pl.Int64))


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
        x=_seconds("seconds:Q"),
        y=share(alt.Y, "probability", "share of jobs at or below"),
        color=trace_colour(rows, every, line=True),
        strokeDash=trace_dash(rows, every),
        order="probability:Q",
        tooltip=["trace:N", *tips(",.0f", "seconds"), *tips(".0%", "probability")],
    )
    of = [counted(rows.select("trace", "jobs").iter_rows(), "jobs"), "points: 0, 5, 10, 25, 50, 75, 90, 95, 99, 100 %"]
    return panel(chart, f"{title}: cumulative distribution", of, height=230)


def duration_ranges(rows: pl.DataFrame, title: str, by: str, trace: str, colour: int) -> alt.TopLevelMixin:
    """Draw for each category of one trace the 10th to 90th percentile (line), quartiles (bar) and median (tick)."""
    shown = rows.select(
        "jobs",
        part=with_counts(by, "jobs"),
        **{f"p{p}": pl.col(f"p{p}_s").clip(lower_bound=LEAST_S) for p in (10, 25, 50, 75, 90)},
    )
    told = [alt.Tooltip(f"p{p}:Q", format=",.0f", title=f"p{p} (s)") for p in (10, 25, 50, 75, 90)]
    y = names("part", shown, _BY[by])
    chart = ranges(shown, y, _seconds("p10:Q"), ("p90", "p25", "p75", "p50"), colour, told)
    of = [
        f"n = {total(rows, 'jobs')} jobs; tick: median, bar: 25 to 75 %, line: 10 to 90 %",
        f"times under {LEAST_S:g} s drawn at {LEAST_S:g} s",
    ]
    return panel(chart, f"{title} by {_BY[by]}, {trace}", of, height=tall(rows))


def _seconds(field: str) -> alt.X:
    axis = alt.Axis(values=list(_TICKS_S), labelExpr=_TICK_LABELS, labelOverlap=True, labelSeparation=5)
    return alt.X(field).title("time (log scale)").scale(type="log").axis(axis)
