"""Heat maps of machine use by weekday and hour, and of known values per column; ranges of use by machine type."""

import math
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.panels import AMOUNTS, BLACK, FAINT, drawn, panel, ranges, spaced, tips, total, traces_in
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
