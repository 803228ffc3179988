"""Charts of gains by mix and by policy, and of gain and harm by arm.

The gains by mix and by policy correspond to figures 5 and 6 of Yang, Hong and Tang. Drawn from the tables `gain` and
`part`. Called by `study`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import (
    ARMS,
    BLACK,
    BLUE,
    CLAIM,
    GNN,
    TRUTHS,
    VERMILLION,
    arm_colour,
    claim_shape,
    named,
    titled,
)

FIGURES: Final = {"deployed": "jobs deployed", "completed": "jobs finished"}
PAPER_MIX, PAPER_POLICY, PAPER_DEPLOYED_PCT = "5:15:15:65", "fifo", 25.3
SIZED: Final = ("shrunk", "unguarded", "oracle")
MEASURES: Final = {
    "completed_of_oracle": ("share of the oracle's gain in finished jobs", 0.5),
    "killed": ("jobs killed a run", 0.0),
    "stretch_p99": ("p99 of stretch", 1.05),
}
"""Axis title and target value of each metric in the chart of the ablation."""


def gain_by_mix(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the gain in jobs deployed and finished by mix, with a column of panels for each slowdown model."""
    chart = _points(rows, "mix", "mix, cv:nlp:gnn:ctr", PAPER_MIX)
    return titled(chart, "Figure 5: gain over the jobs' own requests, by mix", of)


def gain_by_policy(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the gain in jobs deployed and finished by queue policy, with a column of panels for each slowdown model."""
    chart = _points(rows, "policy", "queue policy", PAPER_POLICY)
    return titled(chart, "Figure 6: gain over the jobs' own requests, by queue policy", of)


def gain_and_harm(rows: pl.DataFrame, of: Sequence[str], *, truth: str = "contention") -> alt.TopLevelMixin:
    """Draw the share of the oracle's gain, the kills and the p99 stretch of every arm, under one slowdown model.

    Dotted lines mark the targets.
    """
    shown = rows.filter(pl.col("truth") == truth, pl.col("devices") == "all", pl.col("arm") != "requested")
    order = shown["what"].unique(maintain_order=True).to_list()
    panels = [
        _measure(shown.filter(pl.col("gnn") == gnn), column, title, asked, order, first=at == 0, head=said)
        for gnn, said in GNN.items()
        for at, (column, (title, asked)) in enumerate(MEASURES.items())
    ]
    wide = len(MEASURES)
    chart = alt.vconcat(*(alt.hconcat(*panels[row : row + wide]) for row in range(0, len(panels), wide)))
    said = [*of, "dotted: the targets; red: some job was killed"]
    return titled(chart, f"What every way of sizing gains, and the harm it does, truth {truth}", said)


def _measure(
    shown: pl.DataFrame, column: str, title: str, asked: float, order: list[str], *, first: bool, head: str
) -> alt.LayerChart | alt.FacetChart:
    drawn = shown.select(
        "what",
        level=column,
        low=f"{column}_lo",
        high=f"{column}_hi",
        asked=pl.lit(asked),
        kills=pl.col("killed") > 0,
    )
    y = alt.Y("what:N").title(None).sort(order).axis(labels=first, ticks=first, labelLimit=420)
    x = (
        alt.X("level:Q")
        .title(title)
        .scale(zero=asked == 0.0)
        .axis(tickCount=5, labelFlush=False, labelOverlap=True, labelSeparation=8)
    )
    colour = alt.Color("kills:N").scale(domain=[False, True], range=[BLUE, VERMILLION]).legend(None)
    base, low = alt.Chart(drawn), alt.X("low:Q").title(title)
    layers = alt.layer(
        base.mark_rule(color=BLACK, strokeDash=[2, 3]).encode(x="min(asked):Q"),
        base.mark_rule(strokeWidth=2, opacity=0.6).encode(x=low, x2="high:Q", y=y, color=colour),
        base.mark_point(filled=True, size=60, opacity=1.0).encode(x=x, y=y, color=colour),
    )
    return layers.properties(width=210, height={"step": 15}, title=alt.TitleParams(head if first else "", fontSize=12))


def _points(rows: pl.DataFrame, across: str, title: str, paper_at: str) -> alt.FacetChart:
    order = rows[across].unique(maintain_order=True).to_list()
    shown = named(
        rows.filter(pl.col("figure").is_in(list(FIGURES))),
        across,
        "figure",
        truth=pl.concat_str(pl.lit("truth: "), "truth"),
        gain=pl.col("gain_pct") / 100.0,
        low=pl.col("gain_pct_lo") / 100.0,
        high=pl.col("gain_pct_hi") / 100.0,
    ).with_columns(panel=pl.concat_str(pl.col("figure").replace_strict(FIGURES), pl.lit(", "), "gnn"))
    claim = (
        shown.filter(pl.col(across) == paper_at, pl.col("figure") == "deployed")
        .unique(["truth", "panel"], maintain_order=True)
        .with_columns(name=pl.lit(CLAIM), gain=pl.lit(PAPER_DEPLOYED_PCT / 100.0))
    )
    x = alt.X(f"{across}:N").title(title).sort(order).axis(labelAngle=0)
    side = alt.XOffset("name:N").sort([*(ARMS[arm] for arm in SIZED), CLAIM])
    colour = arm_colour(SIZED, claim=True)
    y = alt.Y("gain:Q").title("gain, relative").axis(format="+%")
    both = alt.Chart(pl.concat([shown, claim]))
    ours, theirs = (both.transform_filter(test) for test in (alt.datum.name != CLAIM, alt.datum.name == CLAIM))
    shape = claim_shape(SIZED, symbol="circle")
    spans, points = ours.mark_rule(strokeWidth=2), ours.mark_point(filled=True, size=60, opacity=1.0)
    diamonds = theirs.mark_point(filled=True, size=90, opacity=1.0)
    layers = alt.layer(
        spans.encode(x=x, xOffset=side, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        points.encode(x=x, xOffset=side, y=y, color=colour, shape=shape),
        diamonds.encode(x=x, xOffset=side, y=y, color=colour, shape=shape),
    ).properties(width=260, height=150)
    chart: alt.FacetChart = layers.facet(
        column=alt.Column("truth:N").title(None).sort([f"truth: {truth}" for truth in TRUTHS]),
        row=alt.Row("panel:N")
        .title(None)
        .sort([f"{said}, {gnn}" for said in FIGURES.values() for gnn in GNN.values()]),
    )
    return chart
