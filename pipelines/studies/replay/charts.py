"""Charts of replays: share of the oracle's gain that each source of sizes keeps, and delays by gang size.

Drawn from the rows that `rows` makes. Called by `study`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLUE, GREEN, PURPLE, VERMILLION, titled
from pipelines.studies.replay.means import MEANS
from pipelines.studies.replay.orders import FIFO, ORDERS, UNSIZED
from pipelines.studies.replay.rows import ALL, CLASSES
from pipelines.studies.replay.sizes import MEDIANS, ORACLE, PREDICTED

KEPT_FROM, KEPT_TO = -1.0, 1.1
"""Ends of the axis of the kept gain; values beyond them are drawn at the ends."""

COMPARED: Final = [name for name, order in ORDERS.items() if order.compared]
SOURCES: Final = [PREDICTED, *MEANS, *MEDIANS]
SHOWN: Final = {PREDICTED: BLUE, ORACLE: GREEN, UNSIZED: VERMILLION}
"""Sources of sizes in the charts by gang class, with their colours."""

HOURS: Final = [0.1, 1.0, 10.0, 100.0, 1000.0]
GANGS: Final = [f"{name} GPU{'s' * (name != '1')} a gang" for name in CLASSES]


def gain_kept(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the share of the oracle's gain over FIFO that each source of sizes keeps, by queue order.

    There is one panel per reading.
    """
    shown = rows.filter(
        pl.col("vc") == ALL,
        pl.col("gang_gpus") == ALL,
        pl.col("order").is_in(COMPARED),
        pl.col("sizes") != ORACLE,
        pl.col("gain_kept").is_not_null(),
    ).with_columns(pl.col("gain_kept", "gain_kept_low", "gain_kept_high").cast(pl.Float64).clip(KEPT_FROM, KEPT_TO))
    colour = alt.Color("order:N").title(None).sort(COMPARED).scale(range=[VERMILLION, BLUE, PURPLE, GREEN])
    legend = alt.Legend(orient="bottom", symbolType="circle", symbolOpacity=1.0)
    x = alt.X("gain_kept:Q").title("share of the oracle's gain over FIFO").scale(domain=[KEPT_FROM, KEPT_TO])
    y = alt.Y("sizes:N").title(None).sort(SOURCES)
    side = alt.YOffset("order:N").sort(COMPARED)
    layers = _spans(shown, x, "gain_kept_low", "gain_kept_high", y, side, colour.legend(legend))
    said = [*of, "at the border: beyond it; without an interval: the oracle itself may gain nothing"]
    panels = layers.properties(width=300, height={"step": 26, "for": "position"})
    chart: alt.FacetChart = panels.facet(facet=alt.Facet("reading:N").title(None), columns=2)
    return titled(chart, "What sizes known at submission keep of the oracle's gain in mean JCT", said)


def delays(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the mean delay with its interval by queue order and gang class, with a row of panels per reading."""
    hours = [(pl.col(f"delay_mean_s{end}").cast(pl.Float64) / 3600.0).alias(f"h{end}") for end in ("", "_low", "_high")]
    shown = _by_class(rows).with_columns(hours)
    x = (
        alt.X("h:Q")
        .title("mean delay, hours")
        .scale(type="symlog", constant=0.1)
        .axis(values=[0.0, *HOURS], labelExpr="datum.value")
    )
    chart = _grid(_spans(shown, x, "h_low", "h_high", *_by_order(), _by_sizes()))
    return titled(chart, "How long gangs are delayed, by order", of)


def tails(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the p99 of JCT by queue order and gang class, with a row of panels per reading."""
    shown = _by_class(rows).with_columns(jct_p99_h=pl.col("jct_p99_s") / 3600.0)
    x = alt.X("jct_p99_h:Q").title("p99 of JCT, hours").scale(type="log").axis(values=HOURS, labelExpr="datum.value")
    y, side = _by_order()
    points = alt.Chart(shown).mark_point(filled=True, size=40, opacity=1.0)
    chart = _grid(alt.layer(points.encode(x=x, y=y, yOffset=side, color=_by_sizes())))
    return titled(chart, "The slowest hundredth of gangs, by order", of)


def _spans(
    shown: pl.DataFrame, x: alt.X, low: str, high: str, y: alt.Y, side: alt.YOffset, colour: alt.Color
) -> alt.LayerChart | alt.FacetChart:
    """Draw points with their intervals as lines from `low` to `high`."""
    base = alt.Chart(shown)
    spans, points = base.mark_rule(strokeWidth=2, opacity=0.6), base.mark_point(filled=True, size=40, opacity=1.0)
    return alt.layer(
        spans.encode(x=alt.X(f"{low}:Q"), x2=f"{high}:Q", y=y, yOffset=side, color=colour),
        points.encode(x=x, y=y, yOffset=side, color=colour),
    )


def _grid(layers: alt.LayerChart | alt.FacetChart) -> alt.FacetChart:
    panels = layers.properties(width=190, height={"step": 18, "for": "position"})
    chart: alt.FacetChart = panels.facet(
        column=alt.Column("gang:N").title(None).sort(GANGS), row=alt.Row("reading:N").title(None)
    )
    return chart


def _by_order() -> tuple[alt.Y, alt.YOffset]:
    return alt.Y("order:N").title(None).sort([FIFO, *ORDERS]), alt.YOffset("sizes:N").sort(list(SHOWN))


def _by_sizes() -> alt.Color:
    legend = alt.Legend(orient="bottom", symbolType="circle", symbolOpacity=1.0)
    scale = alt.Scale(domain=list(SHOWN), range=list(SHOWN.values()))
    return alt.Color("sizes:N").title("sizes").scale(scale).legend(legend)


def _by_class(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows by gang class over all pools, with predicted sizes, the oracle's sizes, or no sizes."""
    named = dict(zip(CLASSES, GANGS, strict=True))
    return rows.filter(
        pl.col("vc") == ALL,
        pl.col("gang_gpus").is_in(list(CLASSES)),
        pl.col("sizes").is_in(list(SHOWN)),
        pl.col("jobs") > 0,
    ).with_columns(gang=pl.col("gang_gpus").replace_strict(named))
