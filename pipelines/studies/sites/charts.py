"""Chart of one week: cost of GPU time at every site, and the GPUs that jobs hold there under two policies.

Called by `study`.
"""

from collections.abc import Sequence

import altair as alt
import numpy as np
import polars as pl

from pipelines.report.charts.looks import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, titled
from pipelines.simulation.sites.environment import simulated
from pipelines.simulation.sites.jobs import WEEK
from pipelines.simulation.sites.outcome import held_gpus
from pipelines.simulation.sites.places import Place
from pipelines.simulation.sites.weeks import Weeks
from scheduler_core.kernels.sites.value import STEPS_PER_H
from scheduler_core.planning.hourly import HOURS_PER_DAY
from scheduler_core.planning.sites.policies import Policy, policy
from scheduler_core.types import FloatArray

COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, YELLOW, BLACK)
WIDTH, HEIGHT = 640, 130
COST, GPUS = "USD per GPU-hour", "GPUs held"


def week_chart(places: Sequence[Place], weeks: Weeks, learnt: Policy) -> alt.TopLevelMixin:
    """Draw the first week of a batch under the greedy rule and a learnt policy."""
    hours = WEEK // STEPS_PER_H
    cost = weeks.usd[0, :, HOURS_PER_DAY : HOURS_PER_DAY + hours] * STEPS_PER_H
    panels = [_panel(_frame(places, cost), COST)]
    shown = (policy("greedy"), learnt)
    for each in shown:
        held = held_gpus(weeks, simulated(weeks, each), 0)[:, :WEEK].reshape(len(places), hours, STEPS_PER_H)
        frame, most = _frame(places, held.mean(axis=2)), int(weeks.capacity[0].sum())
        panels.append(_panel(frame, f"{GPUS}: {each.name}", most=most, last=each is shown[-1]))
    chart = alt.vconcat(*panels).resolve_scale(color="shared")
    said = [
        f"first judged week, from Monday 0:00 UTC with empty sites; {int(weeks.capacity[0].sum())} GPUs at "
        f"{len(places)} sites; top: cost of energy and carbon"
    ]
    return titled(chart, "A week of jobs on the sites", said)


def _frame(places: Sequence[Place], values: FloatArray) -> pl.DataFrame:
    hour = np.tile(np.arange(values.shape[1]), len(places))
    site = np.repeat([each.name for each in places], values.shape[1])
    return pl.DataFrame({"day": hour / HOURS_PER_DAY, "site": site, "value": values.ravel()})


def _panel(frame: pl.DataFrame, title: str, *, most: int | None = None, last: bool = False) -> alt.Chart:
    names = frame["site"].unique(maintain_order=True).to_list()
    base = alt.Chart(frame)
    marked = base.mark_line(strokeWidth=1.5, clip=True) if most is None else base.mark_area()
    panel: alt.Chart = marked.encode(
        x=alt.X("day:Q")
        .title("day of the week" if last else None)
        .axis(values=list(range(8)), format="d")
        .scale(domain=[0, 7], nice=False),
        y=alt.Y("value:Q")
        .title(title)
        .stack(None if most is None else "zero")
        .scale(domain=[0, most] if most else alt.Undefined),
        color=alt.Color("site:N")
        .title(None)
        .scale(domain=names, range=list(COLOURS[: len(names)]))
        .legend(orient="bottom"),
    ).properties(width=WIDTH, height=HEIGHT)
    return panel
