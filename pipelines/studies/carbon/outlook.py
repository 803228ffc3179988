"""Who plans at a price of carbon on a real grid: by what the grid tells now, or also by what it told yesterday.

Plans are `priced`'s and `foresight`'s. Called by months of real grids.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from pipelines.studies.carbon.simulation import Planner
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.carbon.priced import foreseen, priced
from scheduler_core.planning.forecast import forecast
from scheduler_core.planning.hourly import HOURS_PER_DAY, HourlySeries
from scheduler_core.types import FloatArray

HOUR_S: Final = 3600.0
LASTS: Final = 2.0
"""Times its shortest run time, which a job is taken to last: few run at their fastest (ours)."""


@dataclass(slots=True, kw_only=True)
class Outlook:
    """A grid from `starts_s` on: what it tells in a period, and planners to whom that is worth something.

    A period's intensity is asked for before its plan, as `simulation.Site` does: the forecast is made from there.
    `usual_g_per_kwh` is the intensity at which a price in seconds a kWh is meant.
    """

    carbon: HourlySeries
    starts_s: float
    usual_g_per_kwh: float
    asked_s: float = field(default=0.0, init=False)

    def intensity(self, now_s: float) -> float:
        """Return what the grid tells `now_s` after the start."""
        self.asked_s = self.starts_s + now_s
        return self.carbon.at(self.asked_s)

    def by_kwh(self, price_s_per_kwh: float) -> Planner:
        """Return who pays the same for a kWh at all times."""
        return partial(priced, price_s_per_kwh=price_s_per_kwh)

    def by_gram(self, price_s_per_kwh: float) -> Planner:
        """Return who pays the same for a gram at all times."""

        def plan(
            jobs: ElasticJobs,
            *,
            gpus: int,
            intensity_g_per_kwh: float,
            budget_g: float,
            period_s: float,
            pue: float = 1.0,
        ) -> CountsAndFrequencies:
            return priced(
                jobs,
                gpus=gpus,
                intensity_g_per_kwh=intensity_g_per_kwh,
                budget_g=budget_g,
                period_s=period_s,
                pue=pue,
                price_s_per_kwh=price_s_per_kwh * intensity_g_per_kwh / self.usual_g_per_kwh,
            )

        return plan

    def foreseeing(self, price_s_per_kwh: float) -> Planner:
        """Return who pays the same for a gram at all times, and expects the hours to come to be as yesterday's.

        Budgets are not kept: the price is all that holds emissions down.
        """

        def plan(
            jobs: ElasticJobs,
            *,
            gpus: int,
            intensity_g_per_kwh: float,
            budget_g: float,
            period_s: float,
            pue: float = 1.0,
        ) -> CountsAndFrequencies:
            del budget_g, period_s, pue
            a_gram = price_s_per_kwh / self.usual_g_per_kwh
            return foreseen(
                jobs,
                gpus=gpus,
                now_s_per_kwh=a_gram * intensity_g_per_kwh,
                later_s_per_kwh=a_gram * self._expected(jobs),
            )

        return plan

    def _expected(self, jobs: ElasticJobs) -> FloatArray:
        """Return the mean intensity expected while each job lasts (J,), a day at most."""
        hour = self.carbon.hour(np.array([self.asked_s]))
        ahead = [forecast(self.carbon, hour, hours, "yesterday")[0] for hours in range(HOURS_PER_DAY)]
        means = np.cumsum(ahead) / np.arange(1, HOURS_PER_DAY + 1)
        fastest = np.where(jobs.allowed, jobs.steps_per_s, 0.0).max(axis=1) * jobs.perf[:, -1]
        hours = np.ceil(LASTS * jobs.steps_left / fastest / HOUR_S)
        return np.asarray(means[np.clip(hours, 1, HOURS_PER_DAY).astype(np.int64) - 1])


PRICED: Final[dict[str, Callable[[Outlook, float], Planner]]] = {
    "a price a kWh": Outlook.by_kwh,
    "a price a gram": Outlook.by_gram,
    "a price a gram, foreseen": Outlook.foreseeing,
}
"""By name: who pays for energy, for carbon, and for carbon while looking ahead; none has a budget every period."""
