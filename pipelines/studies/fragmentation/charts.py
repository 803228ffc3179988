"""Chart of unallocated GPUs as clusters fill up.

Drawn from the mean curves of `tables`. Called by `study`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLACK, GREEN, ORANGE, PURPLE, SKY, VERMILLION, titled

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

_DASHES: Final = {OURS: [1, 0], PUBLISHED: [4, 3]}


def unallocated_over_arrived(curves: pl.DataFrame, workloads: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the percent of GPUs unallocated against the percent requested; published curves are dashed.

    There is one panel per workload.
    """
    shown = curves.filter(pl.col("arrived_pct") >= FROM_PCT)
    shown = shown.with_columns(name=pl.col("policy").replace_strict(NAMES))
    held = shown["name"].unique().to_list()
    names = [name for name in NAMES.values() if name in held]
    colours = [colour for name, colour in zip(NAMES.values(), _COLOURS, strict=True) if name in held]
    dashes = {source: dash for source, dash in _DASHES.items() if source in shown["source"]}
    lines = (
        alt.Chart(shown)
        .mark_line(strokeWidth=1.4)
        .encode(
            x=alt.X("arrived_pct:Q").title("GPUs asked for, % of all").scale(domain=[FROM_PCT, 130], nice=False),
            y=alt.Y("unallocated_pct:Q").title("GPUs unallocated, %").scale(zero=True),
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
    panel = alt.Facet("workload:N").title(None).sort(list(workloads))
    return titled(lines.facet(facet=panel, columns=COLUMNS), "GPUs left unallocated as a cluster fills up", of)
