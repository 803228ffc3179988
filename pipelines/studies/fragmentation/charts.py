"""Charts of both studies: GPUs unallocated and fragmented as clusters fill up, and while pods come and go.

Drawn from the curves, runs and rows of the studies. Called by `study` and `departures`.
"""

from collections.abc import Mapping, Sequence
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
"""By placement, its name in legends."""

OURS, PUBLISHED = "taut", "published"
FROM_PCT: Final = 80
"""Below it every placement allocates all GPUs asked for."""

WIDTH, HEIGHT, COLUMNS = 210, 170, 4
_COLOURS: Final = (BLACK, ORANGE, SKY, PURPLE, GREEN, VERMILLION)

OURS_BY_NAME: Final = "taut, nodes by name"
SOURCES: Final = {OURS: BLUE, OURS_BY_NAME: ORANGE, PUBLISHED: BLACK}
"""The source of figures, by its name in legends, with its colour."""

_DASHES: Final = {OURS: [1, 0], PUBLISHED: [4, 3]}


def unallocated_over_arrived(curves: pl.DataFrame, workloads: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the percent of GPUs unallocated over the percent asked for, a panel per workload, the published dashed."""
    shown = curves.filter(pl.col("arrived_pct") >= FROM_PCT)
    lines = _lines(shown, workloads, "unallocated_pct", "GPUs unallocated, %", least=FROM_PCT)
    return titled(lines, "GPUs left unallocated as a cluster fills up", of)


def fragmented_over_arrived(curves: pl.DataFrame, workloads: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the percent of GPUs that are free but unusable for an average pod of the target, in the same way."""
    lines = _lines(curves, workloads, "fragmented_pct", "GPUs fragmented, %", least=0)
    return titled(lines, "Fragmentation as a cluster fills up", of)


def spread(rows: pl.DataFrame, workloads: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the GPUs unallocated where all are asked for: means with one sd, a colour for each of `SOURCES`.

    `rows` have `policy`, `variant` (how it differs from the published way, else empty), `source`, `mean` and `sd`.
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


SHOWN: Final = {
    **NAMES,
    "best_fit_gpu": "best fit of CPU and GPU",
    "best_fit": "best fit of machines",
    "fgd_used_first": "FGD, machines in use first",
}
"""By placement, its name in legends; those with learnt targets are in tables only."""

COLOURS: Final = (BLACK, ORANGE, SKY, PURPLE, GREEN, VERMILLION, "#999999", BLUE)

REASONS: Final = {
    "lacks_gpu": "devices too small",
    "lacks_cpu": "CPU lacks",
    "lacks_both": "CPU and devices lack",
    "other_model": "other GPU model asked for",
    "asks_no_gpu": "no GPU asked for",
    "asks_no_gpu_lacks_cpu": "no GPU asked for, CPU lacks",
}
_REASON_COLOURS: Final = (VERMILLION, SKY, PURPLE, ORANGE, "#BBBBBB", "#777777")

WIDTH, HEIGHT = 230, 190


def fragmentation_over_time(courses: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw GPUs fragmented over hours, a panel per load, as means over seeds."""
    shown = (
        _of_known(courses)
        .group_by("load", "name", "time_s", maintain_order=True)
        .agg(pl.col("fragmented_gpus").mean())
        .with_columns(hours=pl.col("time_s") / 3600.0)
    )
    lines = (
        alt.Chart(shown)
        .mark_line(strokeWidth=1.4)
        .encode(
            x=alt.X("hours:Q").title("hours"),
            y=alt.Y("fragmented_gpus:Q").title("GPUs fragmented").scale(zero=True),
            color=_colour(shown),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
    chart = lines.facet(facet=_load_panel(shown), columns=3).resolve_scale(x="independent", y="independent")
    return titled(chart, "Fragmentation while pods come and go", of)


def reasons(runs: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw, by placement and load, the free GPUs that an average pod cannot use, by reason."""
    known = _of_known(runs)
    shown = pl.concat(
        known.group_by("load", "name", maintain_order=True)
        .agg(pct=pl.col(f"{use}_pct").mean())
        .with_columns(reason=pl.lit(said), rank=pl.lit(at))
        for at, (use, said) in enumerate(REASONS.items())
    )
    bars = (
        alt.Chart(shown)
        .mark_bar()
        .encode(
            x=alt.X("pct:Q").title("GPUs, % of all"),
            y=alt.Y("name:N").title(None).sort(_names(known)).axis(labelLimit=220),
            color=alt.Color("reason:N")
            .title(None)
            .scale(domain=list(REASONS.values()), range=list(_REASON_COLOURS))
            .legend(orient="bottom", columns=3, symbolType="square", symbolStrokeWidth=0),
            order=alt.Order("rank:Q"),
        )
        .properties(width=WIDTH, height={"step": 16})
    )
    chart = bars.facet(facet=_load_panel(known), columns=3).resolve_scale(x="independent")
    return titled(chart, "Why free GPUs are of no use to an average pod", of)


def waits_over_load(rows: Sequence[Mapping[str, object]], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw mean waits over the offered load with their intervals: of all pods, and of those of whole machines."""
    known = _of_known(pl.DataFrame(rows, infer_schema_length=None))
    panels = {"wait_mean_s": "all pods", "large_wait_mean_s": "pods that ask for a whole machine"}
    shown = pl.concat(
        known.select(
            "load",
            "name",
            panel=pl.lit(said),
            minutes=pl.col(column) / 60.0,
            low=(pl.col(f"{column}_lo") / 60.0).clip(lower_bound=0.0),
            high=pl.col(f"{column}_hi") / 60.0,
        )
        for column, said in panels.items()
    ).drop_nulls()
    place = {
        "x": alt.X("load:N").title("GPUs asked for, times all").sort(_loads(known)).axis(labelAngle=0),
        "xOffset": alt.XOffset("name:N").sort(_names(known)),
        "color": _colour(known),
    }
    base = alt.Chart(shown)
    layers = alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q", **place),
        base.mark_point(filled=True, size=28, opacity=1.0).encode(
            y=alt.Y("minutes:Q").title("mean wait, minutes").scale(zero=True), **place
        ),
    ).properties(width=2 * WIDTH - 60, height=HEIGHT + 30)
    panel = alt.Column("panel:N").title(None).sort(list(panels.values()))
    return titled(layers.facet(column=panel).resolve_scale(y="independent"), "Waits while pods come and go", of)


def _of_known(rows: pl.DataFrame) -> pl.DataFrame:
    kept = rows.filter(pl.col("arm").is_in(list(SHOWN)))
    return kept.with_columns(name=pl.col("arm").replace_strict(SHOWN))


def _names(rows: pl.DataFrame) -> list[str]:
    held = rows["name"].unique().to_list()
    return [name for name in SHOWN.values() if name in held]


def _loads(rows: pl.DataFrame) -> list[str]:
    return rows["load"].unique(maintain_order=True).to_list()


def _load_panel(rows: pl.DataFrame) -> alt.Facet:
    return alt.Facet("load:N").title(None).sort(_loads(rows))


def _colour(rows: pl.DataFrame) -> alt.Color:
    names = _names(rows)
    colours = [colour for name, colour in zip(SHOWN.values(), COLOURS, strict=True) if name in names]
    legend = alt.Legend(orient="bottom", columns=4, symbolType="stroke", symbolOpacity=1.0)
    return alt.Color("name:N").title(None).scale(domain=names, range=colours).legend(legend)
