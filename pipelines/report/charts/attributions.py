"""Charts of models: feature importances with their spread, SHAP values as a beeswarm, coverage of quantiles."""

from typing import Final

import altair as alt
import numpy as np
import polars as pl

from pipelines.report.charts.panels import BLACK, BLUE, VERMILLION, panel

BINS: Final = 40
"""Number of bins of SHAP values in a beeswarm; points in the same bin are stacked."""
ROW_PX: Final = 30
RANKS: Final = "viridis"
"""Colour scheme of ranks: safe for colour-blind readers and without grey, which marks unknown ranks."""
UNKNOWN: Final = "#888888"


def importances(rows: pl.DataFrame, model: str, unit: str, held_out: str) -> alt.TopLevelMixin:
    """Draw how much the loss grows on average when a feature is shuffled, with one standard deviation over repeats.

    `held_out` describes the held-out rows and their number.
    """
    shown = rows.select("feature", "mean", low=pl.col("mean") - pl.col("std"), high=pl.col("mean") + pl.col("std"))
    base = alt.Chart(shown).encode(y=_named("feature", shown["feature"].to_list()))
    bars = base.mark_bar(color=BLUE, height={"band": 0.7}).encode(
        x=alt.X("mean:Q").title(f"loss growth ({unit})").axis(_amounts(4)),
        tooltip=["feature:N", alt.Tooltip("mean:Q", format=".3~g")],
    )
    spread = base.mark_rule(color=BLACK).encode(x="low:Q", x2="high:Q")
    of = [f"n = {rows['repeats'][0]} shuffles of {held_out}; line: one standard deviation"]
    return panel(bars + spread, f"Importance, {model}", of, height=max(70, 18 * rows.height))


def beeswarm(rows: pl.DataFrame, title: str, unit: str, jobs: str) -> alt.TopLevelMixin:
    """Draw each job's SHAP value of each feature, coloured by the rank of the feature's value among these jobs.

    `rows` has the columns feature, shap and rank (0 low to 1 high; null if the value is unknown or has no order), with
    the most important feature first. `jobs` is a text with the number and type of the jobs.
    """
    order = rows["feature"].unique(maintain_order=True).to_list()
    shown = rows.with_columns(pl.Series("offset", swarm_offsets(rows)))
    legend = alt.Legend(orient="bottom", direction="horizontal", gradientLength=96, values=[0, 1], format=".0f")
    ranked = alt.Color("rank:Q").title("0 lowest, 1 highest").scale(scheme=RANKS, domain=[0, 1])
    base = alt.Chart(shown).encode(
        x=alt.X("shap:Q").title(f"SHAP value ({unit})").axis(_amounts(5)),
        y=_named("feature", order),
        yOffset=alt.YOffset("offset:Q").scale(domain=[-1, 1]),
        tooltip=["feature:N", alt.Tooltip("shap:Q", format=".3~g"), alt.Tooltip("rank:Q", format=".2f")],
    )
    # Screen-reader labels of all points would make up most of the page; the chart as a whole has one.
    known = base.transform_filter("isValid(datum.rank)").mark_circle(size=16, opacity=0.9, aria=False)
    unknown = base.transform_filter("!isValid(datum.rank)").mark_circle(size=16, opacity=0.9, color=UNKNOWN, aria=False)
    zero = alt.Chart(pl.DataFrame({"shap": [0.0]})).mark_rule(color=BLACK, strokeWidth=0.7).encode(x="shap:Q")
    of = [f"n = {jobs}; one point per job, coloured by the feature's rank; grey: category or unknown"]
    points = known.encode(color=ranked.legend(legend))
    return panel(zero + points + unknown, title, of, height=ROW_PX * len(order))


def swarm_offsets(rows: pl.DataFrame) -> list[float]:
    """Return each point's vertical offset in its feature's row (-1 to 1); points in the same bin stack from the middle.

    >>> swarm_offsets(pl.DataFrame({"feature": ["a", "a", "a", "b"], "shap": [1.0, 1.0, 5.0, 2.0]}))
    [0.0, 0.5, 0.0, 0.0]
    """
    shap = rows["shap"].to_numpy()
    wide = float(np.ptp(shap)) if len(shap) else 0.0
    column = np.zeros(len(shap), dtype=np.int64) if wide == 0 else ((shap - shap.min()) / wide * BINS).astype(np.int64)
    heights = (
        rows.select("feature", bin=pl.Series(column))
        .with_columns(at=pl.int_range(pl.len()).over("feature", "bin"))
        .select(((pl.col("at") + 1) // 2) * (pl.when(pl.col("at") % 2 == 1).then(1).otherwise(-1)))
        .to_series()
    )
    tallest = max(heights.abs().max() or 0, 2)
    return [float(height / tallest) + 0.0 for height in heights]


def coverage(rows: pl.DataFrame, title: str) -> alt.TopLevelMixin:
    """Draw the share of later jobs at or below the predicted quantile (point), and the quantile's level (tick).

    `rows` has the columns model (label), coverage and level.
    """
    counted = " (n=: jobs)" if rows["model"].str.contains("  n=", literal=True).all() else ", without counts of jobs"
    base = alt.Chart(rows).encode(y=_named("model", rows["model"].to_list()))
    x = alt.X("coverage:Q").title("share of later jobs at or below").axis(format="%").scale(zero=False, nice=True)
    found = base.mark_point(filled=True, size=60, color=BLUE, opacity=1.0).encode(
        x=x, tooltip=["model:N", alt.Tooltip("coverage:Q", format=".1%"), alt.Tooltip("level:Q", format=".0%")]
    )
    asked = base.mark_tick(color=VERMILLION, thickness=2, height=14).encode(x="level:Q")
    of = [f"n = {rows.height} targets, by the models' cards{counted}; tick: the level"]
    return panel(asked + found, title, of, height=max(70, 20 * rows.height))


def _amounts(ticks: int) -> alt.Axis:
    """Return an x axis that stays inside the chart beside wide labels: its title ends at the right edge."""
    return alt.Axis(tickCount=ticks, titleAnchor="end", titleAlign="right")


def _named(column: str, order: list[str]) -> alt.Y:
    """Return a y axis with small, wide labels: long names must not be cut, because they differ at the end."""
    return alt.Y(f"{column}:N").title(None).sort(order).axis(labelFontSize=10, labelLimit=240, grid=True)
