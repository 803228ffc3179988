"""The charts of a replay: how much of the oracle's gain each source of sizes keeps, and what large gangs pay for it.

Drawn from the rows of `rows` alone. Called by `replay.folder`.
"""

import altair as alt
import polars as pl

from pipelines.replay.orders import FIFO, ORDERS
from pipelines.replay.replay import UNSIZED
from pipelines.replay.rows import ALL, CLASSES
from pipelines.replay.sizes import ORACLE, PREDICTED

LEAST_KEPT = -1.0
"""Where the axis of kept gain ends: what loses more than the oracle gains is drawn at the border."""


def gain_kept(rows: pl.DataFrame) -> alt.FacetChart:
    """Draw the share of the oracle's gain over FIFO that each source of sizes keeps, by order, a panel per reading."""
    compared = [name for name, order in ORDERS.items() if order.compared]
    shown = rows.filter(
        pl.col("vc") == ALL,
        pl.col("gang_gpus") == ALL,
        pl.col("order").is_in(compared),
        pl.col("sizes") != ORACLE,
        pl.col("gain_kept").is_not_null(),
    )
    points = (
        alt.Chart(shown)
        .mark_point(filled=True, size=80)
        .encode(
            x=alt.X("gain_kept:Q")
            .title("share of the oracle's gain over FIFO")
            .scale(domain=[LEAST_KEPT, 1], clamp=True),
            y=alt.Y("sizes:N").title(None).sort("-x"),
            color=alt.Color("order:N").title("order").sort(compared),
            shape=alt.Shape("order:N").title("order").sort(compared),
            tooltip=[f"{name}:{kind}" for name, kind in (("order", "N"), ("sizes", "N"), ("gain_kept", "Q"))],
        )
        .properties(width=300, height={"step": 22})
    )
    chart: alt.FacetChart = points.facet(facet=alt.Facet("reading:N").title(None), columns=2)
    return chart


def tails(rows: pl.DataFrame) -> alt.FacetChart:
    """Draw the p99 of JCT by order for each class of gang, with predicted sizes, a row of panels per reading."""
    shown = rows.filter(
        pl.col("vc") == ALL,
        pl.col("gang_gpus").is_in(list(CLASSES)),
        pl.col("sizes").is_in([PREDICTED, ORACLE, UNSIZED]),
        pl.col("jobs") > 0,
    ).with_columns(jct_p99_h=pl.col("jct_p99_s") / 3600.0)
    points = (
        alt.Chart(shown)
        .mark_point(filled=True, size=60)
        .encode(
            x=alt.X("jct_p99_h:Q").title("p99 of JCT, hours").scale(type="log"),
            y=alt.Y("order:N").title(None).sort([FIFO, *ORDERS]),
            color=alt.Color("sizes:N").title("sizes"),
            tooltip=["order:N", "sizes:N", "jct_p99_h:Q", "delay_mean_s:Q", "slowdown_max:Q"],
        )
        .properties(width=170, height={"step": 16})
    )
    chart: alt.FacetChart = points.facet(
        column=alt.Column("gang_gpus:N").title("GPUs of the gang").sort(list(CLASSES)),
        row=alt.Row("reading:N").title(None),
    )
    return chart
