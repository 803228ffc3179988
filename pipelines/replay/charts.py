"""The charts of a replay: how much of the oracle's gain each source of sizes keeps, and what large gangs pay for it.

Drawn from the rows of `rows` alone. Called by `replay.folder`.
"""

import altair as alt
import polars as pl

from pipelines.replay.orders import FIFO, ORDERS
from pipelines.replay.replay import UNSIZED
from pipelines.replay.rows import ALL, CLASSES
from pipelines.replay.sizes import ORACLE, PREDICTED

SOURCES = [PREDICTED, ORACLE, UNSIZED]
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
    x = alt.X("gain_kept:Q").title("share of the oracle's gain over FIFO").scale(domain=[LEAST_KEPT, 1.1], clamp=True)
    y, side = alt.Y("sizes:N").title(None).sort("-x"), alt.YOffset("order:N").sort(compared)
    colour = alt.Color("order:N").title("order").sort(compared)
    base = alt.Chart(shown)
    layers = alt.layer(
        base.mark_rule(strokeWidth=2, opacity=0.6).encode(
            x=alt.X("gain_kept_low:Q"), x2="gain_kept_high:Q", y=y, yOffset=side, color=colour
        ),
        base.mark_point(filled=True, size=60, opacity=1.0).encode(
            x=x,
            y=y,
            yOffset=side,
            color=colour,
            shape=alt.Shape("order:N").title("order").sort(compared),
            tooltip=["order:N", "sizes:N", "gain_kept:Q", "gain_kept_low:Q", "gain_kept_high:Q"],
        ),
    ).properties(width=300, height={"step": 34})
    chart: alt.FacetChart = layers.facet(facet=alt.Facet("reading:N").title(None), columns=2)
    return chart


def delays(rows: pl.DataFrame) -> alt.FacetChart:
    """Draw the mean delay by order for each class of gang, with its interval, a row of panels per reading."""
    hours = [(pl.col(f"delay_mean_s{end}") / 3600.0).alias(f"delay_mean_h{end}") for end in ("", "_low", "_high")]
    base = alt.Chart(_by_class(rows).with_columns(hours))
    x = alt.X("delay_mean_h:Q").title("mean delay, hours")
    y, side = alt.Y("order:N").title(None).sort([FIFO, *ORDERS]), alt.YOffset("sizes:N").sort(SOURCES)
    colour = alt.Color("sizes:N").title("sizes").sort(SOURCES)
    layers = alt.layer(
        base.mark_rule(strokeWidth=2, opacity=0.6).encode(
            x=alt.X("delay_mean_h_low:Q"), x2="delay_mean_h_high:Q", y=y, yOffset=side, color=colour
        ),
        base.mark_point(filled=True, size=40, opacity=1.0).encode(
            x=x, y=y, yOffset=side, color=colour, tooltip=["order:N", "sizes:N", "delay_mean_h:Q", "jobs:Q"]
        ),
    ).properties(width=190, height={"step": 22})
    chart: alt.FacetChart = layers.facet(
        column=alt.Column("gang_gpus:N").title("GPUs of the gang").sort(list(CLASSES)),
        row=alt.Row("reading:N").title(None),
    ).resolve_scale(x="independent")
    return chart


def tails(rows: pl.DataFrame) -> alt.FacetChart:
    """Draw the p99 of JCT by order for each class of gang, with predicted sizes, a row of panels per reading."""
    shown = _by_class(rows).with_columns(jct_p99_h=pl.col("jct_p99_s") / 3600.0)
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


def _by_class(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of all pools together, by class of gang, with predicted and oracle sizes and without any."""
    return rows.filter(
        pl.col("vc") == ALL,
        pl.col("gang_gpus").is_in(list(CLASSES)),
        pl.col("sizes").is_in(SOURCES),
        pl.col("jobs") > 0,
    )
