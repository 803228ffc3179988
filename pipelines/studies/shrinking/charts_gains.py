"""Charts of gains by mix and by policy, and of gain against harm by arm and by parameter set.

The gains by mix and by policy correspond to figures 5 and 6 of Yang, Hong and Tang. Drawn from the tables `gain` and
`part`, and from the rows of the frontier. Called by `study`.
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
    GREEN,
    PURPLE,
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


LEAST_SHARE, MOST_STRETCH = 0.5, 1.05
"""Targets: minimum share of the oracle's gain, and maximum p99 of stretch."""

NEAR: Final = 0.02
"""Distance from 1 up to which the stretch axis is about linear; farther away it is logarithmic."""

STRETCH_TICKS: Final = (1.0, 1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0)

AS_SET: Final = "as set (ringed)"
KINDS: Final = {
    AS_SET: BLACK,
    "theta varied": BLUE,
    "margins varied": GREEN,
    "floors eased": VERMILLION,
    "importance held, or fewer candidates": PURPLE,
}
"""Colour of a point by its kind, that is by the parameters that differ from the default policy."""


def gain_against_harm(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the share of the oracle's gain against the p99 of stretch, a point per parameter set of the frontier.

    A cross marks parameter sets that kill a job. The first row of each population must be the default policy; it is
    ringed. Dotted lines mark the targets. The stretch axis is widened near 1, where most points lie.
    """
    # Reversed, so that the default policy is drawn last, on top of the others.
    shown = _kinds(rows.filter(pl.col("devices") == "all")).reverse()
    x = (
        alt.X("over_one:Q")
        .title("p99 of stretch of started jobs (scale widened towards 1)")
        .scale(type="symlog", constant=NEAR, domainMin=-NEAR / 4.0, nice=False)
        .axis(values=[at - 1.0 for at in STRETCH_TICKS], labelFlush=False, labelExpr="format(datum.value + 1, '.2f')")
    )
    most = max(LEAST_SHARE + 0.05, float(shown.select(pl.max("share_hi").fill_nan(0.0)).item() or 0.0))
    y = alt.Y("share:Q").title("share of the oracle's gain in finished jobs").axis(format="%").scale(domainMax=most)
    legend = alt.Legend(orient="bottom", columns=3, symbolOpacity=1.0, symbolSize=120, labelLimit=400)
    colour = alt.Color("kind:N").title(None).scale(domain=list(KINDS), range=list(KINDS.values())).legend(legend)
    harm = (
        alt.Shape("harm:N")
        .title(None)
        .scale(domain=["kills none", "kills jobs"], range=["circle", "cross"])
        .legend(legend)
    )
    base = alt.Chart(shown)
    dots = base.mark_rule(strokeDash=[2, 3], color=BLACK)
    layers = alt.layer(
        dots.transform_calculate(asked=str(LEAST_SHARE)).encode(y="min(asked):Q"),
        dots.transform_calculate(asked=str(MOST_STRETCH - 1.0)).encode(x="min(asked):Q"),
        base.mark_rule(opacity=0.35).encode(x=x, y=alt.Y("share_lo:Q"), y2="share_hi:Q", color=colour),
        base.transform_filter(alt.datum.kind == AS_SET)
        .mark_point(size=350, color=BLACK, strokeWidth=2, opacity=1.0)
        .encode(x=x, y=y),
        base.mark_point(filled=True, size=60, opacity=1.0).encode(
            x=x,
            y=y,
            color=colour,
            shape=harm,
            tooltip=["theta:Q", "alpha0:Q", "cpu_margin:Q", "soft:Q", "hard:Q", "share:Q", "killed:Q", "stretch_p99:Q"],
        ),
    ).properties(width=380, height=320)
    chart: alt.FacetChart = layers.facet(column=alt.Column("gnn:N").title(None).sort(list(GNN.values())))
    return titled(chart, "Gain against harm over thresholds, margins and eased floors, truth contention", of)


def _kinds(rows: pl.DataFrame) -> pl.DataFrame:
    """Add columns for drawing: `kind` (a key of `KINDS`), `harm` (whether jobs are killed), `over_one` (p99 - 1)."""
    first = {name: pl.col(name).first().over("gnn") for name in ("theta", "cpu_margin", "soft", "hard")}
    varied = {name: pl.col(name) != as_set for name, as_set in first.items()}
    held = pl.col("sure_runs").is_null() | (pl.col("alpha0") != pl.col("alpha0").first().over("gnn"))
    _, theta, margins, eased, importance = KINDS
    kind = (
        pl.when(held)
        .then(pl.lit(importance))
        .when(varied["theta"])
        .then(pl.lit(theta))
        .when(varied["cpu_margin"])
        .then(pl.lit(margins))
        .when(varied["soft"] | varied["hard"])
        .then(pl.lit(eased))
        .otherwise(pl.lit(AS_SET))
    )
    killed = pl.when(pl.col("killed") > 0).then(pl.lit("kills jobs")).otherwise(pl.lit("kills none"))
    return rows.with_columns(
        kind=kind, harm=killed, over_one=pl.col("stretch_p99") - 1.0, gnn=pl.col("gnn").replace_strict(GNN)
    )
