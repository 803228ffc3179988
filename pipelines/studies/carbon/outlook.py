"""Planners with a price of energy or carbon on a real grid: by the current intensity, or also by a forecast.

Plans are made in `scheduler_core.planning.carbon.priced`. Called by `months`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

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
    """A grid from `starts_s` on: its intensity in a period, and planners that depend on it.

    `simulation.Site` reads a period's intensity before its plan, and the forecast starts from that hour.
    `usual_g_per_kwh` is the intensity at which a price per gram equals the price per kWh.
    """

    carbon: HourlySeries
    starts_s: float
    usual_g_per_kwh: float
    asked_s: float = field(default=0.0, init=False)

    def intensity(self, now_s: float) -> float:
        """Return the intensity `now_s` after the start."""
        self.asked_s = self.starts_s + now_s
        return self.carbon.at(self.asked_s)

    def by_kwh(self, price_s_per_kwh: float) -> Planner:
        """Return a planner with the same price per kWh at all times."""
        return partial(priced, price_s_per_kwh=price_s_per_kwh)

    def by_gram(self, price_s_per_kwh: float) -> Planner:
        """Return a planner with the same price per gram at all times."""

        def plan(jobs: ElasticJobs, *, intensity_g_per_kwh: float, **period: Any) -> CountsAndFrequencies:
            price = price_s_per_kwh * intensity_g_per_kwh / self.usual_g_per_kwh
            return priced(jobs, intensity_g_per_kwh=intensity_g_per_kwh, price_s_per_kwh=price, **period)

        return plan

    def foreseeing(self, price_s_per_kwh: float) -> Planner:
        """Return a planner with the same price per gram at all times that expects the next hours to be as yesterday's.

        Budgets are ignored: the price alone limits emissions.
        """

        def plan(jobs: ElasticJobs, *, gpus: int, intensity_g_per_kwh: float, **_: float) -> CountsAndFrequencies:
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
