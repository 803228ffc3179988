"""Jobs of a trace for the sites, with predicted run times, and the periods of training, tuning and judging.

Weeks are drawn in `pipelines.simulation.sites.weeks`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.models.baselines import history_forecasts, key_codes
from pipelines.simulation.sites.weeks import (
    MOST_GPUS,
    MOST_STEPS,
    STEP_S,
    WEEK,
    Place,
    Pool,
    Terms,
    Weeks,
    drawn,
    stacked,
    week_of,
)
from scheduler_core.planning.hourly import HOUR_S, HOURS_PER_DAY

__all__ = ["PERIODS", "Period", "batch", "pool_of"]

FORECAST: Final = "recent_20"
MONDAY_S: Final = 4 * HOURS_PER_DAY * HOUR_S
"""Unix time of the first Monday."""
WEEK_S: Final = WEEK * STEP_S
LEAST_WEEKS: Final = 5
LONGEST: Final = timedelta(days=17)
"""Seconds from the start of a week until its last job must have ended, at the largest slack."""
EDGE: Final = timedelta(days=2)
"""Hours that a series may lack at either end of the year, because files may be cut at local midnight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """First and last month in the grid's year, and the part of the recorded weeks as two shares (begin and end)."""

    months: tuple[int, int]
    weeks: tuple[float, float]

    def mondays(self, year: int) -> list[datetime]:
        """Return the Mondays (UTC) of the months whose week, and its last jobs, end within the months."""
        first, after = (
            datetime(year, self.months[0], 1, tzinfo=UTC),
            datetime(year + self.months[1] // 12, 1, 1, tzinfo=UTC),
        )
        after = after.replace(month=self.months[1] % 12 + 1)
        days = (first + timedelta(days=day) for day in range((after - first - LONGEST).days + 1))
        return [day for day in days if day.weekday() == 0]

    def of(self, pool: Pool) -> Pool:
        """Return the jobs of the period's recorded weeks."""
        known = np.unique(pool.week)
        low, high = (round(share * len(known)) for share in self.weeks)
        return pool.of(known[low:high])


PERIODS: Final = {
    "train": Period(months=(1, 8), weeks=(0.0, 0.6)),
    "tune": Period(months=(9, 9), weeks=(0.6, 0.8)),
    "judge": Period(months=(10, 12), weeks=(0.8, 1.0)),
}
"""Periods; neither their months nor their recorded weeks overlap."""


def pool_of(jobs: pl.DataFrame) -> tuple[Pool, str]:
    """Return the jobs of a trace that sites may exchange, and a note on those left out.

    Jobs of 1 to 32 GPUs that ran 15 minutes to 48 hours; run times are rounded up to steps. The predicted run time is
    the median of the last 20 ended jobs with the same key (`recent_20`), among such jobs.
    """
    gpus = (pl.col("req_gpus") * pl.col("instances")).alias("gpus")
    longest_s = MOST_STEPS * STEP_S
    whole = pl.col("run_s").is_between(STEP_S, longest_s, closed="left") & ~pl.col("run_s_censored").fill_null(
        value=True
    )
    kept = jobs.filter(whole, gpus.is_between(1.0, MOST_GPUS)).sort("submit_ts", "job_id", maintain_order=True)
    moments = kept["submit_ts"].dt.epoch("us").to_numpy() / 1e6 - MONDAY_S
    week = np.floor(moments / WEEK_S).astype(np.int64)
    if len(np.unique(week)) < LEAST_WEEKS:
        raise BadUsage(
            f"found jobs of {len(np.unique(week))} weeks, expected at least {LEAST_WEEKS}; name another trace"
        )
    told_s = np.exp(history_forecasts(kept, [FORECAST])[FORECAST].p50)
    run_s = kept["run_s"].to_numpy()
    vc = key_codes(kept, ("vc",))
    pool = Pool(
        week=week - week.min(),
        arrive=((moments - week * WEEK_S) // STEP_S).astype(np.int64),
        gpus=np.ceil(kept.select(gpus).to_series().to_numpy()).astype(np.int64),
        run_steps=np.ceil(run_s / STEP_S).astype(np.int64),
        told_steps=np.clip(np.ceil(told_s / STEP_S), 1, MOST_STEPS).astype(np.int64),
        group=np.where(vc >= 0, vc, np.arange(len(kept)) + vc.max(initial=0) + 1),
    )
    spread = float(np.std(np.log(pool.told_steps / pool.run_steps)))
    return pool, (
        f"{len(kept)} of {len(jobs)} jobs: 1 to {MOST_GPUS} GPUs, 15 minutes to {longest_s / HOUR_S:g} hours, run time "
        f"known; predicted run time: {FORECAST}, standard deviation of the logarithm of its error {spread:.2f}"
    )


def batch(
    places: Sequence[Place], pool: Pool, terms: Terms, period: Period, *, seed: int, load: float = 0.9, draws: int = 1
) -> Weeks:
    """Return a batch with `draws` weeks of the period's jobs on each of its Mondays; equal seeds give equal jobs."""
    shares = np.array([float(each.gpus) for each in places])
    year = _year_of(places)
    jobs = period.of(pool)
    return stacked(
        [
            week_of(
                places,
                drawn(jobs, shares, int(shares.sum()), terms, np.random.default_rng([seed, number, draw]), load=load),
                monday.timestamp(),
                terms,
            )
            for number, monday in enumerate(period.mondays(year))
            for draw in range(draws)
        ]
    )


def _year_of(places: Sequence[Place]) -> int:
    """Return the year of the grids, which must be complete: a series would repeat other months in a gap."""
    year = 0
    for each in places:
        for series in (each.grid.carbon, each.grid.price):
            if series is None:
                continue
            begin, end = (datetime.fromtimestamp(at, UTC) for at in (series.start_s, series.until_s))
            year = year or (begin + EDGE).year
            if begin > datetime(year, 1, 1, tzinfo=UTC) + EDGE or end < datetime(year + 1, 1, 1, tzinfo=UTC) - EDGE:
                raise BadUsage(
                    f"zone {each.name}: found hours from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, expected all of {year}; "
                    "give each zone files of carbon and price of one whole year"
                )
    return year
