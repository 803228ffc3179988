"""Jobs finished with requests as they are and smaller, under placements that mind fragmentation and not.

Drawn from the study's runs. Called by `pipelines.studies.fragmentation.shrinking`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import ARMS, BLACK, BLUE, VERMILLION, titled
from pipelines.studies.intervals import spreads

PLACEMENTS: Final = {"best_fit": "best fit", "fgd": "FGD", "fgd_used_first": "FGD, machines in use first"}
FIGURES: Final = {
    "completed": "jobs finished",
    "gpu_allocated_pct": "GPUs allocated, %",
    "stranded_gpu_pct": "GPUs free while jobs wait, %",
}
WIDTH, HEIGHT = 290, 200


def finished_by_arm(runs: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw means and 95 % intervals of `FIGURES` by sizes, a colour per placement, a row per amount of CPU."""
    shown = pl.concat(
        runs.select(
            sizes=pl.col("sizes").replace_strict(ARMS),
            placement=pl.col("placement").replace_strict(PLACEMENTS),
            cpu=pl.format("{} times the CPU", pl.col("cpu_times").cast(pl.String).str.strip_suffix(".0")),
            panel=pl.lit(said),
            value=pl.col(column),
        )
        for column, said in FIGURES.items()
    )
    names, order = list(PLACEMENTS.values()), shown["sizes"].unique(maintain_order=True).to_list()
    place = {
        "x": alt.X("sizes:N").title(None).sort(order).axis(labelAngle=0, labelLimit=120),
        "xOffset": alt.XOffset("placement:N").sort(names),
        "color": alt.Color("placement:N")
        .title(None)
        .scale(domain=names, range=[BLACK, VERMILLION, BLUE])
        .legend(orient="bottom", symbolType="circle", symbolOpacity=1.0, symbolSize=80, symbolStrokeWidth=0),
    }
    base = alt.Chart()
    y = alt.Y("mean:Q").title(None).scale(zero=False)
    layers = alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q", **place),
        base.mark_point(filled=True, size=30, opacity=1.0).encode(y=y, **place),
    ).properties(width=WIDTH, height=HEIGHT)
    drawn = spreads(shown, ("sizes", "placement", "cpu", "panel"), "value")
    rows = [
        alt.hconcat(
            *(
                layers.properties(
                    data=drawn.filter(cpu=cpu, panel=panel), title=f"{panel}; {cpu}", width=WIDTH, height=HEIGHT
                )
                for panel in FIGURES.values()
            )
        )
        for cpu in shown["cpu"].unique(maintain_order=True).to_list()
    ]
    return titled(alt.vconcat(*rows), "Smaller requests and placement against fragmentation", of)
