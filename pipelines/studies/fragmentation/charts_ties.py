"""What is left unallocated by each rule under both ways to settle ties, and by targets learnt online.

Drawn from the studies' runs. Called by `pipelines.studies.fragmentation.large_jobs` and
`pipelines.studies.fragmentation.online`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLUE, VERMILLION, titled
from pipelines.studies.intervals import spreads

TIES: Final = {"first": "ties to the first machine", "random": "random ties"}
WIDTH, COLUMNS = 210, 4


def unallocated_by_ties(runs: pl.DataFrame, workloads: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw, for each workload, the percent of GPUs unallocated by rule: mean and 95 % interval, a colour per tie rule.

    `runs` have `workload`, `rule`, `seed`, and a column for each of `TIES`.
    """
    shown = pl.concat(
        runs.select("workload", arm="rule", value=column, colour=pl.lit(said)) for column, said in TIES.items()
    )
    chart = _dots(shown, workloads, list(TIES.values()))
    return titled(chart, "GPUs unallocated by rule, as ties are settled", of)


def unallocated_by_window(runs: pl.DataFrame, workloads: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw, for each workload, the percent of GPUs unallocated by what is known of the target.

    `runs` have `workload`, `target`, `placement`, `seed` and `unallocated_pct`.
    """
    shown = runs.select("workload", arm="target", value="unallocated_pct", colour="placement")
    chart = _dots(shown, workloads, runs["placement"].unique(maintain_order=True).to_list())
    return titled(chart, "GPUs unallocated, targets learnt online", of)


def _dots(shown: pl.DataFrame, workloads: Sequence[str], colours: Sequence[str]) -> alt.FacetChart:
    place = {
        "y": alt.Y("arm:N").title(None).sort(shown["arm"].unique(maintain_order=True).to_list()).axis(labelLimit=200),
        "yOffset": alt.YOffset("colour:N").sort(list(colours)),
        "color": alt.Color("colour:N")
        .title(None)
        .scale(domain=list(colours), range=[BLUE, VERMILLION])
        .legend(orient="bottom", symbolType="circle", symbolOpacity=1.0, symbolSize=80, symbolStrokeWidth=0),
    }
    base = alt.Chart(spreads(shown, ("workload", "arm", "colour"), "value"))
    x = alt.X("mean:Q").title("GPUs unallocated, %").scale(zero=False)
    layers = alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q", **place),
        base.mark_point(filled=True, size=26, opacity=1.0).encode(x=x, **place),
    ).properties(width=WIDTH, height={"step": 9})
    panel = alt.Facet("workload:N").title(None).sort(list(workloads))
    chart: alt.FacetChart = layers.facet(facet=panel, columns=COLUMNS).resolve_scale(x="independent")
    return chart
