"""Style of charts: colours, font sizes, titles, subtitle lines that name the data and counts; marks that charts share.

Colours are Okabe and Ito's, amounts use cividis: both are colour-blind safe, and amounts readable in greyscale.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import altair as alt
import polars as pl

__all__ = ["BLACK", "BLUE", "GREEN", "ORANGE", "PURPLE", "SKY", "VERMILLION", "YELLOW", "saved", "titled"]

BLACK, GREEN, BLUE, VERMILLION, PURPLE = "#000000", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
ORANGE, SKY, YELLOW = "#E69F00", "#56B4E9", "#F0E442"
SERIES: Final = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
"""One colour for each trace, in the order in which traces are given."""
DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [10, 4], [1, 3])
AMOUNTS: Final = "cividis"
FAINT: Final = "#d9d9d9"
PNG_SCALE: Final = 2.0
"""Pixels per unit."""

TITLE_CHARACTERS, LINE_CHARACTERS = 44, 60
"""Maximum number of characters of a line in titles and in subtitles; such lines fit on a phone."""

Chart = alt.Chart | alt.LayerChart
Channel = TypeVar("Channel", alt.X, alt.Y)

_LINE_LEGEND: Final = alt.Legend(symbolType="stroke", symbolStrokeWidth=2, symbolSize=300, symbolOpacity=1.0)


def panel(chart: Chart, title: str, of: Sequence[str], *, height: int | None = 190) -> alt.TopLevelMixin:
    """Return the chart with its title, subtitle lines (data and counts), width and readable fonts.

    With `height` None, the rows of the chart determine the height.
    """
    lines = [line for each in of for line in textwrap.wrap(each, LINE_CHARACTERS, break_on_hyphens=False)]
    heading = alt.TitleParams(textwrap.wrap(title, TITLE_CHARACTERS, break_on_hyphens=False), subtitle=lines)
    sized = chart.properties(title=heading, width="container", description=f"{title}. {'; '.join(of)}")
    sized = sized if height is None else sized.properties(height=height)
    # Configure everything in one call, because a second call would overwrite these settings.
    given: alt.TopLevelMixin = sized.configure(
        font="sans-serif",
        padding={"left": 5, "top": 5, "right": 10, "bottom": 5},  # half of a last tick's label extends to the right
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        title=alt.TitleConfig(
            anchor="start", frame="bounds", fontSize=13, subtitleFontSize=11, subtitleColor="#444444", offset=10
        ),
        axis=alt.AxisConfig(
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
            gridOpacity=0.4,
            labelLimit=140,
            labelSeparation=5,
        ),
        legend=alt.LegendConfig(
            orient="bottom", labelFontSize=11, titleFontSize=11, titleFontWeight="normal", columns=3, labelLimit=150
        ),
        view=alt.ViewConfig(stroke="#cccccc"),
    )
    return given


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


def drawn(
    rows: pl.DataFrame,
    mark: Literal["bar", "line", "point", "rect"],
    *,
    style: Mapping[str, Any] | None = None,  # Any: properties of a mark
    **channels: Any,  # Any: as `alt.Chart.encode` takes them
) -> alt.Chart:
    """Return a chart of one mark, with channels as in `alt.Chart.encode`."""
    return alt.Chart(rows, mark=alt.MarkDef(type=mark, **(style or {}))).encode(**channels)


def tips(form: str, *columns: str) -> list[alt.Tooltip]:
    """Return tooltips of numbers with one format."""
    return [alt.Tooltip(f"{name}:Q", format=form) for name in columns]


def names(column: str, rows: pl.DataFrame, title: str | None = None) -> alt.Y:
    """Return a vertical axis of the names in a column, in the order of the rows."""
    return alt.Y(f"{column}:N").title(title).sort(rows[column].unique(maintain_order=True).to_list())


def share(channel: type[Channel], column: str, title: str, *, whole: bool = False) -> Channel:
    """Return an axis of shares in percent; a `whole` one is from 0 to 100 %."""
    axis: Channel = channel(f"{column}:Q").title(title).axis(format="%")
    return axis.scale(domain=[0, 1], clamp=True) if whole else axis


def with_counts(column: str, count: str) -> pl.Expr:
    """Return names followed by a count, as `T4  n=12`."""
    counts = pl.col(count).map_elements(spaced, return_dtype=pl.String)
    return pl.concat_str(pl.col(column).cast(pl.String).fill_null("unknown"), pl.lit("  n="), counts)


def tall(rows: pl.DataFrame, each_px: int = 24) -> int:
    """Return the height in pixels of a chart with one line per row."""
    return max(70, each_px * rows.height)


def ranges(
    rows: pl.DataFrame, y: alt.Y, x: alt.X, columns: Sequence[str], colour: int, tooltip: Sequence[str | alt.Tooltip]
) -> alt.LayerChart:
    """Draw a line (from `x`), a bar on it and a tick for each row: `columns` are line end, bar start and end, tick."""
    high, start, end, middle = (f"{name}:Q" for name in columns)
    base, hue = alt.Chart(rows).encode(y=y), SERIES[colour % len(SERIES)]
    line = base.mark_rule(color=hue).encode(x=x, x2=high)
    bar = base.mark_bar(height=9, color=hue, opacity=0.55).encode(x=start, x2=end, tooltip=list(tooltip))
    tick = base.mark_tick(color=BLACK, thickness=2, height=14).encode(x=middle, tooltip=list(tooltip))
    return cast("alt.LayerChart", alt.layer(line, bar, tick))


def traces_in(rows: pl.DataFrame) -> list[str]:
    """Return the traces of a frame, in the order in which they appear."""
    return rows["trace"].unique(maintain_order=True).to_list()


def trace_colour(rows: pl.DataFrame, every: Sequence[str], *, line: bool = False) -> alt.Color:
    """Return the colours of the traces in a frame; `every` lists all traces, so that a trace keeps its colour.

    With `line`, the legend symbol is a line, so that the dashes of `trace_dash` merge into it.
    """
    names = traces_in(rows)
    colours = [SERIES[every.index(name) % len(SERIES)] for name in names]
    colour = alt.Color("trace:N").title(None).scale(domain=names, range=colours)
    if len(every) < 2:
        return colour.legend(None)
    return colour.legend(_LINE_LEGEND) if line else colour


def trace_dash(rows: pl.DataFrame, every: Sequence[str]) -> alt.StrokeDash:
    """Return the line dashes of the traces in a frame, merged into the legend of their colours."""
    names = traces_in(rows)
    dashes = [DASHES[every.index(name) % len(DASHES)] for name in names]
    dash = alt.StrokeDash("trace:N").title(None).scale(domain=names, range=dashes)
    return dash.legend(_LINE_LEGEND if len(every) > 1 else None)


def counted(pairs: Iterable[tuple[str, int]], unit: str) -> str:
    """Return the subtitle line that states the count of each trace.

    >>> counted([("pai", 824), ("philly", 5826)], "jobs")
    'n (jobs): pai 824, philly 5\u202f826'
    """
    return f"n ({unit}): " + ", ".join(f"{name} {spaced(count)}" for name, count in pairs)


def counted_in(rows: pl.DataFrame, column: str, unit: str) -> str:
    """Return the subtitle line that states the sum of a column of counts for each trace."""
    return counted(rows.group_by("trace", maintain_order=True).agg(pl.col(column).sum()).iter_rows(), unit)


def total(rows: pl.DataFrame, column: str) -> str:
    """Return the sum of a column of counts as formatted text."""
    return spaced(int(rows[column].sum()))


def spaced(number: float) -> str:
    """Format an integer with narrow spaces between its thousands.

    >>> spaced(1234567)
    '1\u202f234\u202f567'
    """
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def saved(chart: alt.TopLevelMixin, folder: Path, name: str, *, png: bool = True) -> list[Path]:
    """Write a chart as HTML, SVG and PNG files called `name`, with any number of rows; return the files."""
    page, drawing, picture = (folder / f"{name}.{kind}" for kind in ("html", "svg", "png"))
    with alt.data_transformers.enable("default", max_rows=None):
        chart.save(page, inline=True)
        chart.save(drawing)
        if png:
            chart.save(picture, scale_factor=PNG_SCALE)
    return [page, drawing, picture] if png else [page, drawing]
