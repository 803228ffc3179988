"""Charts of unallocated and fragmented GPUs as clusters fill up.

Drawn from the curves of `runs` and the rows of `tables`. Called by `study`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, titled

NAMES: Final = {
    "random": "random",
    "dot_product": "dot product",
    "gpu_clustering": "GPU clustering",
    "gpu_packing": "GPU packing",
    "best_fit_gpu": "best fit",
    "fgd": "FGD",
}
"""Name of each placement in legends."""

OURS, PUBLISHED = "taut", "published"
FROM_PCT: Final = 80
"""Percent of requested GPUs at which the axis begins; below it every placement allocates all requested GPUs."""

WIDTH, HEIGHT, COLUMNS = 210, 170, 4
_COLOURS: Final = (BLACK, ORANGE, SKY, PURPLE, GREEN, VERMILLION)

OURS_BY_NAME: Final = "taut, nodes by name"
SOURCES: Final = {OURS: BLUE, OURS_BY_NAME: ORANGE, PUBLISHED: BLACK}
"""Colour of each source of results, by its name in legends."""

_DASHES: Final = {OURS: [1, 0], PUBLISHED: [4, 3]}


def unallocated_over_arrived(curves: pl.DataFrame, workloads: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the percent of GPUs unallocated against the percent requested; published curves are dashed.

    There is one panel per workload.
    """
    shown = curves.filter(pl.col("arrived_pct") >= FROM_PCT)
    lines = _lines(shown, workloads, "unallocated_pct", "GPUs unallocated, %", least=FROM_PCT)
    return titled(lines, "GPUs left unallocated as a cluster fills up", of)


def fragmented_over_arrived(curves: pl.DataFrame, workloads: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the percent of GPUs that are free but unusable for an average pod of the target, one panel per workload."""
    lines = _lines(curves, workloads, "fragmented_pct", "GPUs fragmented, %", least=0)
    return titled(lines, "Fragmentation as a cluster fills up", of)


def spread(rows: pl.DataFrame, workloads: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw mean ± sd of the unallocated GPUs when requests equal capacity, with a colour for each source.

    `rows` have the columns `workload`, `policy`, `variant` (difference from the published settings, or empty),
    `source`, `mean` and `sd`.
    """
    shown = rows.with_columns(
        name=pl.col("policy").replace_strict(NAMES) + pl.col("variant"),
        low=pl.col("mean") - pl.col("sd"),
        high=pl.sum_horizontal("mean", "sd"),
    )
    sources = [source for source in SOURCES if source in shown["source"]]
    colours = [SOURCES[source] for source in sources]
    legend = alt.Legend(orient="bottom", symbolType="circle", symbolOpacity=1.0, symbolSize=80, symbolStrokeWidth=0)
    place = {
        "y": alt.Y("name:N").title(None).sort(shown["name"].unique(maintain_order=True).to_list()).axis(labelLimit=300),
        "yOffset": alt.YOffset("source:N").sort(sources),
        "color": alt.Color("source:N").title(None).scale(domain=sources, range=colours).legend(legend),
    }
    base = alt.Chart(shown)
    x = alt.X("mean:Q").title("GPUs unallocated, %").scale(zero=True)
    layers = alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q", **place),
        base.mark_point(filled=True, size=26, opacity=1.0).encode(
            x=x, tooltip=["workload:N", "name:N", "source:N", "mean:Q", "sd:Q"], **place
        ),
    ).properties(width=WIDTH, height={"step": 7})
    chart = layers.facet(facet=_panel(workloads), columns=COLUMNS)
    return titled(chart, "GPUs unallocated where as many were asked for as there are", of)


def _lines(curves: pl.DataFrame, workloads: Sequence[str], column: str, title: str, *, least: int) -> alt.FacetChart:
    shown = curves.select("workload", "source", "arrived_pct", column, name=pl.col("policy").replace_strict(NAMES))
    held = shown["name"].unique().to_list()
    names = [name for name in NAMES.values() if name in held]
    colours = [colour for name, colour in zip(NAMES.values(), _COLOURS, strict=True) if name in held]
    dashes = {source: dash for source, dash in _DASHES.items() if source in shown["source"]}
    lines = (
        alt.Chart(shown)
        .mark_line(strokeWidth=1.4)
        .encode(
            x=alt.X("arrived_pct:Q").title("GPUs asked for, % of all").scale(domain=[least, 130], nice=False),
            y=alt.Y(f"{column}:Q").title(title).scale(zero=True),
            color=alt.Color("name:N")
            .title(None)
            .scale(domain=names, range=colours)
            .legend(orient="bottom", columns=len(names), symbolType="stroke", symbolOpacity=1.0),
            strokeDash=alt.StrokeDash("source:N")
            .title(None)
            .scale(domain=list(dashes), range=list(dashes.values()))
            .legend(alt.Legend(orient="bottom", symbolType="stroke") if len(dashes) > 1 else None),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
    chart: alt.FacetChart = lines.facet(facet=_panel(workloads), columns=COLUMNS)
    return chart


def _panel(workloads: Sequence[str]) -> alt.Facet:
    return alt.Facet("workload:N").title(None).sort(list(workloads))
