"""What a training run records beside the model: loss by boosting round, loss by week, and calibration by prediction.

Pure functions on frames and arrays. Called by `pipelines.models.runtime`; drawn in `pipelines.report.charts.training`
and written by `pipelines.models.tracking`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from pipelines.models.examples import Examples
from pipelines.models.fitted import Fitted
from pipelines.models.judging import COMBINED
from pipelines.models.metrics import QUANTILES, FloatArray, Forecast, pinball_rows, primary_rows

__all__ = ["FitRecord"]


MOST_ROWS: Final = 5_000
"""Maximum number of rows behind each point of a learning curve: the latest submitted."""

BINS: Final = 10
LEAST_IN_BIN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRecord:
    """The course of a fit and of its evaluation.

    Attributes
    ----------
    rounds
        One row per boosting round: `round` (from 1), and the uncalibrated pinball loss of the trees up to it on the
        latest training rows (`latest_trained`) and on the judged rows (`later`, null without judged rows).
    weeks
        One row per week of submissions and forecast: `week` (its first day), `model`, `jobs`, `pinball`.
    calibration
        One row per quantile and bin of its prediction: `quantile`, `predicted_s` (median of the bin), `jobs`, and
        `share` of jobs at or below their prediction.
    """

    rounds: pl.DataFrame
    weeks: pl.DataFrame
    calibration: pl.DataFrame


WEEKS: Final = {"week": pl.Date, "model": pl.String, "jobs": pl.Int64, "pinball": pl.Float64}
CALIBRATION: Final = {"quantile": pl.Float64, "predicted_s": pl.Float64, "jobs": pl.Int64, "share": pl.Float64}


def record_of(examples: Examples, fitted: Fitted, forecasts: Mapping[str, Forecast]) -> FitRecord:
    """Return the record of a fit; `forecasts` are those of the judged rows by name, empty if none were judged."""
    stop = np.intersect1d(fitted.split.stop, fitted.trained)
    judged = fitted.split.test if forecasts else fitted.split.test[:0]
    curves = {
        "latest_trained": round_losses(examples, fitted, stop),
        "later": round_losses(examples, fitted, judged),
    }
    numbers = np.arange(1, fitted.rounds + 1)
    rounds = pl.DataFrame({"round": numbers, **curves}).fill_nan(None)
    submitted = examples.jobs["submit_ts"][judged]
    log_y = examples.log_y[judged]
    weeks = [weekly(name, submitted, primary_rows(log_y, each)) for name, each in forecasts.items()]
    quantiles = [calibration(log_y, forecasts[COMBINED])] if COMBINED in forecasts else []
    return FitRecord(
        rounds=rounds,
        weeks=pl.concat([pl.DataFrame(schema=WEEKS), *weeks]),
        calibration=pl.concat([pl.DataFrame(schema=CALIBRATION), *quantiles]),
    )


def round_losses(
    examples: Examples, fitted: Fitted, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> FloatArray:
    """Return the mean pinball loss of p50 and p90 after each boosting round (rounds,), NaN without rows."""
    rows = rows[-MOST_ROWS:]
    if len(rows) == 0:
        return np.full(fitted.rounds, np.nan)
    matrix = fitted.matrix[rows]

    def outputs(first: int, end: int) -> FloatArray:
        answer = fitted.booster.inplace_predict(matrix, iteration_range=(first, end))
        return np.asarray(answer, dtype=np.float64).reshape(len(rows), -1)

    each = [outputs(number, number + 1) for number in range(fitted.rounds)]
    # Every answer holds the booster's base score once, so the sum of all holds it once per round.
    base = (np.sum(each, axis=0) - outputs(0, fitted.rounds)) / max(fitted.rounds - 1, 1)
    found = examples.reference[rows] + base
    losses = []
    for answer in each:
        found = found + (answer - base)
        both = [pinball_rows(examples.log_y[rows], found[:, i], tau) for i, tau in enumerate(QUANTILES)]
        losses.append(float(np.mean(both)))
    return np.array(losses)


def weekly(name: str, submitted: pl.Series, losses: FloatArray) -> pl.DataFrame:
    """Return the mean loss of a forecast by calendar week (UTC, from Monday) of submission, columns `WEEKS`."""
    rows = pl.DataFrame({"week": submitted.dt.truncate("1w").dt.date(), "loss": losses})
    found = rows.group_by("week").agg(jobs=pl.len().cast(pl.Int64), pinball=pl.col("loss").mean()).sort("week")
    return found.select("week", pl.lit(name).alias("model"), "jobs", "pinball")


def calibration(log_y: FloatArray, forecast: Forecast) -> pl.DataFrame:
    """Return the share of jobs at or below their prediction in bins of equal size, columns `CALIBRATION`."""
    parts = []
    bins = max(min(BINS, len(log_y) // LEAST_IN_BIN), 1)
    for tau, predicted in zip(QUANTILES, (forecast.p50, forecast.p90), strict=True):
        for rows in np.array_split(np.argsort(predicted, kind="stable"), bins):
            share = float(np.mean(log_y[rows] <= predicted[rows]))
            parts.append((tau, float(np.exp(np.median(predicted[rows]))), len(rows), share))
    return pl.DataFrame(parts, schema=CALIBRATION, orient="row")
