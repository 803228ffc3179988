"""One chart for every study: lines or points by series, with 95 % intervals, in panels."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import altair as alt
import polars as pl

from pipelines.report.panels import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, titled

__all__ = ["Axis", "chart"]

COLOURS: Final = (BLACK, BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE, YELLOW)

Axis = tuple[str, str, str]
"""A column (as `name:Q`, `name:N`), the axis title, and the number format (`%`, `d`, or empty)."""


def chart(
    rows: pl.DataFrame,
    *,
    x: Axis,
    y: Axis,
    series: str,
    names: Mapping[str, str],
    panel: str,
    title: str,
    of: Sequence[str],
    mark: Literal["line", "point"] = "line",
    dash: str | None = None,
    columns: int = 3,
) -> alt.TopLevelMixin:
    """Draw `y` over `x`: a colour for each value of the column `series`, a panel for each value of `panel`.

    `names` has the legend name of each series, in legend order; other series are left out. If the rows have the ends
    of `y`'s interval (`_lo`, `_hi`), they are drawn. `dash` is a column that dashes the lines. `of` is the subtitle.
    """
    kept = rows.filter(pl.col(series).is_in(list(names)))
    kept = kept.with_columns(series_name=pl.col(series).replace_strict(dict(names), return_dtype=pl.String))
    shown = [name for name in names.values() if name in kept["series_name"]]
    legend = alt.Legend(orient="bottom", columns=4, symbolOpacity=1.0)
    colours = [COLOURS[at % len(COLOURS)] for at in range(len(shown))]
    colour = alt.Color("series_name:N").title(None).scale(domain=shown, range=colours).legend(legend)
    value = y[0].partition(":")[0]
    across = alt.X(x[0]).title(x[1]).axis(format=x[2], labelFlush=False)
    across = across.scale(zero=False, nice=False) if x[0].endswith(":Q") else across.sort(None)
    place = {"x": across, "color": colour}
    if mark == "point" and not x[0].endswith(":Q"):
        place["xOffset"] = alt.XOffset("series_name:N").sort(shown)
    up = alt.Y(y[0]).title(y[1]).axis(format=y[2])
    base = alt.Chart(kept)
    marked = base.mark_point(filled=True, size=60) if mark == "point" else base.mark_line(strokeWidth=1.8)
    dashed = {} if dash is None else {"strokeDash": alt.StrokeDash(f"{dash}:N").title(None)}
    layers = [marked.encode(y=up, **place, **dashed)]
    if f"{value}_lo" in kept.columns:
        ends = base.mark_rule(opacity=0.5) if mark == "point" else base.mark_area(opacity=0.18)
        layers.insert(0, ends.encode(y=alt.Y(f"{value}_lo:Q").title(y[1]), y2=f"{value}_hi:Q", **place))
    facet = alt.Facet(f"{panel}:N").title(None).sort(kept[panel].unique(maintain_order=True).to_list())
    return titled(alt.layer(*layers).properties(width=230, height=180).facet(facet=facet, columns=columns), title, of)
