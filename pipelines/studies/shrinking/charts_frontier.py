"""Gain against harm: every point of a frontier by what it kept of the oracle's gain and by what it cost.

Drawn from the rows of `pipelines.studies.shrinking.frontier`. Called by `pipelines.studies.shrinking.folder`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLACK, BLUE, GNN, GREEN, PURPLE, VERMILLION, titled

LEAST_SHARE, MOST_STRETCH = 0.5, 1.05
"""What the goal asks."""

NEAR: Final = 0.02
"""How far above one stretch is drawn in proportion; beyond, by its logarithm."""

STRETCH_TICKS: Final = (1.0, 1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0)

AS_SET: Final = "as set (ringed)"
KINDS: Final = {
    AS_SET: BLACK,
    "theta varied": BLUE,
    "margins varied": GREEN,
    "floors eased": VERMILLION,
    "importance held, or fewer candidates": PURPLE,
}
"""By what a point varies: its colour."""


def gain_against_harm(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw each point's share of the oracle's gain against its p99 of stretch; a cross where a job was killed.

    The first row of a population is the policy as it is set. Dotted lines are what the goal asks. Stretch is drawn on a
    scale that widens what lies close to one, where most points are.
    """
    # Drawn last, the policy as it is set lies on top.
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
    """Tell each point by what it varies of the first of its population."""
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
