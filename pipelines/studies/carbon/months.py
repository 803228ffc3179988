"""Carbon at equal completion time on real grids, and curves of mean completion time by energy.

Energy is limited in two ways: the same kWh every period, or a price per kWh or per gram of CO2.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from pipelines.studies.carbon.jobs import ArrivingJobs, Measured, drawn
from pipelines.studies.carbon.simulation import Cluster, Simulated, simulate
from pipelines.studies.compare import ARM, mean
from pipelines.studies.energy import month_of
from pipelines.studies.study import SEED, Row
from scheduler_core.planning.carbon import allocate
from scheduler_core.planning.elastic import CountsAndFrequencies, ElasticJobs, Period, Planner
from scheduler_core.planning.hourly import JOULES_PER_KWH, HourlySeries
from scheduler_core.types import FloatArray

AT_POINTS: Final = 9
"""Number of evenly spaced energies at which two curves are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Pareto-optimal points of energy `spent` (ascending) and mean completion time `mean_s` (descending)."""

    spent: FloatArray
    mean_s: FloatArray

    @classmethod
    def of(cls, spent: FloatArray, mean_s: FloatArray) -> "Front":
        """Return the Pareto-optimal points of the given ones; points that are not finite are dropped.

        >>> front = Front.of(np.array([3.0, 1.0, 2.0]), np.array([5.0, 9.0, 10.0]))
        >>> front.spent.tolist(), front.mean_s.tolist()
        ([1.0, 3.0], [9.0, 5.0])
        """
        fine = np.isfinite(spent) & np.isfinite(mean_s)
        order = np.lexsort([mean_s[fine], spent[fine]])
        spent, mean_s = spent[fine][order], mean_s[fine][order]
        before = np.concatenate([[np.inf], np.minimum.accumulate(mean_s)[:-1]])[: len(mean_s)]
        better = mean_s < before
        return cls(spent=spent[better], mean_s=mean_s[better])

    def at(self, spent: FloatArray) -> FloatArray:
        """Return the least mean time at a given energy or less, interpolated linearly; NaN below the least energy."""
        if not len(self.spent):
            return np.full(len(spent), np.nan)
        # Tolerate rounding, so that the end point itself is within the curve.
        within = spent >= self.spent[0] * (1.0 - 1e-12)
        return np.where(within, np.interp(spent, self.spent, self.mean_s), np.nan)

    def for_mean(self, mean_s: FloatArray) -> FloatArray:
        """Return the least energy at a given mean time or less, interpolated linearly; NaN below the least time."""
        within = mean_s >= self.mean_s[-1] * (1.0 - 1e-12)
        return np.where(within, np.interp(mean_s, self.mean_s[::-1], self.spent[::-1]), np.nan)


def compared(ours: Front, theirs: Front, bound: Front) -> tuple[float, float]:
    """Return the mean ratio of the other arm's mean completion time to ours at equal energy, and its ceiling.

    Energies are `AT_POINTS` of the other arm's curve; above the maximum of our arm, our arm has its mean time at that
    maximum. The ceiling is the mean ratio of the other arm to the lower bound: no arm can reach more. Both are NaN if
    our arm needs more energy than the other.
    """
    if not len(ours.spent) or not len(theirs.spent) or theirs.spent[-1] < ours.spent[0]:
        return np.nan, np.nan
    at = np.linspace(max(ours.spent[0], theirs.spent[0]), theirs.spent[-1], AT_POINTS)
    return float((theirs.at(at) / ours.at(at)).mean()), float((theirs.at(at) / bound.at(at)).mean())


PRICES_S_PER_KWH: Final = np.concatenate([[0.0], np.geomspace(1.0, 1e8, 120)])
"""Prices at which the bound is computed. More prices make the bound tighter; any set gives a valid bound."""


def least_mean(jobs: ArrivingJobs, *, round_s: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Return points of a lower bound on the mean completion time: kWh of busy GPUs, and seconds.

    A job may change its count and frequency at any time, so every mixture of its options is possible. For any price p
    in seconds per kWh, the sum over jobs of time + p·energy is at least the sum of each job's minimum of time +
    p·energy. The curve is the greatest of these bounds over all prices (weak duality). A job starts at the first
    round after its arrival at the earliest, or at once if `round_s` is 0.
    """
    many = len(jobs)
    waits_s = np.zeros(many) if round_s == 0.0 else -jobs.submit_s % round_s
    seconds, kwh = _choices(jobs)
    rows = np.arange(many)
    sums = np.empty((len(PRICES_S_PER_KWH), 2))
    for at, price in enumerate(PRICES_S_PER_KWH):
        best = np.argmin(seconds + price * kwh, axis=1)
        sums[at] = (seconds[rows, best] + waits_s).sum(), kwh[rows, best].sum()
    return _greatest(PRICES_S_PER_KWH, sums[:, 0], sums[:, 1], many)


def _choices(jobs: ArrivingJobs) -> tuple[FloatArray, FloatArray]:
    """Return seconds and kWh of every count and frequency (J, N·F); infinite where a count is not allowed."""
    speed = jobs.steps_per_s[:, 1:, None] * jobs.perf[:, None, :]
    counts = np.arange(1, jobs.steps_per_s.shape[1])
    seconds = np.where(np.isnan(speed), np.inf, jobs.steps[:, None, None] / speed)
    kwh = np.where(np.isinf(seconds), 0.0, seconds) * counts[:, None] * jobs.watts[:, None, :] / JOULES_PER_KWH
    return seconds.reshape(len(jobs), -1), kwh.reshape(len(jobs), -1)


def _greatest(prices: FloatArray, seconds: FloatArray, kwh: FloatArray, jobs: int) -> tuple[FloatArray, FloatArray]:
    """Return the corners of the upper envelope of the lines seconds + price·(kwh - x), x being energy."""
    bounds = seconds + prices * kwh
    crossings = np.diff(bounds) / np.diff(prices)
    heights = bounds[:-1] - prices[:-1] * crossings
    # The curve ends at the least energy, which is its last point.
    spent = np.append(crossings, kwh[-1])
    mean_s = np.append(heights, bounds[-1] - prices[-1] * kwh[-1]) / jobs
    return spent, mean_s


MONTHS: Final = (6, 12)
"""Months in which simulations start: the first was chosen before any simulation; the second is a check."""

MOST_SEEDS: Final = 4
"""Maximum number of seeds, because these simulations take much longer than those of the other settings."""

WEEKS: Final = 3
"""Number of weeks of a month in which simulations start, in turn by seed."""

JOBS_PER_H: Final = 4.0 / 64
"""Jobs per hour and GPU: jobs that request about 70 % of the GPU time."""

PERIOD_S: Final = 1800.0
SHARES: Final = (0.2, 0.3, 0.45, 0.7)
"""Budgets of a period as fractions of the energy of all GPUs at the highest frequency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Carbon intensity of a grid from the Unix time `starts_s` on, with its mean over the month, `usual_g_per_kwh`."""

    carbon: HourlySeries
    starts_s: float
    usual_g_per_kwh: float

    def intensity(self, now_s: float) -> float:
        """Return the intensity `now_s` seconds after the start."""
        return self.carbon.at(self.starts_s + now_s)

    def by_kwh(self, price_s_per_kwh: float) -> Planner:
        """Return a planner with a constant price per kWh."""
        return partial(allocate, price_s_per_kwh=price_s_per_kwh)

    def by_gram(self, price_s_per_kwh: float) -> Planner:
        """Return a planner with a constant price per gram: that per kWh at the usual intensity."""

        def plan(jobs: ElasticJobs, gpus: int, period: Period) -> CountsAndFrequencies:
            price = price_s_per_kwh * period.intensity_g_per_kwh / self.usual_g_per_kwh
            return allocate(jobs, gpus, period, price_s_per_kwh=price)

        return plan


Priced = Callable[[Outlook, float], Planner]

SAME_KWH, PER_KWH, PER_GRAM = "same kWh every period", "a price a kWh", "a price a gram"
ARMS: Final[Mapping[str, Priced | None]] = {SAME_KWH: None, PER_KWH: Outlook.by_kwh, PER_GRAM: Outlook.by_gram}
"""Planners by kind of price, which have no budget; None has the same budget in every period."""

PAIRS: Final = ((PER_KWH, SAME_KWH), (PER_GRAM, SAME_KWH), (PER_GRAM, PER_KWH))
"""Compared kinds, each with the one that it is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Months:
    """The runs of all months of the grids: what jobs are drawn from, the cluster, and prices in seconds per kWh."""

    measured: Measured
    cluster: Cluster
    jobs: int
    prices: tuple[float, ...]
    grids: Mapping[str, HourlySeries]

    def __call__(self, arm: Priced | None, seed: int) -> list[Row]:
        """Simulate a stretch that starts in one of each month's weeks; return a row for each budget or price."""
        rng, gpus = np.random.default_rng([seed, 7]), self.cluster.gpus
        jobs = drawn(self.measured, rng, jobs=self.jobs, jobs_per_h=JOBS_PER_H * gpus)
        full_kwh = gpus * self.measured.full_w * PERIOD_S / JOULES_PER_KWH
        rows: list[Row] = []
        anywhere: dict[float, Simulated] = {}  # by budget or price per kWh, whose plans do not depend on the grid
        for of, outlook in self._outlooks(seed):
            cluster = replace(self.cluster, period_s=PERIOD_S, rule="period", intensity=outlook.intensity)
            planners: dict[float, tuple[float, Planner]] = {share: (share * full_kwh, allocate) for share in SHARES}
            if arm is not None:
                planners = {price: (math.inf, arm(outlook, price)) for price in self.prices}
            for share, (budget_kwh, planner) in planners.items():
                found = anywhere.get(share) or simulate(jobs, cluster, budget_kwh, planner)
                if arm is None or arm is Outlook.by_kwh:
                    anywhere[share] = found
                ended = 1.0 if np.isfinite(found.jct_s).all() else math.nan
                kg = found.grams(outlook.intensity).sum() / 1000.0
                figures = {"mean_jct_s": found.jct_s.mean(), "kwh": found.kwh.sum(), "kg": kg}
                rows.append({**of, "share": share, **{name: ended * float(value) for name, value in figures.items()}})
        return rows

    def _outlooks(self, seed: int) -> Iterator[tuple[Row, Outlook]]:
        """Yield the names and the outlook of every month, from the week of the seed on."""
        for zone, series in self.grids.items():
            for month in MONTHS:
                from_ts, until_ts = month_of(series, month)
                starts_s = from_ts + timedelta(weeks=seed % WEEKS).total_seconds()
                of: Row = {"zone": zone, "month": f"{datetime.fromtimestamp(from_ts, UTC):%Y-%m}"}
                usual = series.mean(from_ts, until_ts)
                yield of, Outlook(carbon=series, starts_s=starts_s, usual_g_per_kwh=usual)


def saving_rows(runs: pl.DataFrame) -> list[Row]:
    """Return by how many percent carbon is lower at equal mean completion time, with intervals over seeds.

    Each kind of price is compared with the same kWh every period, and prices per gram also with prices per kWh, at
    `AT_POINTS` completion times that both reach. `kwh_less_pct` is the energy saved. `net_of_energy_pct` is the carbon
    saved beyond that: less what the saved kWh would have emitted at the mean intensity that the other kind met.
    """
    rows: list[Row] = []
    for (zone, month), of_month in runs.group_by("zone", "month", maintain_order=True):
        by_seed = [
            {name: of_seed.filter(pl.col(ARM) == name) for name in ARMS}
            for _, of_seed in of_month.group_by(SEED, maintain_order=True)
        ]
        for name, against in PAIRS:
            pairs = np.array([[_less(of[name], of[against], each) for each in ("kg", "kwh")] for of in by_seed])
            kg, kwh = 100.0 * pairs[np.isfinite(pairs).all(axis=1)].T
            row: Row = {"zone": zone, "month": month, "budget": name, "against": against, "seeds": len(kg)}
            less = {"carbon_less_pct": kg, "kwh_less_pct": kwh, "net_of_energy_pct": kg - kwh}
            for column, values in less.items():
                row |= mean(values).columns(column)
            rows.append(row)
    return rows


def _less(ours: pl.DataFrame, theirs: pl.DataFrame, column: str) -> float:
    """Return the fraction by which `ours` is lower than `theirs`, averaged at completion times that both reach."""
    mine, other = (Front.of(each[column].to_numpy(), each["mean_jct_s"].to_numpy()) for each in (ours, theirs))
    if not len(mine.spent) or not len(other.spent):
        return math.nan
    low, high = max(mine.mean_s[-1], other.mean_s[-1]), min(mine.mean_s[0], other.mean_s[0])
    if high < low:
        return math.nan
    at = np.linspace(low, high, AT_POINTS)
    return 1.0 - float((mine.for_mean(at) / other.for_mean(at)).mean())
