"""Figures 2 to 6 of Yang, Hong and Tang: lines or points by arm, with 95 % intervals, in panels."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.panels import BLACK, BLUE, titled
from pipelines.simulation.advice import REQUESTED
from pipelines.studies.compare import ARM
from pipelines.studies.shrinking.runs import STEP_S, level_rows
from pipelines.studies.study import DrawChart, Row

FIT: Final = "fit"
"""The arm: Algorithm 1 with the parameters that come nearest to the published figures of experiment 1."""

NAMES: Final = {REQUESTED: "as requested", FIT: "Algorithm 1, fitted"}
"""Legend name of each arm."""

COLOURS: Final = (BLACK, BLUE)

Axis = tuple[str, str, str]
"""A column (as `name:Q`, `name:N`), the axis title, and the number format (`%`, `d`, or empty)."""


def chart(rows: pl.DataFrame, *, x: Axis, y: Axis, panel: str, title: str, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw `y` over `x`, lines over numbers and points over names: a colour an arm, a panel a value of `panel`.

    If the rows have the ends of `y`'s interval (`_lo`, `_hi`), they are drawn. `of` is the subtitle.
    """
    kept = rows.filter(pl.col(ARM).is_in(list(NAMES)))
    kept = kept.with_columns(series_name=pl.col(ARM).replace_strict(NAMES, return_dtype=pl.String))
    shown = [name for name in NAMES.values() if name in kept["series_name"]]
    legend = alt.Legend(orient="bottom", columns=4, symbolOpacity=1.0)
    colour = alt.Color("series_name:N").title(None).scale(domain=shown, range=COLOURS[: len(shown)]).legend(legend)
    value = y[0].partition(":")[0]
    across = alt.X(x[0]).title(x[1]).axis(format=x[2], labelFlush=False)
    points = x[0].endswith(":N")
    across = across.sort(None) if points else across.scale(zero=False, nice=False)
    place = {"x": across, "color": colour}
    if points:
        place["xOffset"] = alt.XOffset("series_name:N").sort(shown)
    up = alt.Y(y[0]).title(y[1]).axis(format=y[2])
    base = alt.Chart(kept)
    marked = base.mark_point(filled=True, size=60) if points else base.mark_line(strokeWidth=1.8)
    layers = [marked.encode(y=up, **place)]
    if f"{value}_lo" in kept.columns:
        ends = base.mark_rule(opacity=0.5) if points else base.mark_area(opacity=0.18)
        layers.insert(0, ends.encode(y=alt.Y(f"{value}_lo:Q").title(y[1]), y2=f"{value}_hi:Q", **place))
    facet = alt.Facet(f"{panel}:N").title(None).sort(kept[panel].unique(maintain_order=True).to_list())
    return titled(alt.layer(*layers).properties(width=230, height=180).facet(facet=facet, columns=3), title, of)


def figures(
    load: pl.DataFrame, main: pl.DataFrame, mixes: Sequence[Row], policies: Sequence[Row], of: Sequence[str]
) -> dict[str, DrawChart]:
    """Return figures 2 to 6 by file name: gains over load, over time, allocation over load, by mix and by policy."""
    levels = pl.DataFrame(level_rows(load), infer_schema_length=None)
    draw = partial(chart, of=of)
    over_load = partial(draw, x=("rate_per_h:Q", "offered load, jobs per hour", "d"))
    gains = partial(draw, y=("completed_pct:Q", "more jobs finished, %", "d"), panel="truth")
    charts: dict[str, DrawChart] = {
        f"figure2_{name}": partial(over_load, levels, y=(f"{column}:Q", title, form), panel="truth", title=title)
        for name, column, title, form in (
            ("deployed", "deployed", "jobs deployed in 12 h", "d"),
            ("completion", "complete_rate", "finished / (finished + queued)", "%"),
        )
    }
    resources = ("cpu", "mem", "gpu")
    hours = main.filter(pl.col("truth") == "unchanged").select(ARM, *(f"{name}_over_time" for name in resources))
    timed = hours.with_columns(hour=pl.int_ranges(pl.col("cpu_over_time").list.len())).explode(
        "hour", *(f"{name}_over_time" for name in resources)
    )
    timed = timed.group_by(ARM, "hour", maintain_order=True).mean().with_columns(pl.col("hour") * 6 * STEP_S / 3600.0)
    allocated = [levels.select(ARM, "truth", "rate_per_h", *(
        pl.col(f"{name}_allocated_frac{end}").alias(f"share{end}") for end in ("", "_lo", "_hi")
    ), panel=pl.format("{}, {}", "truth", pl.lit(name))) for name in resources]  # fmt: skip
    share = ("share:Q", "share allocated", "%")
    spread = timed.unpivot(index=[ARM, "hour"], variable_name="panel", value_name="share")
    charts["figure3_over_time"] = partial(
        draw, spread, x=("hour:Q", "hours", "d"), y=share, panel="panel", title="Share allocated over time"
    )
    charts["figure4_allocated"] = partial(
        over_load, pl.concat(allocated), y=share, panel="panel", title="Share allocated over load"
    )
    for name, rows, column in (("figure5_mix", mixes, "mix"), ("figure6_policy", policies, "policy")):
        frame = pl.DataFrame(rows, infer_schema_length=None)
        charts[name] = partial(gains, frame, x=(f"{column}:N", column, ""), title=f"More jobs finished, by {column}")
    return charts
