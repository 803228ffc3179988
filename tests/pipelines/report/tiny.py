"""A tiny lake of two traces for the tests of reports: one that tells all, one that tells little; names that attack."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.report.page import page
from pipelines.report.parts import Figure, Section, Table
from tests.pipelines.statistics.lakes import T0, make_lake, ran, used

ATTACK = "<img src=x onerror=\"document.title='owned'\"></script><b>&"
JOBS = 40


def tiny_lake(folder: Path) -> Lake:
    """Return a lake of `toy`, which tells requests, use, users, groups, waits and utilisation, and of `bare`."""
    jobs = [
        ran(
            at,
            60.0 * (1 + at % 7),
            queue_s=float(at % 5),
            user=ATTACK if at % 3 == 0 else f"user-number-{at % 4}",
            group=f"group-{at % 6}",
            vc=(ATTACK, "vc1")[at % 2],
            task_type=("ctr", "nlp")[at % 2],
            gpu_type="T4",
            instances=1 + at % 3,
            req_cpu_cores=4.0,
            req_mem_gib=16.0,
            req_gpus=(0.5, 1.0, 2.0)[at % 3],
            status=("completed", "failed")[at % 2],
        )
        for at in range(JOBS)
    ]
    usage = [
        used(at, used_cpu_cores=1.0, used_gpus=0.1, mem_avg_gib=2.0, mem_max_gib=3.0, gpu_mem_max_gib=4.0)
        for at in range(JOBS)
    ]
    machines = [{"trace": "toy", "cluster": "c", "machine": "m1", "gpu_type": "T4", "gpus": 2}]
    busy = [
        {"trace": "toy", "cluster": "c", "machine": "m1", "ts": T0 + timedelta(hours=h), "gpu_frac": h / 50}
        for h in range(48)
    ]
    make_lake(folder, {"jobs": jobs, "usage": usage, "machines": machines, "machine_usage": busy})
    bare = [ran(at, 30.0) for at in range(5)]
    return make_lake(folder, {"jobs": bare}, trace="bare")


def figures(sections: list[Section]) -> dict[str, Figure]:
    """Return the figures of sections by name."""
    return {part.name: part for section in sections for part in section.parts if isinstance(part, Figure)}


def tables(sections: list[Section]) -> dict[str, Table]:
    """Return the tables of sections by name."""
    return {part.name: part for section in sections for part in section.parts if isinstance(part, Table)}


def spec_of(figure: Figure) -> dict[str, Any]:
    """Return a figure's chart as Vega-Lite."""
    spec: dict[str, Any] = figure.chart.to_dict()
    return spec


def points_of(spec: dict[str, Any]) -> int:
    """Return how many rows a chart holds in all."""
    return sum(len(rows) for rows in spec["datasets"].values())


def frame(*rows: dict[str, object]) -> pl.DataFrame:
    """Return rows as a frame."""
    return pl.DataFrame(list(rows))


def block(rows: pl.DataFrame, title: str = "T") -> str:
    """Return the HTML of one table on a page."""
    section = Section(name="s", title="S", intro="i", parts=(Table(name="t", title=title, rows=rows),))
    return page("t", "s", [section]).partition('<div class="table"')[2].partition("</section>")[0]
