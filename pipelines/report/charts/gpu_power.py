"""Charts of GPUs as their exporters measured them: power by hour of the day, power by use.

The rows come from `pipelines.statistics`.
"""

import altair as alt
import polars as pl

from pipelines.report.charts.panels import SERIES, panel, total


def power_hours(rows: pl.DataFrame, trace: str, zone: str, colour: int) -> alt.TopLevelMixin:
    """Draw the power of a GPU by local hour of the day: mean (line), quartiles of its hours (band), 95 % (dots)."""
    hue = SERIES[colour % len(SERIES)]
    base = alt.Chart(rows).encode(x=alt.X("hour:Q").title("local hour of the day").scale(domain=[0, 23], nice=False))
    tips = ["hour:Q", *(alt.Tooltip(f"{name}:Q", format=",.1f") for name in ("p25_w", "mean_w", "p75_w", "p95_w"))]
    band = base.mark_area(color=hue, opacity=0.25).encode(y=alt.Y("p25_w:Q").title("W per GPU"), y2="p75_w:Q")
    line = base.mark_line(color=hue, point=True).encode(y="mean_w:Q", tooltip=[*tips, "gpu_hours:Q"])
    top = base.mark_point(color=hue, size=14).encode(y="p95_w:Q", tooltip=tips)
    of = [
        f"n = {total(rows, 'gpu_hours')} hours of GPUs; {zone}",
        "line: mean; band: 25 to 75 % of the hours; dots: 95 %",
    ]
    return panel(band + line + top, f"Power by hour of the day, {trace}", of)


def power_of_types(rows: pl.DataFrame, trace: str, colour: int) -> alt.TopLevelMixin:
    """Draw the power of each GPU type: 10th to 90th percentile of its hours (line), quartiles (bar), mean (tick)."""
    shown = rows.with_columns(
        kind=pl.concat_str(pl.col("gpu_type").fill_null("unknown"), pl.lit("  n="), pl.col("gpus").cast(pl.String))
    )
    hue = SERIES[colour % len(SERIES)]
    base = alt.Chart(shown).encode(y=alt.Y("kind:N").title(None).axis(labelLimit=260).sort(shown["kind"].to_list()))
    tips = ["kind:N", *(alt.Tooltip(f"{name}:Q", format=",.1f") for name in ("mean_w", "p50_w", "max_w", "max_c"))]
    x = alt.X("p10_w:Q").title("W per GPU, mean of an hour")
    chart = (
        base.mark_rule(color=hue).encode(x=x, x2="p90_w:Q")
        + base.mark_bar(color=hue, height=9).encode(x="p25_w:Q", x2="p75_w:Q")
        + base.mark_tick(color="black", thickness=2, height=15).encode(x="mean_w:Q", tooltip=tips)
    )
    of = [
        f"n = {total(rows, 'gpu_hours')} hours of GPUs (at the label: GPUs)",
        "line: 10 to 90 %; bar: 25 to 75 %; tick: mean",
    ]
    return panel(chart, f"Power by type of GPU, {trace}", of, height=max(70, 34 * rows.height))
