"""Charts of energy: power grid by hour, machine types, idle GPUs."""

from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLUE, GREEN, VERMILLION
from pipelines.report.charts.panels import FAINT, THOUSANDS, panel, spaced, total

USES: Final = {
    "measured": ("measured, GPUs", BLUE),
    "idle": ("idle draw, modelled", FAINT),
    "busy": ("above idle, modelled", GREEN),
}


def grid_hours(rows: pl.DataFrame, series: str, unit: str, zone: str) -> alt.TopLevelMixin:
    """Draw a series of a power grid by hour of the day (UTC): mean (line) and quartiles over days (band)."""
    base = alt.Chart(rows).encode(x=alt.X("hour:Q").title("hour of the day, UTC").scale(domain=[0, 23], nice=False))
    tips = ["hour:Q", *(alt.Tooltip(f"{name}:Q", format=",.4~g") for name in ("p25", "mean", "p75")), "hours:Q"]
    band = base.mark_area(color=BLUE, opacity=0.25).encode(y=alt.Y("p25:Q").title(unit).scale(zero=False), y2="p75:Q")
    line = base.mark_line(color=BLUE, point=True).encode(y="mean:Q", tooltip=tips)
    of = [f"n = {total(rows, 'hours')} hours; line: mean, band: 25 to 75 % of the days"]
    return panel(band + line, f"{series} by hour, {zone}", of)


def by_machine(rows: pl.DataFrame, trace: str) -> alt.TopLevelMixin:
    """Draw the kWh of each machine type: measured, modelled idle, and modelled above idle."""
    shown = rows.unpivot(
        [f"{name}_kwh" for name in USES], index=["machine_type", "machines"], value_name="kwh"
    ).with_columns(
        part=pl.col("variable")
        .str.strip_suffix("_kwh")
        .replace_strict({name: said for name, (said, _) in USES.items()}),
        kind=pl.concat_str("machine_type", pl.lit("  n="), pl.col("machines").cast(pl.String)),
    )
    domain, colours = zip(*USES.values(), strict=True)
    chart = (
        alt.Chart(shown)
        .mark_bar()
        .encode(
            y=alt.Y("kind:N").title(None).sort(shown["kind"].unique(maintain_order=True).to_list()),
            x=alt.X("kwh:Q").title("kWh").axis(labelExpr=THOUSANDS),
            color=alt.Color("part:N").title(None).scale(domain=list(domain), range=list(colours)),
            order=alt.Order("part:N", sort="descending"),
            tooltip=["kind:N", "part:N", alt.Tooltip("kwh:Q", format=",.0f")],
        )
    )
    of = [f"n = {total(rows, 'machine_hours')} machine-hours with GPU samples (at the label: machines)"]
    return panel(chart, f"Energy by type of machine, {trace}", of, height=max(70, 26 * rows.height))


def idle_gpus(rows: pl.DataFrame, trace: str) -> alt.TopLevelMixin:
    """Draw the idle energy of requested but unused GPUs by task type."""
    chart = (
        alt.Chart(rows)
        .mark_bar(color=VERMILLION)
        .encode(
            y=alt.Y("task_type:N").title(None).sort(rows["task_type"].to_list()),
            x=alt.X("idle_kwh:Q").title("kWh").axis(labelExpr=THOUSANDS),
            tooltip=["task_type:N", alt.Tooltip("slack_h:Q", format=",.0f"), alt.Tooltip("idle_kwh:Q", format=",.1f")],
        )
    )
    of = [
        f"n = {total(rows, 'tasks')} measured tasks, {spaced(float(rows['slack_h'].sum()))} GPU-hours requested "
        "but not used, at idle power"
    ]
    return panel(chart, f"Idle draw of GPUs not used, {trace}", of, height=max(70, 24 * rows.height))
