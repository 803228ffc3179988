"""Style of charts: colours, font sizes, titles.

Colours are the colour-blind safe set of Okabe and Ito.
"""

from collections.abc import Sequence

import altair as alt

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "ORANGE",
    "PURPLE",
    "SKY",
    "VERMILLION",
    "YELLOW",
    "titled",
]

BLACK, GREEN, BLUE, VERMILLION, PURPLE = "#000000", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
ORANGE, SKY, YELLOW = "#E69F00", "#56B4E9", "#F0E442"


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
