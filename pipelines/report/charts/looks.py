"""Style of study charts: a colour, dash and name for each arm of a study, font sizes, titles.

Colours are the colour-blind safe set of Okabe and Ito; dashes distinguish arms in greyscale.
Called by the chart functions.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

__all__ = [
    "ARMS",
    "BLACK",
    "BLUE",
    "CLAIM",
    "GNN",
    "GREEN",
    "HEIGHT",
    "ORANGE",
    "PURPLE",
    "SKY",
    "TRUTHS",
    "VERMILLION",
    "WIDTH",
    "YELLOW",
    "arm_colour",
    "arm_dash",
    "claim_shape",
    "named",
    "titled",
]

BLACK, GREEN, BLUE, VERMILLION, PURPLE = "#000000", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
ORANGE, SKY, YELLOW = "#E69F00", "#56B4E9", "#F0E442"

ARMS: Final = {
    "requested": "as requested",
    "shrunk": "shrunk, with floors",
    "unguarded": "shrunk as in the paper",
    "oracle": "oracle use",
}
"""Legend name of each arm, in legend order."""

CLAIM: Final = "claim of the paper"
_COLOURS: Final = {
    "requested": BLACK,
    "shrunk": BLUE,
    "unguarded": VERMILLION,
    "oracle": GREEN,
}
_DASHES: Final = {"requested": [1, 0], "shrunk": [1, 0], "unguarded": [6, 3], "oracle": [2, 2]}

TRUTHS: Final = ("unchanged", "predicted", "contention")
GNN: Final = {"with": "with GNN", "without": "without GNN"}

WIDTH, HEIGHT = 230, 170


def arm_colour(arms: Sequence[str] = tuple(ARMS), *, claim: bool = False) -> alt.Color:
    """Return the colours of arms by legend name; with `claim`, also the colour of a published number."""
    names, colours = [ARMS[arm] for arm in arms], [_COLOURS[arm] for arm in arms]
    if claim:
        names, colours = [*names, CLAIM], [*colours, PURPLE]
    legend = alt.Legend(orient="bottom", columns=5, symbolOpacity=1.0)
    if not claim:
        legend.symbolType = "stroke"
    return alt.Color("name:N").title(None).scale(domain=names, range=colours).legend(legend)


def claim_shape(arms: Sequence[str] = tuple(ARMS), *, symbol: str = "stroke") -> alt.Shape:
    """Return legend shapes: `symbol` for each arm, a diamond for a published number."""
    names = [*(ARMS[arm] for arm in arms), CLAIM]
    return alt.Shape("name:N").title(None).scale(domain=names, range=[*(symbol for _ in arms), "diamond"])


def arm_dash(*, claim: bool = False) -> alt.StrokeDash:
    """Return the dashes of arms, merged into the legend of their colours."""
    names, dashes = list(ARMS.values()), list(_DASHES.values())
    if claim:
        names, dashes = [*names, CLAIM], [*dashes, [1, 0]]
    return alt.StrokeDash("name:N").title(None).scale(domain=names, range=dashes)


def named(rows: pl.DataFrame, *columns: str | pl.Expr, **more: str | pl.Expr) -> pl.DataFrame:
    """Keep the rows of known arms that cover all device types; replace arm and population by their legend names."""
    kept = rows.filter(pl.col("devices") == "all", pl.col("arm").is_in(list(ARMS)))
    return kept.select(
        *columns, gnn=pl.col("gnn").replace_strict(GNN), name=pl.col("arm").replace_strict(ARMS), **_columns(more)
    )


def titled(chart: alt.FacetChart | alt.VConcatChart, title: str, subtitle: Sequence[str]) -> alt.TopLevelMixin:
    """Return the chart with its title, subtitle lines (data and counts) and readable fonts."""
    heading = alt.TitleParams(title, subtitle=list(subtitle), anchor="start", fontSize=15, offset=12)
    # Configure everything in one call, because a second call would overwrite these settings.
    given: alt.TopLevelMixin = chart.properties(title=heading).configure(
        font="sans-serif",
        axis=alt.AxisConfig(
            labelFontSize=11, titleFontSize=12, titleFontWeight="normal", grid=True, gridOpacity=0.4, labelFlush=False
        ),
        header=alt.HeaderConfig(labelFontSize=12, titleFontSize=12, labelFontWeight="bold"),
        legend=alt.LegendConfig(labelFontSize=12, symbolStrokeWidth=3, symbolSize=150, labelLimit=300),
        view=alt.ViewConfig(stroke="#cccccc"),
    )
    return given


def _columns(more: dict[str, str | pl.Expr]) -> dict[str, pl.Expr]:
    return {name: pl.col(each) if isinstance(each, str) else each for name, each in more.items()}
