"""What a job costs against the number of jobs, of machines, and of jobs that wait: rows, one bar, and curves.

Workloads are in `arrivals`, the timing in `engines`. Called by `tests.benchmarks.scheduling`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.panels import SERIES, saved
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from tests.benchmarks.scheduling.arrivals import SMALL, drawn, philly_like, waiting_at_once
from tests.benchmarks.scheduling.engines import BACKLOG_LOAD, MILLION, rates
from tests.benchmarks.serving.figures import Bar, Row, amount_row

FEWEST_JOBS: Final = 10_000
GROWTH: Final = Bar(side="at most", value=1.6)
"""From 10 000 to a million jobs log n, and with it a job's part of n log n, grows by half."""

FIFO: Final = Discipline()
SJF: Final = Discipline(policy="sjf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a job costs at one count of what grows, in every round."""

    order: str
    against: str
    count: int
    each_us: tuple[float, ...]


def points() -> list[Point]:
    """Time all of them, compiled before."""
    found = []
    rates(drawn(10), SMALL, FIFO)
    for jobs in (FEWEST_JOBS, 100_000, MILLION):
        for name, rules in (("fifo", FIFO), ("sjf", SJF)):
            found.append(_point(name, "jobs", jobs, drawn(jobs), SMALL, rules))
    for waiting in (100, 1_000, 10_000, 100_000):
        found.append(_point("sjf", "jobs that wait", waiting, waiting_at_once(200_000, waiting), SMALL, SJF))
    for count in (10, 100, 1_000):
        many = tuple(Machine(name=f"m{at}", cpu_cores=1.0, mem_gib=1.0, gpus=8) for at in range(count))
        found.append(_point("fifo", "machines", count, philly_like(50_000, BACKLOG_LOAD, many), many, FIFO))
    return found


def growth_rows(found: Sequence[Point]) -> list[Row]:
    """Return a row for each point, and by order how the cost of a job grows with their number."""
    rows = [
        amount_row("c", f"cost of a job, {at.order}: {at.count} {at.against}", at.each_us, unit="us of a core")
        for at in found
    ]
    for order in ("fifo", "sjf"):
        by_count = {at.count: at.each_us for at in found if (at.order, at.against) == (order, "jobs")}
        grown = [many / few for few, many in zip(by_count[FEWEST_JOBS], by_count[MILLION], strict=True)]
        what = f"cost of a job, {order}: {MILLION} jobs against {FEWEST_JOBS}"
        rows.append(amount_row("c", what, grown, unit="times", bar=GROWTH))
    return rows


def draw(found: Sequence[Point], folder: Path) -> list[Path]:
    """Write the curves as `growth` in HTML, SVG and PNG."""
    rows = pl.DataFrame(
        [{"order": at.order, "against": at.against, "count": at.count, "us": median(at.each_us)} for at in found]
    )
    lines = (
        alt.Chart(rows)
        .mark_line(point=True)
        .encode(
            x=alt.X("count:Q", title="how many").scale(type="log"),
            y=alt.Y("us:Q", title="cost of a job (us of a core)").scale(type="log"),
            color=alt.Color("order:N", title="order").scale(range=list(SERIES)),
        )
        .properties(width=220, height=180)
    )
    against = alt.Facet("against:N", title="against the number of", sort=["jobs", "jobs that wait", "machines"])
    title = alt.TitleParams("What a job costs the compiled event loop, with all metrics", anchor="start")
    folder.mkdir(parents=True, exist_ok=True)
    return saved(lines.facet(against, columns=3).properties(title=title), folder, "growth")


def _point(
    order: str, against: str, count: int, workload: Workload, machines: Sequence[Machine], rules: Discipline
) -> Point:
    each_us = tuple(1e6 / rate for rate in rates(workload, machines, rules))
    return Point(order=order, against=against, count=count, each_us=each_us)
