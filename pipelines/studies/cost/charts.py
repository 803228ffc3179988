"""Charts of the cost study: cost by load, and the parts of the cost.

Drawn from the frame of all runs. Called by `pipelines.studies.cost.study`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILLION, titled
from pipelines.studies.cost.arms import AHEAD, CONFIGURATIONS, GREEDY, as_asked, first_principle
from pipelines.studies.cost.settings import EXACT
from pipelines.studies.study import summed_up

COLOURS: Final = {
    AHEAD: BLUE,
    GREEDY: BLACK,
    **dict(zip(first_principle(), (VERMILLION, VERMILLION, GREEN, GREEN, PURPLE, PURPLE), strict=True)),
}
"""Look of each policy. Colour shows the queue order; dashes and squares show the rule `fixed`."""

PARTS: Final = {"tardiness_usd": "tardiness", "energy_usd": "energy"}
SEARCHES: Final = (AHEAD, GREEDY)
WIDTH, HEIGHT = 420, 280


def cost_over_load(runs: pl.DataFrame, said: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the mean cost of a run by offered load with 95 % intervals, a panel for each configuration rule."""
    means = pl.DataFrame(summed_up(runs.filter(pl.col("study") == EXACT), ("load", "arm"), ["total_usd"]))
    shown = pl.concat(
        means.filter(pl.col("arm").is_in(SEARCHES) | pl.col("arm").str.ends_with(name)).with_columns(
            panel=pl.lit(f"beside {name} configurations"), low=pl.col("total_usd_lo").clip(0.0)
        )
        for name in CONFIGURATIONS
    )
    x = alt.X("load:Q").title("offered load").axis(format=".1f").scale(zero=False, nice=False)
    base = alt.Chart(shown)
    bands = base.mark_area(opacity=0.13).encode(
        x=x, y=alt.Y("low:Q").title("cost of a run, USD"), y2="total_usd_hi:Q", color=_colour()
    )
    y = alt.Y("total_usd:Q")
    lines = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=_colour(), strokeDash=_dash())
    # With one load there is no line, so dashes are left out.
    points = base.mark_point(size=45, filled=True, opacity=1.0).encode(x=x, y=y, color=_colour(), shape=_shape())
    layers = alt.layer(bands, lines, points).properties(width=WIDTH - 80, height=HEIGHT)
    chart = layers.facet(column=alt.Column("panel:N").title(None))
    return titled(chart, "Cost of tardiness and energy over load", [*said, "bands: 95 % of means over seeds"])


def parts_of_cost(runs: pl.DataFrame, middle: float, said: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the parts of each policy's cost at the load `middle`."""
    kept = runs.filter(pl.col("study") == EXACT, pl.col("load") == middle)
    means = kept.group_by("arm", maintain_order=True).agg(pl.col(*PARTS, "total_usd").mean())
    shown = pl.concat(
        means.select("arm", usd=pl.col(name), part=pl.lit(part), rank=pl.lit(at))
        for at, (name, part) in enumerate(reversed(PARTS.items()))
    )
    bars = (
        alt.Chart(shown)
        .mark_bar()
        .encode(
            x=alt.X("usd:Q").title("cost of a run, USD"),
            y=alt.Y("arm:N").title(None).sort(list(COLOURS)).axis(labelLimit=220),
            color=alt.Color("part:N")
            .title(None)
            .scale(domain=["energy", "tardiness"], range=[ORANGE, "#999999"])
            .legend(orient="bottom", symbolType="square", symbolStrokeWidth=0),
            order=alt.Order("rank:Q"),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
    return titled(alt.vconcat(bars), f"What costs are made of, load {middle:g}", said)


def _colour() -> alt.Color:
    colour = alt.Color("arm:N").title(None).scale(domain=list(COLOURS), range=list(COLOURS.values()))
    return colour.legend(orient="bottom", columns=3, symbolType="stroke", symbolOpacity=1.0)


def _shape() -> alt.Shape:
    shapes = ["square" if as_asked(name) else "circle" for name in COLOURS]
    return alt.Shape("arm:N").title(None).scale(domain=list(COLOURS), range=shapes)


def _dash() -> alt.StrokeDash:
    dashes = [[5, 3] if "fixed" in name else [1, 0] for name in COLOURS]
    return alt.StrokeDash("arm:N").title(None).scale(domain=list(COLOURS), range=dashes)
