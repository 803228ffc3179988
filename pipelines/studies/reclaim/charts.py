"""Charts of the reclaiming study: gain against harm by arm.

Each chart shows one variation and one queue order. Drawn from the rows of the study. Called by `study`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, titled
from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, UNGUARDED
from pipelines.simulation.reclaiming import RECLAIM, RECLAIM_PRIOR
from pipelines.studies.reclaim.arms import BOUND
from pipelines.studies.study import Row

LOOKS: Final = {
    RECLAIM: ("reclaim", BLUE, "circle"),
    RECLAIM_PRIOR: ("reclaim, newcomers by models", BLUE, "square"),
    "probation_peak": ("probation, then peak", BLACK, "diamond"),
    SHRUNK: ("Algorithm 1 above floors", ORANGE, "circle"),
    UNGUARDED: ("Algorithm 1 as published", ORANGE, "square"),
    "p95": ("p95 of similar jobs", ORANGE, "triangle-up"),
    "overcommit_1.25": ("overcommit 1.25", SKY, "circle"),
    "overcommit_1.5": ("overcommit 1.5", SKY, "square"),
    "overcommit_2": ("overcommit 2", SKY, "triangle-up"),
    "overcommit_1.25_memory": ("overcommit 1.25, memory 1.5", PURPLE, "circle"),
    "overcommit_1.5_memory": ("overcommit 1.5, memory 1.5", PURPLE, "square"),
    "overcommit_2_memory": ("overcommit 2, memory 1.5", PURPLE, "triangle-up"),
    ORACLE: ("oracle: mean use at submission", GREEN, "diamond"),
    BOUND: ("bound: true mean and spread", GREEN, "circle"),
}
"""Legend name, colour and shape of each arm, in legend order."""

MIXES: Final = {"no-gnn": "mix without GNN", "gnn": "mix with GNN", "all": "all jobs"}
SHARINGS: Final = {"pooled": "GPUs pooled", "devices": "GPUs by devices"}
PANELS: Final = {(mix, sharing): f"{said}, {how}" for mix, said in MIXES.items() for sharing, how in SHARINGS.items()}

LEAST_SHARE: Final = {"pooled": 0.55, "devices": 0.45}
MOST_STRETCH: Final = 1.05
"""Targets of the study for jobs of the paper's mix."""

NEAR: Final = 0.02
"""Distance from 1 up to which the stretch axis is about linear; farther away it is logarithmic."""

TICKS: Final = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


def drawings(rows: Sequence[Row], of: Sequence[str]) -> dict[str, Callable[[], alt.TopLevelMixin]]:
    """Return the function that draws each chart, by file name: one per variation and queue order.

    Rows without a share (the oracle gains nothing) are left out.
    """
    rows = [row for row in rows if math.isfinite(float(str(row["share"])))]
    if not rows:
        return {}
    frame = pl.DataFrame(rows, infer_schema_length=None)
    groups = frame.partition_by("variation", "policy", maintain_order=True, as_dict=True)
    return {
        f"reclaim_{variation}_{policy}": partial(
            gain_against_stretch, members, [*of, f"variation {variation}, {str(policy).upper()}"]
        )
        for (variation, policy), members in groups.items()
    }


def gain_against_stretch(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the share of the oracle's gain against the p99 of stretch: a point per arm, a panel per mix and sharing.

    A red ring marks arms that kill a job. Dotted lines mark the targets. The stretch axis is widened near 1.
    """
    shown = _panelled(rows.filter(pl.col("arm") != REQUESTED)).with_columns(
        name=pl.col("arm").replace_strict({arm: name for arm, (name, _, _) in LOOKS.items()}),
        over_one=pl.col("stretch_p99") - 1.0,
        least=pl.col("sharing").replace_strict(LEAST_SHARE),
        most=pl.lit(MOST_STRETCH - 1.0),
    )
    present = [LOOKS[arm] for arm in LOOKS if arm in shown["arm"]]
    names, colours, shapes = ([look[at] for look in present] for at in range(3))
    highest = float(shown.select(pl.max("over_one")).item() or 0.0)
    x = (
        alt.X("over_one:Q")
        .title("p99 of stretch of started jobs (scale widened towards 1)")
        .scale(type="symlog", constant=NEAR, domain=[-NEAR / 4.0, max(highest * 1.1, 0.06)], nice=False)
        .axis(values=[at - 1.0 for at in TICKS], labelFlush=False, labelExpr="format(datum.value + 1, '.2f')")
    )
    bounds = [float(shown.select(end).item() or 0.0) for end in (pl.min("share") - 0.2, pl.max("share") + 0.2)]
    gain = "share of the oracle's gain in finished jobs"
    y = alt.Y("share:Q").title(gain).axis(format="%").scale(domain=bounds, nice=False)
    legend = alt.Legend(orient="bottom", columns=3, symbolOpacity=1.0, symbolSize=110, labelLimit=400)
    colour = alt.Color("name:N").title(None).scale(domain=names, range=colours).legend(legend)
    shape = alt.Shape("name:N").title(None).scale(domain=names, range=shapes).legend(legend)
    base = alt.Chart(shown)
    dots = base.mark_rule(strokeDash=[2, 3], color=BLACK)
    layers = alt.layer(
        dots.encode(y="min(least):Q"),
        dots.encode(x="min(most):Q"),
        base.mark_rule(opacity=0.4, clip=True).encode(
            x=x, y=alt.Y("share_lo:Q").title(gain), y2="share_hi:Q", color=colour
        ),
        base.transform_filter(alt.datum.killed > 0)
        .mark_point(size=260, color=VERMILLION, strokeWidth=1.5, opacity=1.0)
        .encode(x=x, y=y),
        base.mark_point(filled=True, size=70, opacity=1.0).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=["name:N", "share:Q", "killed:Q", "stretch_p99:Q"]
        ),
    ).properties(width=380, height=300)
    chart: alt.FacetChart = layers.facet(facet=alt.Facet("panel:N").title(None).sort(_panels(shown)), columns=2)
    said = [*of, "lines: 95 % intervals, cut at the frame; dotted: the targets; red ring: jobs were killed"]
    return titled(chart, "Gain against stretch by arm", said)


def _panelled(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the title of a row's panel."""
    return rows.with_columns(
        panel=pl.concat_str(
            pl.col("mix").replace_strict(MIXES), pl.lit(", "), pl.col("sharing").replace_strict(SHARINGS)
        )
    )


def _panels(shown: pl.DataFrame) -> list[str]:
    return [name for name in PANELS.values() if name in shown["panel"]]
