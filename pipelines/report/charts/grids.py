"""Charts of machines: use by weekday and hour, ranges by type, power and energy; known values per column."""

import math
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.panels import (
    AMOUNTS,
    BLACK,
    BLUE,
    FAINT,
    GREEN,
    SERIES,
    THOUSANDS,
    VERMILLION,
    by_hour,
    drawn,
    panel,
    ranges,
    spaced,
    tips,
    total,
    traces_in,
)
from pipelines.report.charts.shares import WEEKDAYS

BUSY: Final = {"cpu": "CPU", "mem": "memory", "gpu": "GPU"}


def utilisation(rows: pl.DataFrame, resource: str, trace: str, zone: str) -> alt.TopLevelMixin:
    """Draw the mean busy fraction of one resource by local weekday and hour; hours without samples stay empty."""
    shown = rows.select(
        "hour",
        "machine_hours",
        "mean_frac",
        day=pl.col("weekday").replace_strict(dict(enumerate(WEEKDAYS, start=1)), return_dtype=pl.String),
    )
    # The colour scale ends at the busiest hour, rounded up to 10 %: up to 100 %, a rarely busy trace would be dark.
    most = max(math.ceil(10 * (shown["mean_frac"].max() or 0)), 1) / 10  # type: ignore[arg-type, operator]  # fractions
    legend = alt.Legend(format="%", orient="right", gradientLength=110, title=None)
    chart = drawn(
        shown,
        "rect",
        x=alt.X("hour:O").title("local hour of the day").axis(labelAngle=0, labelOverlap=True, labelSeparation=5),
        y=alt.Y("day:O").title(None).sort(list(WEEKDAYS)),
        color=alt.Color("mean_frac:Q").scale(scheme=AMOUNTS, domain=[0, most]).legend(legend),
        tooltip=["day:O", "hour:O", *tips(".1%", "mean_frac"), "machine_hours:Q"],
    )
    hours = total(rows, "machine_hours")
    return panel(
        chart,
        f"{BUSY[resource]} busy, mean, {trace}",
        [f"n = {hours} machine-hours; {zone}; colours to {most:.0%} busy"],
    )


def by_machine_type(rows: pl.DataFrame, resource: str, trace: str, colour: int) -> alt.TopLevelMixin:
    """Draw the busy fraction of each machine type: 10th to 90th percentile (line), quartiles (bar), mean (tick)."""
    kind = pl.concat_str("machine_type", pl.lit("  n="), pl.col("machines").cast(pl.String))
    shown = rows.select(*(f"{name}_frac" for name in ("p10", "p25", "p75", "p90", "mean")), kind=kind)
    y = alt.Y("kind:N").title(None).sort(shown["kind"].to_list())
    x = alt.X("p10_frac:Q").title(f"{BUSY[resource]} busy, share").axis(format="%").scale(domain=[0, 1], clamp=True)
    told = tips(".1%", "p10_frac", "p25_frac", "mean_frac", "p75_frac", "p90_frac")
    chart = ranges(shown, y, x, ("p90_frac", "p25_frac", "p75_frac", "mean_frac"), colour, told)
    of = [
        f"n = {total(rows, 'machine_hours')} machine-hours (at the label: machines)",
        "tick: mean, bar: 25 to 75 %, line: 10 to 90 %",
    ]
    height = max(60, 24 * rows.height)
    return panel(chart, f"{BUSY[resource]} busy by type of machine, {trace}", of, height=height)


def known_columns(rows: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw the share of jobs with a value in each column of `jobs` (y), by trace (x)."""
    traces = traces_in(rows)
    base = alt.Chart(rows).encode(
        x=alt.X("trace:N").title(None).sort(traces).axis(orient="top", labelAngle=0, labelLimit=80),
        y=alt.Y("column:N").title(None).sort(rows["column"].unique(maintain_order=True).to_list()),
    )
    cells = base.mark_rect(stroke="white").encode(
        color=alt.Color("known:Q").scale(scheme=AMOUNTS, domain=[0, 1]).legend(None),
        tooltip=["trace:N", "column:N", *tips(".1%", "known")],
    )
    light = alt.condition("datum.known > 0.55", alt.value(BLACK), alt.value(FAINT))
    texts = base.mark_text(fontSize=10).encode(text=alt.Text("known:Q", format=".0%"), color=light)
    totals = rows.group_by("trace", maintain_order=True).agg(pl.col("rows").first())
    of = ["n (jobs): " + ", ".join(f"{trace} {spaced(count)}" for trace, count in totals.iter_rows())]
    height = 17 * rows["column"].n_unique()
    return panel(cells + texts, "Columns of jobs, share of rows with a value", of, height=height)


USES: Final = {
    "measured": ("measured, GPUs", BLUE),
    "idle": ("idle draw, modelled", FAINT),
    "busy": ("above idle, modelled", GREEN),
}


def grid_hours(rows: pl.DataFrame, series: str, unit: str, zone: str) -> alt.TopLevelMixin:
    """Draw a series of a power grid by hour of the day (UTC): mean (line) and quartiles over days (band)."""
    told: list[str | alt.Tooltip] = ["hour:Q", *tips(",.4~g", "p25", "mean", "p75"), "hours:Q"]
    y = alt.Y("p25:Q").title(unit).scale(zero=False)
    chart = by_hour(rows, BLUE, "hour of the day, UTC", y, ("p75", "mean"), told)
    of = [f"n = {total(rows, 'hours')} hours; line: mean, band: 25 to 75 % of the days"]
    return panel(chart, f"{series} by hour, {zone}", of)


def power_hours(rows: pl.DataFrame, trace: str, zone: str, colour: int) -> alt.TopLevelMixin:
    """Draw the power of a GPU by local hour of the day: mean (line), quartiles of its hours (band), 95 % (dots)."""
    hue = SERIES[colour % len(SERIES)]
    told: list[str | alt.Tooltip] = ["hour:Q", *tips(",.1f", "p25_w", "mean_w", "p75_w", "p95_w"), "gpu_hours:Q"]
    y = alt.Y("p25_w:Q").title("W per GPU")
    chart = by_hour(rows, hue, "local hour of the day", y, ("p75_w", "mean_w", "p95_w"), told)
    of = [
        f"n = {total(rows, 'gpu_hours')} hours of GPUs; {zone}",
        "line: mean; band: 25 to 75 % of the hours; dots: 95 %",
    ]
    return panel(chart, f"Power by hour of the day, {trace}", of)


def power_of_types(rows: pl.DataFrame, trace: str, colour: int) -> alt.TopLevelMixin:
    """Draw the power of each GPU type: 10th to 90th percentile of its hours (line), quartiles (bar), mean (tick)."""
    shown = rows.with_columns(
        kind=pl.concat_str(pl.col("gpu_type").fill_null("unknown"), pl.lit("  n="), pl.col("gpus").cast(pl.String))
    )
    y = alt.Y("kind:N").title(None).axis(labelLimit=260).sort(shown["kind"].to_list())
    x = alt.X("p10_w:Q").title("W per GPU, mean of an hour")
    told: list[str | alt.Tooltip] = ["kind:N", *tips(",.1f", "mean_w", "p50_w", "max_w", "max_c")]
    chart = ranges(shown, y, x, ("p90_w", "p25_w", "p75_w", "mean_w"), colour, told)
    of = [
        f"n = {total(rows, 'gpu_hours')} hours of GPUs (at the label: GPUs)",
        "line: 10 to 90 %; bar: 25 to 75 %; tick: mean",
    ]
    return panel(chart, f"Power by type of GPU, {trace}", of, height=max(70, 34 * rows.height))


def by_machine(rows: pl.DataFrame, trace: str) -> alt.TopLevelMixin:
    """Draw the kWh of each machine type: measured, modelled idle, and modelled above idle."""
    kwh = rows.unpivot([f"{name}_kwh" for name in USES], index=["machine_type", "machines"], value_name="kwh")
    names = {f"{name}_kwh": said for name, (said, _) in USES.items()}
    shown = kwh.with_columns(
        part=pl.col("variable").replace_strict(names),
        kind=pl.concat_str("machine_type", pl.lit("  n="), pl.col("machines").cast(pl.String)),
    )
    domain, colours = zip(*USES.values(), strict=True)
    chart = drawn(
        shown,
        "bar",
        y=alt.Y("kind:N").title(None).sort(shown["kind"].unique(maintain_order=True).to_list()),
        x=alt.X("kwh:Q").title("kWh").axis(labelExpr=THOUSANDS),
        color=alt.Color("part:N").title(None).scale(domain=list(domain), range=list(colours)),
        order=alt.Order("part:N", sort="descending"),
        tooltip=["kind:N", "part:N", *tips(",.0f", "kwh")],
    )
    of = [f"n = {total(rows, 'machine_hours')} machine-hours with GPU samples (at the label: machines)"]
    return panel(chart, f"Energy by type of machine, {trace}", of, height=max(70, 26 * rows.height))


def idle_gpus(rows: pl.DataFrame, trace: str) -> alt.TopLevelMixin:
    """Draw the idle energy of requested but unused GPUs by task type."""
    chart = drawn(
        rows,
        "bar",
        style={"color": VERMILLION},
        y=alt.Y("task_type:N").title(None).sort(rows["task_type"].to_list()),
        x=alt.X("idle_kwh:Q").title("kWh").axis(labelExpr=THOUSANDS),
        tooltip=["task_type:N", *tips(",.0f", "slack_h"), *tips(",.1f", "idle_kwh")],
    )
    of = [
        f"n = {total(rows, 'tasks')} measured tasks, {spaced(float(rows['slack_h'].sum()))} GPU-hours requested "
        "but not used, at idle power"
    ]
    return panel(chart, f"Idle draw of GPUs not used, {trace}", of, height=max(70, 24 * rows.height))
