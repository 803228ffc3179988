"""Figures 2 and 4 over time at one load: jobs deployed and finished, every resource allocated, used and asked for.

Drawn from the course of experiment 1's watched runs. Called by `pipelines.studies.shrinking.folder`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLACK, GNN, HEIGHT, WIDTH, arm_colour, arm_dash, named, titled

HOURS: Final = "hours since the cluster was empty"
PAPER_CPU_MET_H: Final = 2.0
JOBS: Final = {"deployed": "deployed so far", "completed": "finished so far", "waiting": "waiting"}
USE: Final = {
    "allocated_cpu_cores_frac": "CPU, allocated",
    "used_cpu_cores_frac": "CPU, truly used",
    "allocated_mem_gib_frac": "memory, allocated",
    "used_mem_gib_frac": "memory, truly used",
    "allocated_gpus_frac": "GPU, allocated",
    "used_gpus_frac": "GPU, truly used",
}
CPU: Final = {
    "allocated_cpu_cores_frac": "CPU allocated",
    "asked_cpu_cores_frac": "CPU requested by all jobs not yet ended",
}


HELD: Final = ("allocated", "used")
"""How columns begin that cannot exceed the capacity."""


def jobs_over_time(course: pl.DataFrame, of: Sequence[str], *, truth: str = "contention") -> alt.TopLevelMixin:
    """Draw jobs deployed, finished and waiting over time under one truth."""
    chart = _lines(_long(course, truth, JOBS), "jobs", form="d", panels=JOBS)
    return titled(chart, f"Figure 2, over time: jobs, truth {truth}", of)


def use_over_time(course: pl.DataFrame, of: Sequence[str], *, truth: str = "contention") -> alt.TopLevelMixin:
    """Draw what is allocated and truly used of every resource over time under one truth."""
    chart = _lines(_long(course, truth, USE), "share of capacity", form="%", panels=USE, down=True)
    return titled(chart, f"Figure 4, over time: use of resources, truth {truth}", of)


def cpu_over_time(course: pl.DataFrame, of: Sequence[str], *, truth: str = "contention") -> alt.TopLevelMixin:
    """Draw the CPU allocated, and the CPU requested by all jobs that have not ended, as multiples of capacity.

    A dotted line marks where the paper's baseline meets the CPU bottleneck.
    """
    shown = _long(course, truth, CPU)
    chart = _lines(shown, "times the capacity", form=",.1~f", panels=CPU, mark_h=PAPER_CPU_MET_H)
    said = [*of, f"dotted: the paper's baseline meets the CPU bottleneck after about {PAPER_CPU_MET_H:g} h"]
    return titled(chart, f"CPU over time, truth {truth}", said)


def _long(course: pl.DataFrame, truth: str, panels: Mapping[str, str]) -> pl.DataFrame:
    """Return one row per population, arm, moment and panel: the level with its interval, as far as it can lie."""
    kept = course.filter(pl.col("truth") == truth)
    return pl.concat(
        named(
            kept,
            "time_h",
            panel=pl.lit(said),
            level=column,
            low=pl.col(f"{column}_lo").clip(0.0),
            high=pl.col(f"{column}_hi").clip(upper_bound=1.0 if column.startswith(HELD) else None),
        )
        for column, said in panels.items()
    )


def _lines(
    shown: pl.DataFrame,
    title: str,
    *,
    form: str,
    panels: Mapping[str, str],
    down: bool = False,
    mark_h: float | None = None,
) -> alt.FacetChart:
    x = alt.X("time_h:Q").title(HOURS).axis(labelFlush=False)
    base = alt.Chart(shown)
    marks = []
    if mark_h is not None:
        dots = base.transform_calculate(met_h=f"{mark_h}").mark_rule(color=BLACK, strokeDash=[2, 3])
        marks.append(dots.encode(x="min(met_h):Q"))
    layers = alt.layer(
        base.mark_area(opacity=0.18).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=arm_colour()),
        base.mark_line(strokeWidth=1.5).encode(
            x=x, y=alt.Y("level:Q").title(title).axis(format=form), color=arm_colour(), strokeDash=arm_dash()
        ),
        *marks,
    ).properties(width=WIDTH + 80 * down, height=HEIGHT - 50 * down)
    panel, population = ("row", "column") if down else ("column", "row")
    sides = {"column": alt.Column, "row": alt.Row}
    chart: alt.FacetChart = layers.facet(
        **{
            panel: sides[panel]("panel:N").title(None).sort(list(panels.values())),
            population: sides[population]("gnn:N").title(None).sort(list(GNN.values())),
        }
    )
    return chart if panels is JOBS else chart.resolve_scale(y="independent")
