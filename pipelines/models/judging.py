"""Judge models: compare them with baselines on resampled days, and decide by the promotion gate which may serve.

Pure functions; no registry is read or written here. Called by `pipelines.models.evaluate`, which makes forecasts, by
`pipelines.models.tracking` and the demo.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.models import metrics
from pipelines.models.metrics import FloatArray, Forecast

__all__ = ["FITTED_BASELINES", "MODEL"]

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
    **dict.fromkeys(("model", "trace", "task_type", "split"), pl.String),
    "n": pl.Int64,
    **dict.fromkeys(("mae_h", "wmape", "wmape_48h", "pinball", "pinball_lo", "pinball_hi", "pinball_p50"), pl.Float64),
    **dict.fromkeys(("coverage_p90", "within_2x", "lead", "lead_lo", "lead_hi"), pl.Float64),
    **dict.fromkeys(("wmape_48h_diff", "wmape_48h_diff_lo", "wmape_48h_diff_hi"), pl.Float64),
    **dict.fromkeys(("coverage_p90_week_lo", "coverage_p90_week_hi", "coverage_p90_static"), pl.Float64),
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


FITTED_BASELINES: Final = frozenset({"random_forest", "random_forest_relative"})
"""Baselines that are fitted. The gate ignores them: a model must only beat the history baselines."""

TIME_LATER: Final = "time"
LEAST_ROWS: Final = 50
"""Minimum number of held-out rows for a model to pass."""

COVERAGE_TOLERANCE: Final = 0.05
"""How far the coverage of a usage quantile may lie below its level; coverage above the level always passes."""

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision of the gate and its reasons, one sentence each."""

    passed: bool
    reasons: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the reasons as one line."""
        return "; ".join(self.reasons)


def judge(kind: Literal["runtime", "usage"], evaluation: pl.DataFrame) -> Verdict:
    """Judge a model by its evaluation on time-later rows.

    Parameters
    ----------
    kind
        `runtime`: the lead (loss of the best history baseline minus loss of the model) and its whole 95 % interval
        must be above zero. `usage`: the coverage of each target's quantile must be at least its level minus
        `COVERAGE_TOLERANCE`.
    evaluation
        One row per model and baseline (`runtime`: `model, split, n, pinball, lead, lead_lo`) or per target
        (`usage`: `model, target, split, n, level, coverage`). Rows of other splits are ignored.
    """
    missing = sorted(COLUMNS[kind] - set(evaluation.columns))
    if missing:
        return _refused(f"the evaluation lacks {', '.join(missing)}")
    rows = evaluation.filter(pl.col("split") == TIME_LATER).to_dicts()
    if not rows:
        return _refused(f"no rows of the split {TIME_LATER}: a model is judged on jobs later than its training jobs")
    return _judge_runtime(rows) if kind == "runtime" else _judge_usage(rows)


COLUMNS: Final = {
    "runtime": frozenset({"model", "split", "n", "pinball", "lead", "lead_lo"}),
    "usage": frozenset({"model", "target", "split", "n", "level", "coverage"}),
}


def _judge_runtime(rows: Sequence[Row]) -> Verdict:
    own = [row for row in rows if row["model"] == MODEL]
    if len(own) != 1:
        return _refused(f"{len(own)} rows of {MODEL}, expected one")
    n = _count(own[0])
    if n < LEAST_ROWS:
        return _refused(f"{n} held-out rows, expected at least {LEAST_ROWS}")
    remembered = [row for row in rows if row["model"] not in {MODEL, *FITTED_BASELINES}]
    baselines = [row for row in remembered if math.isfinite(_figure(row, "pinball"))]
    if not baselines:
        return _refused("no history baseline on the held-out rows, expected at least one")
    best = min(baselines, key=lambda row: (_figure(row, "pinball"), str(row["model"])))
    ours, theirs = _figure(own[0], "pinball"), _figure(best, "pinball")
    lead, lowest = _figure(best, "lead"), _figure(best, "lead_lo")
    found = f"pinball {ours:.4f} against {theirs:.4f} of {best['model']} on {n} later rows, lead {lead:+.4f}"
    if lead > 0.0 and lowest > 0.0:
        return Verdict(passed=True, reasons=(f"{found}, at least {lowest:+.4f}",))
    if lead > 0.0:
        return _refused(f"{found}, but its interval begins at {lowest:+.4f}: expected above zero")
    return _refused(f"{found}: expected above zero")


def _judge_usage(rows: Sequence[Row]) -> Verdict:
    own = sorted((row for row in rows if row["model"] == MODEL), key=lambda row: str(row["target"]))
    if not own:
        return _refused(f"no rows of {MODEL}, expected one per target")
    good, bad = [], []
    for row in own:
        n, level, coverage = _count(row), _figure(row, "level"), _figure(row, "coverage")
        found = f"{row['target']} covered {coverage:.3f} of {n} later rows"
        if n < LEAST_ROWS:
            bad.append(f"{row['target']} has {n} later rows, expected at least {LEAST_ROWS}")
        elif coverage >= level - COVERAGE_TOLERANCE:
            good.append(found)
        else:
            bad.append(f"{found}, expected {level:.2f} within {COVERAGE_TOLERANCE:.2f}")
    return _refused(*bad) if bad else Verdict(passed=True, reasons=tuple(good))


def _figure(row: Row, name: str) -> float:
    value = row[name]
    return float(value) if isinstance(value, int | float) else math.nan


def _count(row: Row) -> int:
    value = row["n"]
    return value if isinstance(value, int) else 0


def _refused(*reasons: str) -> Verdict:
    return Verdict(passed=False, reasons=reasons)
