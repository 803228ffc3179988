"""Charts of power and energy: the grid and GPUs by hour, types of GPUs and machines, idle GPUs."""

from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.panels import (
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
)

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
