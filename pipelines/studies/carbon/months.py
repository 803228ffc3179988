"""Carbon at equal completion time on real grids, with budgets in kWh or grams, or prices per kWh or gram.

Planning is in `scheduler_core.planning.carbon`, simulation in `simulation`. Called by `study`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl

from pipelines.studies.carbon.charts import carbon_over_time
from pipelines.studies.carbon.curves import AT_POINTS
from pipelines.studies.carbon.jobs import Measured, drawn
from pipelines.studies.carbon.runs import MOST_BANKED_S, figures
from pipelines.studies.carbon.simulation import Site, simulate
from pipelines.studies.carbon.tables import front
from pipelines.studies.grids import RecordedHours
from pipelines.studies.intervals import mean
from pipelines.studies.study import Context, Findings, Row, dealt
from scheduler_core.planning.carbon.allocator import allocate
from scheduler_core.planning.carbon.budget import Bank
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.carbon.priced import foreseen, priced
from scheduler_core.planning.carbon.round import Planner
from scheduler_core.planning.forecast import forecast
from scheduler_core.planning.hourly import HOURS_PER_DAY, HourlySeries
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray

HOUR_S: Final = 3600.0
LASTS: Final = 2.0
"""Expected run time of a job divided by its shortest run time (ours): more than 1, as few jobs run at full speed."""


@dataclass(slots=True, kw_only=True)
class Outlook:
    """Carbon intensity of a grid from `starts_s` on, and planners that depend on it.

    Before each plan, the simulation calls `intensity`, which keeps the moment in `asked_s`; forecasts start from that
    hour. A price per gram is a price per kWh divided by the intensity `usual_g_per_kwh`.
    """

    carbon: HourlySeries
    starts_s: float
    usual_g_per_kwh: float
    asked_s: float = field(default=0.0, init=False)

    def intensity(self, now_s: float) -> float:
        """Return the intensity `now_s` seconds after the start, and keep that moment for forecasts."""
        self.asked_s = self.starts_s + now_s
        return self.carbon.at(self.asked_s)

    def by_kwh(self, price_s_per_kwh: float) -> Planner:
        """Return a planner with a constant price per kWh."""
        return partial(priced, price_s_per_kwh=price_s_per_kwh)

    def by_gram(self, price_s_per_kwh: float) -> Planner:
        """Return a planner with a constant price per gram: per kWh it is proportional to the intensity."""

        def plan(jobs: ElasticJobs, *, intensity_g_per_kwh: float, **period: Any) -> CountsAndFrequencies:
            price = price_s_per_kwh * intensity_g_per_kwh / self.usual_g_per_kwh
            return priced(jobs, intensity_g_per_kwh=intensity_g_per_kwh, price_s_per_kwh=price, **period)

        return plan

    def foreseeing(self, price_s_per_kwh: float) -> Planner:
        """Return a planner with a constant price per gram that expects intensities to be as in recent days.

        It ignores budgets; only the price limits emissions.
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
        """Return each job's mean forecast intensity over its expected remaining time, at most a day (J,)."""
        hour = self.carbon.hour(np.array([self.asked_s]))
        ahead = [forecast(self.carbon, hour, hours, "recent_days")[0] for hours in range(HOURS_PER_DAY)]
        means = np.cumsum(ahead) / np.arange(1, HOURS_PER_DAY + 1)
        fastest = np.where(jobs.allowed, jobs.steps_per_s, 0.0).max(axis=1) * jobs.perf[:, -1]
        hours = np.ceil(LASTS * jobs.steps_left / fastest / HOUR_S)
        return np.asarray(means[np.clip(hours, 1, HOURS_PER_DAY).astype(np.int64) - 1])


PRICED: Final[dict[str, Callable[[Outlook, float], Planner]]] = {
    "a price a kWh": Outlook.by_kwh,
    "a price a gram": Outlook.by_gram,
    "a price a gram, foreseen": Outlook.foreseeing,
}
"""Planners by kind of price: per kWh, per gram, and per gram with a forecast. They have no budget."""


ZONES: Final = ("DE-LU", "US-CAL-CISO")
MONTHS: Final = (6, 12)
"""Default months: the first was chosen before any simulation; the second is a check."""

MOST_SEEDS: Final = 4
"""Maximum number of seeds, because these simulations take much longer than those of the other settings."""

WEEKS: Final = 3
"""Number of weeks of a month in which simulations start, in turn by seed."""

JOBS_PER_H: Final = 4.0 / 64
"""Jobs per hour and GPU: jobs that request about 70 % of the GPU time."""

PERIOD_S: Final = 1800.0
SHARES: Final = (0.2, 0.3, 0.45, 0.7)

BLIND: Final = "same kWh every period"
BUDGETS: Final = {
    BLIND: (False, False),
    "same kWh, unused kept": (False, True),
    "same grams every period": (True, False),
    "same grams, unused kept": (True, True),
}
"""Kinds of budget by name: whether the budget is in grams, and whether unused budget is kept for later periods."""

PER_KWH: Final = "a price a kWh"
KINDS: Final = (*BUDGETS, *PRICED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What runs on the grids: jobs of a simulation, GPUs, and prices of energy in seconds of run time per kWh."""

    jobs: int
    gpus: int
    prices: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """One simulation on a real grid: its zone, the first moments of its month and of the next, and its seed."""

    measured: Measured
    cluster: Cluster
    zone: str
    month_ts: tuple[float, float]
    seed: int
    carbon: HourlySeries


def months_of(
    measured: Measured, grids: Sequence[RecordedHours], cluster: Cluster, seeds: range, context: Context
) -> Findings:
    """Simulate weeks on real grids under every kind of budget and price."""
    seeds = seeds[:MOST_SEEDS]
    # A price of 0 has no counterpart among budgets.
    cluster = replace(cluster, prices=tuple(price for price in cluster.prices if price > 0.0))
    weeks = [
        Week(measured=measured, cluster=cluster, zone=grid.zone, month_ts=month, seed=seed, carbon=grid.series)
        for grid in grids
        for month in zip(grid.starts_ts.tolist(), grid.ends_ts.tolist(), strict=True)
        for seed in seeds
    ]
    done: list[Row] = []
    for rows in dealt(run_week, weeks, context.engine):
        done += rows
    context.talk(f"months: {len(weeks)} weeks simulated")
    runs = pl.DataFrame(done, infer_schema_length=None)
    return _findings(runs, len(seeds), cluster, tuple(note for grid in grids for note in grid.notes))


def run_week(week: Week) -> list[Row]:
    """Simulate one week; return a row per kind of budget and share, and per kind of price and price."""
    rng = np.random.default_rng([week.seed, 7])
    cluster = week.cluster
    jobs = drawn(week.measured, rng, jobs=cluster.jobs, jobs_per_h=JOBS_PER_H * cluster.gpus)
    first_ts, after_ts = week.month_ts
    starts_s = first_ts + timedelta(weeks=week.seed % WEEKS).total_seconds()
    mean_g_per_kwh = week.carbon.mean(first_ts, after_ts)
    full_kwh = cluster.gpus * week.measured.full_w * PERIOD_S / JOULES_PER_KWH
    first = datetime.fromtimestamp(first_ts, UTC)
    said: Row = {"zone": week.zone, "month": f"{first:%Y-%m}", "seed": week.seed}
    outlook = Outlook(carbon=week.carbon, starts_s=starts_s, usual_g_per_kwh=mean_g_per_kwh)
    free = Site(
        gpus=cluster.gpus, period_s=PERIOD_S, intensity_g_per_kwh=outlook.intensity, allowance_g=lambda _: math.inf
    )
    rows: list[Row] = []
    for name, (in_grams, banks) in BUDGETS.items():
        for share in SHARES:

            def allowance(now_s: float, kwh: float = share * full_kwh, *, in_grams: bool = in_grams) -> float:
                return kwh * (mean_g_per_kwh if in_grams else outlook.intensity(now_s))

            bank = Bank(most_g=share * full_kwh * mean_g_per_kwh * MOST_BANKED_S / PERIOD_S) if banks else None
            site = replace(free, allowance_g=allowance, bank=bank)
            simulated = simulate(jobs, site, allocate)
            rows.append({**said, "budget": name, "share": share, **figures(simulated, jobs)})
    for name, planner in PRICED.items():
        for price in cluster.prices:
            simulated = simulate(jobs, free, planner(outlook, price))
            rows.append({**said, "budget": name, "share": price, **figures(simulated, jobs)})
    return rows


def saving_rows(runs: pl.DataFrame) -> list[Row]:
    """Return by how many percent carbon is lower at equal mean completion time, with intervals over seeds.

    Each kind of budget or price is compared with budgets of the same kWh in every period, and prices per gram also with
    prices per kWh, at `AT_POINTS` completion times that both reach. `kwh_less_pct` is the energy saved.
    `net_of_energy_pct` is the carbon saved beyond that: less what the saved kWh would have emitted at the mean
    intensity that the other kind met.
    """
    pairs = [(name, BLIND) for name in KINDS if name != BLIND]
    pairs += [(name, PER_KWH) for name in PRICED if name != PER_KWH]
    rows: list[Row] = []
    for (zone, month), of_month in runs.group_by("zone", "month", maintain_order=True):
        savings: dict[tuple[str, str], list[tuple[float, float]]] = {pair: [] for pair in pairs}
        for _, of_seed in of_month.group_by("seed", maintain_order=True):
            for (name, against), found in savings.items():
                ours, theirs = (of_seed.filter(pl.col("budget") == each) for each in (name, against))
                found.append((_less(ours, theirs, "kg"), _less(ours, theirs, "kwh")))
        for (name, against), found in savings.items():
            known = [pair for pair in found if math.isfinite(sum(pair))]
            row: Row = {"zone": zone, "month": month, "budget": name, "against": against, "seeds": len(known)}
            less = {
                "carbon_less_pct": [kg for kg, _ in known],
                "kwh_less_pct": [kwh for _, kwh in known],
                "net_of_energy_pct": [kg - kwh for kg, kwh in known],
            }
            for column, values in less.items():
                each = mean([100.0 * value for value in values])
                row |= {column: each.value, f"{column}_lo": each.low, f"{column}_hi": each.high}
            rows.append(row)
    return rows


def _less(ours: pl.DataFrame, theirs: pl.DataFrame, column: str) -> float:
    """Return the fraction by which `ours` is lower than `theirs`, averaged at completion times that both reach."""
    mine, other = front(ours, column), front(theirs, column)
    if not len(mine.spent) or not len(other.spent):
        return math.nan
    low, high = max(mine.mean_s[-1], other.mean_s[-1]), min(mine.mean_s[0], other.mean_s[0])
    if high < low:
        return math.nan
    at = np.linspace(low, high, AT_POINTS)
    return 1.0 - float((mine.for_mean(at) / other.for_mean(at)).mean())


def _findings(runs: pl.DataFrame, seeds: int, cluster: Cluster, notes: tuple[str, ...]) -> Findings:
    whole = runs.filter(pl.col("mean_jct_s").is_finite().all().over("zone", "month", "budget", "share"))
    points = whole.group_by("zone", "month", "budget", "share", maintain_order=True).agg(
        pl.col("mean_jct_s", "kg", "kwh").mean(),
        panel=pl.format("{}, {}", pl.col("zone").first(), pl.col("month").first()),
    )
    of = [
        f"{seeds} stretches of {cluster.jobs} jobs on {cluster.gpus} GPUs; a point is a budget or a price",
        "life-cycle intensities, hourly; points further left and lower are better",
    ]
    said = (
        f"months: seeds start at a month's first {WEEKS} weeks in turn; {cluster.jobs} jobs at "
        f"{JOBS_PER_H * cluster.gpus:g} an hour, periods of {PERIOD_S:g} s, each with its newest intensity; what runs "
        "beyond the last hour of the files goes on at their first",
        "a budget in grams is the month's mean intensity times the kWh of the other kind; what is kept, at most a "
        "day's budget (ours), is the same for both kinds, so the effect of grams is separated from that of keeping",
        "a price a gram is that a kWh at the month's mean intensity (ours); foreseen: hours to come are taken to be as "
        "in recent days, so that long jobs work more in cleaner hours; made looking at March and September, seeds "
        "1000 on; net of energy: carbon saved beyond what the saved kWh would have emitted at the mean intensity met",
    )
    return Findings(
        study="carbon",
        trace="measured",
        tables={"carbon at equal completion time": saving_rows(runs)},
        frames={"months": runs},
        charts={"carbon_over_time": lambda: carbon_over_time(points, of)},
        notes=(*said, *notes),
    )
