"""Chart of replays: share of the oracle's gain that each source of sizes keeps.

Drawn from the rows that `rows` makes. Called by `study`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLUE, GREEN, PURPLE, VERMILLION, titled
from pipelines.studies.replay.means import MEANS
from pipelines.studies.replay.orders import ORDERS
from pipelines.studies.replay.rows import ALL
from pipelines.studies.replay.sizes import MEDIANS, ORACLE, PREDICTED

KEPT_FROM, KEPT_TO = -1.0, 1.1
"""Ends of the axis of the kept gain; values beyond them are drawn at the ends."""

COMPARED: Final = [name for name, order in ORDERS.items() if order.compared]
SOURCES: Final = [PREDICTED, *MEANS, *MEDIANS]


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
    place = {"y": y, "yOffset": side, "color": colour.legend(legend)}
    base = alt.Chart(shown)
    layers = alt.layer(
        base.mark_rule(strokeWidth=2, opacity=0.6).encode(x=alt.X("gain_kept_low:Q"), x2="gain_kept_high:Q", **place),
        base.mark_point(filled=True, size=40, opacity=1.0).encode(x=x, **place),
    )
    said = [*of, "at the border: beyond it; without an interval: the oracle itself may gain nothing"]
    panels = layers.properties(width=300, height={"step": 26, "for": "position"})
    chart: alt.FacetChart = panels.facet(facet=alt.Facet("reading:N").title(None), columns=2)
    return titled(chart, "What sizes known at submission keep of the oracle's gain in mean JCT", said)
