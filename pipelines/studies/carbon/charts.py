"""Charts of the carbon study: completion time by energy, ratios at equal energy, and carbon by month.

Called by `study` and `months`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLACK, BLUE, GREEN, PURPLE, VERMILLION, titled

ORANGE, SKY, GREY = "#E69F00", "#56B4E9", "#8C8C8C"
ARMS: Final = {
    "taut": ("taut, energy at a price", BLUE, [1, 0]),
    "two_stages": ("two stages, a budget a period", PURPLE, [1, 0]),
    "two_stages_banked": ("two stages, unused budget kept", SKY, [1, 0]),
    "counts_alone": ("counts alone", ORANGE, [6, 3]),
    "frequency_alone": ("frequency alone", BLACK, [6, 3]),
    "greedy_max": ("greedy counts, highest frequency", VERMILLION, [1, 0]),
    "fixed_optimal": ("requested counts, best frequency", GREEN, [1, 0]),
    "fifo_max": ("FIFO, highest frequency", BLACK, [2, 2]),
    "bound": ("none can be below (bound)", GREY, [4, 2]),
}
"""Name in legends, colour and dash pattern of each arm."""

BOUND: Final = "bound"
"""Name of the lower bound, which is drawn as a curve without points."""

BAR: Final = 1.5
WIDTH, HEIGHT = 300, 240


def time_over_energy(curves: pl.DataFrame, settings: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw each arm's mean completion time against energy: one point per budget or price, one panel per setting."""
    shown = _named(curves).with_columns(jct_h=pl.col("mean_jct_s") / 3600.0)
    base, colour = alt.Chart(shown), _colour(shown)
    x = alt.X("kwh:Q").title("energy of running GPUs, kWh").scale(zero=False)
    y = alt.Y("jct_h:Q").title("mean completion time, h (log)").scale(type="log", nice=False)
    layers = alt.layer(
        base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=_dash(shown), order="kwh:Q"),
        base.transform_filter(alt.datum.arm != BOUND)
        .mark_point(filled=True, size=35, opacity=1.0)
        .encode(x=x, y=y, color=colour),
    ).properties(width=WIDTH, height=HEIGHT)
    chart = layers.facet(facet=alt.Facet("setting:N").title(None).sort(list(settings)), columns=3)
    return titled(chart.resolve_scale(x="independent", y="independent"), "Completion time over energy", of)


def shorter_by_setting(rows: pl.DataFrame, settings: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the ratio of each arm's mean completion time to taut's at equal energy, by setting and arm."""
    judged = (pl.col("counted") == "busy") & (pl.col("ours") == "taut") & pl.col("shorter").is_finite()
    shown = _named(rows.filter(judged))
    base = alt.Chart(shown)
    y = alt.Y("setting:N").title(None).sort(list(settings)).axis(labelLimit=260)
    place = {"y": y, "yOffset": alt.YOffset("arm:N").sort(list(ARMS)), "color": _colour(shown)}
    layers = alt.layer(
        base.mark_rule(color=BLACK, strokeDash=[2, 3]).encode(x=alt.datum(BAR)),
        base.mark_rule(color=BLACK, strokeDash=[1, 0], opacity=0.4).encode(x=alt.datum(1.0)),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("shorter_lo:Q"), x2="shorter_hi:Q", **place),
        base.mark_point(filled=True, size=60, opacity=1.0).encode(
            x=alt.X("shorter:Q")
            .title("mean time of the arm over taut's at equal kWh (dotted: the bar)")
            .scale(zero=False),
            **place,
        ),
    ).properties(width=2 * WIDTH, height=75 * len(settings))
    return titled(alt.vconcat(layers), "How many times shorter at equal energy", of)


def carbon_over_time(points: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw carbon against mean completion time for each kind of budget or price, one panel per zone and month."""
    shown = points.with_columns(jct_h=pl.col("mean_jct_s") / 3600.0)
    names = shown["budget"].unique(maintain_order=True).to_list()
    colours = [BLACK, BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE][: len(names)]
    legend = alt.Legend(orient="bottom", columns=4, labelLimit=300)
    colour = alt.Color("budget:N").title(None).scale(domain=names, range=colours).legend(legend)
    base = alt.Chart(shown)
    x = alt.X("jct_h:Q").title("mean completion time, h (log)").scale(type="log", nice=False)
    y = alt.Y("kg:Q").title("carbon of running GPUs, kg CO2eq").scale(zero=False)
    layers = alt.layer(
        base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, order="kg:Q"),
        base.mark_point(filled=True, size=35, opacity=1.0).encode(x=x, y=y, color=colour),
    ).properties(width=WIDTH, height=HEIGHT)
    chart = layers.facet(facet=alt.Facet("panel:N").title(None), columns=2)
    return titled(chart.resolve_scale(x="independent", y="independent"), "Carbon over completion time", of)


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    names = {arm: name for arm, (name, _, _) in ARMS.items()}
    return rows.filter(pl.col("arm").is_in(list(ARMS))).with_columns(name=pl.col("arm").replace_strict(names))


def _colour(shown: pl.DataFrame) -> alt.Color:
    legend = alt.Legend(orient="bottom", columns=3, symbolOpacity=1.0, labelLimit=300)
    domain, colours, _ = _looks(shown)
    return alt.Color("name:N").title(None).scale(domain=domain, range=colours).legend(legend)


def _dash(shown: pl.DataFrame) -> alt.StrokeDash:
    domain, _, dashes = _looks(shown)
    return alt.StrokeDash("name:N").title(None).scale(domain=domain, range=dashes)


def _looks(shown: pl.DataFrame) -> tuple[list[str], list[str], list[list[int]]]:
    """Return legend names, colours and dashes of the arms in the frame."""
    there = set(shown["arm"])
    looks = [look for arm, look in ARMS.items() if arm in there]
    return [name for name, _, _ in looks], [colour for _, colour, _ in looks], [dash for _, _, dash in looks]
