"""Sections of many charts as models have them, of values made up; for the tests and the benchmark of opening a page."""

import numpy as np
import polars as pl

from pipelines.report.charts.attributions import beeswarm, importances
from pipelines.report.models import EXPLAINED_FEATURES, EXPLAINED_JOBS
from pipelines.report.parts import Figure, Section

IN_A_SECTION = 9


def many_charts(charts: int) -> list[Section]:
    """Return sections of as many charts: swarms as large as they get, and after every two an importance."""
    rng = np.random.default_rng(0)
    drawn = [_importance(at) if at % 3 == 2 else _swarm(at, rng) for at in range(charts)]
    return [
        Section(name=f"part-{at}", title=f"Part {at}", intro="Made up.", parts=tuple(drawn[at : at + IN_A_SECTION]))
        for at in range(0, charts, IN_A_SECTION)
    ]


def _swarm(at: int, rng: np.random.Generator) -> Figure:
    points = EXPLAINED_FEATURES * EXPLAINED_JOBS
    rows = pl.DataFrame(
        {
            "feature": [f"feature_{i}" for i in range(EXPLAINED_FEATURES) for _ in range(EXPLAINED_JOBS)],
            "shap": rng.normal(size=points).round(5),
            "rank": rng.uniform(size=points).round(5),
        }
    )
    return Figure(name=f"swarm-{at}", chart=beeswarm(rows, f"Swarm {at}", "ln s", f"{EXPLAINED_JOBS} jobs"), rows=rows)


def _importance(at: int) -> Figure:
    rows = pl.DataFrame(
        {"feature": [f"feature_{i}" for i in range(10)], "mean": [1.0 / (i + 1) for i in range(10)], "std": 0.05}
    ).with_columns(repeats=5)
    return Figure(
        name=f"importance-{at}", chart=importances(rows, f"model {at}", "pinball, ln s", "99 rows"), rows=rows
    )
