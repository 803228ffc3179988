"""Compare forecasts of the same jobs: every metric, with bootstrap intervals and the lead over each baseline.

Forecasts are given; none is made here. Called by `pipelines.models.runtime`, `usage` and `evaluate`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.models import metrics
from pipelines.models.metrics import FloatArray, Forecast

__all__ = ["MODEL"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A statistic of all rows, with its 95 % bootstrap interval."""

    value: float
    lo: float
    hi: float


def day_blocks(submit_ts: pl.Series) -> IntArray:
    """Return the UTC calendar day of each submission (n,), as a number 0 to k - 1 over the k distinct days."""
    days = submit_ts.dt.epoch("d").to_numpy()
    return np.unique(days, return_inverse=True)[1].astype(np.int64)


def day_draws(days: int, *, seed: int, draws: int = 1000) -> FloatArray:
    """Return how often each day is drawn in each bootstrap resample (draws, days); each row sums to `days`."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(days, np.full(days, 1.0 / days), size=draws).astype(np.float64)


def day_sums(blocks: IntArray, rows: FloatArray) -> FloatArray:
    """Return the sum of the values `rows` (n,) within each day (days,)."""
    return np.bincount(blocks, weights=rows).astype(np.float64)


def mean_interval(blocks: IntArray, rows: FloatArray, draws: FloatArray) -> Interval:
    """Return the mean of the values `rows` (n,) with its interval; for a paired comparison pass differences."""
    return ratio_interval(blocks, rows, np.ones_like(rows), draws)


def ratio_interval(blocks: IntArray, top: FloatArray, bottom: FloatArray, draws: FloatArray) -> Interval:
    """Return Σtop / Σbottom with its interval; each resample takes both sums over the same days.

    A single day cannot be resampled: its interval is infinite.
    """
    tops, bottoms = day_sums(blocks, top), day_sums(blocks, bottom)
    total = float(bottoms.sum())
    value = float(tops.sum()) / total if total > 0 else float("nan")
    if len(tops) < 2:
        return Interval(value=value, lo=float("-inf"), hi=float("inf"))
    below = draws @ bottoms
    drawn = (draws @ tops)[below > 0] / below[below > 0]
    lo, hi = np.percentile(drawn, [2.5, 97.5])
    return Interval(value=value, lo=float(lo), hi=float(hi))


MODEL: Final = "xgboost"
"""Name of the model's row in an evaluation; all other rows are baselines, which are compared with it."""

EVALUATION_SCHEMA: Final[dict[str, type[pl.DataType]]] = {
    "model": pl.String,
    "trace": pl.String,
    "task_type": pl.String,
    "split": pl.String,
    "n": pl.Int64,
    "mae_h": pl.Float64,
    "wmape": pl.Float64,
    "wmape_48h": pl.Float64,
    "pinball": pl.Float64,
    "pinball_lo": pl.Float64,
    "pinball_hi": pl.Float64,
    "pinball_p50": pl.Float64,
    "coverage_p90": pl.Float64,
    "within_2x": pl.Float64,
    "lead": pl.Float64,
    "lead_lo": pl.Float64,
    "lead_hi": pl.Float64,
    "wmape_48h_diff": pl.Float64,
    "wmape_48h_diff_lo": pl.Float64,
    "wmape_48h_diff_hi": pl.Float64,
    "coverage_p90_week_lo": pl.Float64,
    "coverage_p90_week_hi": pl.Float64,
    "coverage_p90_static": pl.Float64,
}
"""Columns of an evaluation, one row per model or baseline.

`lead` is a baseline's pinball loss minus XGBoost's, `wmape_48h_diff` the same difference of WMAPE at 48 h; both are
null for XGBoost. `_lo` and `_hi` are the ends of 95 % intervals. `coverage_p90_week_lo` and `_hi` are the lowest and
highest coverage in a week of submissions with at least `LEAST_WEEK_ROWS` rows. `coverage_p90_static` is the coverage of
XGBoost with a static offset on the time-later split.
"""

LEAST_WEEK_ROWS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The judged rows: submission times and run times in the same order, and the number `n` of distinct jobs.

    A job judged in several folds has several rows, but counts once in `n`.
    """

    trace: str
    task_type: str
    split: str
    submit_ts: pl.Series
    run_s: FloatArray
    n: int


def compare(
    judged: Judged,
    forecasts: Mapping[str, Forecast],
    *,
    seed: int,
    draws: int = 1000,
    static: Forecast | None = None,
) -> pl.DataFrame:
    """Score every forecast, and the lead of `forecasts["xgboost"]` over every baseline, on the same resampled days.

    Returns
    -------
    table
        One row per forecast in the order given; columns `EVALUATION_SCHEMA`.
    """
    blocks = day_blocks(judged.submit_ts)
    drawn = day_draws(int(blocks.max()) + 1, seed=seed, draws=draws)
    log_y = metrics.log_run(judged.run_s)
    clipped = metrics.clipped(judged.run_s)
    losses = {name: metrics.primary_rows(log_y, forecast) for name, forecast in forecasts.items()}
    errors = {name: np.abs(metrics.clipped(np.exp(forecast.p50)) - clipped) for name, forecast in forecasts.items()}
    rows: list[dict[str, object]] = []
    for name, forecast in forecasts.items():
        interval = mean_interval(blocks, losses[name], drawn)
        row: dict[str, object] = {
            "model": name,
            "trace": judged.trace,
            "task_type": judged.task_type,
            "split": judged.split,
            "n": judged.n,
            **metrics.score(judged.run_s, forecast),
            "pinball_lo": interval.lo,
            "pinball_hi": interval.hi,
        }
        row["coverage_p90_week_lo"], row["coverage_p90_week_hi"] = _weekly_coverage(judged, log_y, forecast)
        if name == MODEL and static is not None:
            row["coverage_p90_static"] = metrics.coverage_p90(log_y, static.p90)
        if name != MODEL:
            lead = mean_interval(blocks, losses[name] - losses[MODEL], drawn)
            gap = ratio_interval(blocks, errors[name] - errors[MODEL], clipped, drawn)
            row |= {"lead": lead.value, "lead_lo": lead.lo, "lead_hi": lead.hi}
            row |= {"wmape_48h_diff": gap.value, "wmape_48h_diff_lo": gap.lo, "wmape_48h_diff_hi": gap.hi}
        rows.append(row)
    return pl.DataFrame(rows, schema=EVALUATION_SCHEMA)


def _weekly_coverage(judged: Judged, log_y: FloatArray, forecast: Forecast) -> tuple[float | None, float | None]:
    weeks = _weeks(judged.submit_ts)
    sizes = np.bincount(weeks)
    covered = np.bincount(weeks, weights=(log_y <= forecast.p90).astype(np.float64))
    shares = covered[sizes >= LEAST_WEEK_ROWS] / sizes[sizes >= LEAST_WEEK_ROWS]
    return (float(shares.min()), float(shares.max())) if len(shares) else (None, None)


def _weeks(submit_ts: pl.Series) -> IntArray:
    days = submit_ts.dt.epoch("d").to_numpy().astype(np.int64)
    weeks: IntArray = (days - days.min()) // 7
    return weeks
