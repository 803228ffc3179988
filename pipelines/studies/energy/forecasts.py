"""Study of forecasts of carbon intensity and electricity price: their errors, and what starts chosen by them save.

Forecasts are made in `scheduler_core.planning.forecast`. Called by `taut study forecasts`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from pipelines.errors import BadUsage
from pipelines.simulation.energy.grid_files import zone_files, zones_of
from pipelines.studies.study import Context, Findings, Row, Study, grid_option, option
from scheduler_core.errors import BadInput
from scheduler_core.planning.forecast import FORECASTS, forecast, forecast_error
from scheduler_core.planning.hourly import HOUR_S, HOURS_PER_DAY, HourlySeries
from scheduler_core.planning.release import CLAIRVOYANT, released_s
from scheduler_core.types import FloatArray, IntArray

HORIZONS_H: Final = (1, 3, 6, 12, 24, 48)
SLACKS_H: Final = (6, 12, 24)
RUN_H: Final = 4
RUN_S: Final = RUN_H * HOUR_S
FIRST_DAYS: Final = 14
HALVES: Final = {"1 to 6": range(1, 7), "7 to 12": range(7, 13)}
"""Months: the constants of `recent_days` were chosen on the first half of 2023, so that its second half is a test."""


def forecast_rows(
    folder: Path, zones: Sequence[str] | None = None, horizons_h: Sequence[int] = HORIZONS_H
) -> tuple[list[Row], list[Row], list[str]]:
    """Return a row per zone, series, forecast and horizon, the rows of `start_rows`, and notes on the files read.

    Every reported hour of the files is forecast, from the second day on; hours without a reported value are left out.
    The value of the current hour is known to every forecast.

    Raises
    ------
    BadUsage
        If there is no zone, a requested zone is missing, or a file is not in the expected format or too short.
    """
    rows: list[Row] = []
    starts: list[Row] = []
    notes: list[str] = []
    known = zones or zones_of(folder)
    if not known:
        raise BadUsage(
            f"--grid {folder}: found no zone, expected subfolders (or the folder itself) with carbon_YEAR.csv or "
            "price_YEAR.csv"
        )
    for zone in known:
        lca, direct = zone_files(folder, zone, basis="lca"), zone_files(folder, zone, basis="direct")
        notes += lca.notes
        told = {"carbon_lca": lca.carbon, "carbon_direct": direct.carbon, "price": lca.price}
        for name, series in told.items():
            if series is not None:
                rows += _rows(zone, name, series, horizons_h)
                starts += [{"zone": zone, "series": name, **row} for row in start_rows(series)]
    return rows, starts, notes


def start_rows(series: HourlySeries) -> list[Row]:
    """Return what starts of 4-hour runs save, a run from every hour, by forecast, slack and half of the year.

    `saved_pct` is the saving against starting at once, in percent of it. `gap_closed` is the part of the distance from
    `yesterday` to hindsight that a forecast covers. `paused_saved_pct` is the saving of runs that may also be paused
    and resumed at any hour, free of cost (`paused_means`). The first two weeks and the last two days are left out.
    """
    hours = np.arange(FIRST_DAYS * HOURS_PER_DAY, len(series) - 2 * HOURS_PER_DAY, dtype=np.float64)
    months = np.array([datetime.fromtimestamp(series.start_s + hour * HOUR_S, UTC).month for hour in hours])
    rows: list[Row] = []
    for slack_h in SLACKS_H:
        starts_s = {
            how: released_s(
                hours * HOUR_S,
                np.full(len(hours), slack_h * HOUR_S),
                np.full(len(hours), RUN_S),
                series,
                series.start_s,
                how,
            )
            for how in (*FORECASTS, CLAIRVOYANT)
        }
        met = {
            how: series.integral(series.start_s + at_s, series.start_s + at_s + RUN_S) for how, at_s in starts_s.items()
        }
        paused = {how: RUN_H * paused_means(series, hours.astype(np.int64), slack_h, how) for how in starts_s}
        for half, its_months in HALVES.items():
            own = np.isin(months, its_months)
            if own.any():
                mean, stopped = (
                    {how: float(values[own].mean()) for how, values in each.items()} for each in (met, paused)
                )
                rows += [{"months": half, "slack_h": slack_h, **row} for row in _compared(mean, stopped)]
    return rows


def paused_means(series: HourlySeries, hours: IntArray, slack_h: int, how: str) -> FloatArray:
    """Return the mean value met by runs of `RUN_H` hours that arrive at `hours` (n,) and end within their slack.

    In every hour a run goes on if fewer of its hours to come are forecast to be lower than it has left to run; with
    hindsight it takes the lowest hours.
    """
    window = RUN_H + slack_h
    if how == CLAIRVOYANT:
        actual = series.values[hours[:, None] + np.arange(window)]
        return np.asarray(np.sort(actual, axis=1)[:, :RUN_H].mean(axis=1), dtype=np.float64)
    known = np.arange(hours.max(initial=0) + window)
    ahead = np.stack([forecast(series, known, each, how) for each in range(window)])
    left, total = np.full(len(hours), RUN_H), np.zeros(len(hours))
    for hour in range(window):
        lower = (ahead[1 : window - hour, hours + hour] < series.values[hours + hour]).sum(axis=0)
        runs = (left > 0) & (lower < left)
        total += np.where(runs, series.values[hours + hour], 0.0)
        left -= runs
    return total / RUN_H


def _compared(mean: Mapping[str, float], paused: Mapping[str, float]) -> list[Row]:
    at_once, before, best = (mean[how] for how in ("persistence", "yesterday", CLAIRVOYANT))
    return [
        {
            "forecast": how,
            "saved_pct": 100.0 * (at_once - mean[how]) / abs(at_once) if at_once else math.nan,
            "paused_saved_pct": 100.0 * (at_once - paused[how]) / abs(at_once) if at_once else math.nan,
            "gap_closed": (before - mean[how]) / (before - best) if before > best else math.nan,
        }
        for how in (*FORECASTS, CLAIRVOYANT)
    ]


def _rows(zone: str, name: str, series: HourlySeries, horizons_h: Sequence[int]) -> list[Row]:
    rows: list[Row] = []
    for how in FORECASTS:
        for ahead_h in horizons_h:
            try:
                error = forecast_error(series, ahead_h, how)
            except BadInput as short:
                raise BadUsage(f"{zone}, {name}: {short}") from short
            rows.append(
                {
                    "zone": zone,
                    "series": name,
                    "unit": series.unit,
                    "forecast": how,
                    "horizon_h": ahead_h,
                    "hours": error.hours,
                    "mae": error.mae,
                    "mae_frac": error.mae_frac,
                    "rmse": error.rmse,
                    "bias": error.bias,
                }
            )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study of forecasts; without `zones`, all zones of the folder are used."""

    grid: Path | None = grid_option()
    zones: tuple[str, ...] = option((), name="--zone", help="Only this zone (may be repeated).", shown="all of them")
    horizons_h: tuple[int, ...] = option(
        HORIZONS_H,
        name="--horizon-h",
        help="Hours ahead (may be repeated).",
        minimum=1,
        maximum=168,
        shown="1, 3, 6, 12, 24 and 48",
    )


def run(config: Config, context: Context) -> Findings:
    """Return the errors of every forecast by zone and horizon, and what starts chosen by it save."""
    rows, starts, notes = forecast_rows(config.grid or context.energy / "grid", config.zones, config.horizons_h)
    notes.append(
        "starts: a run of 4 h from every hour, held within its slack; `persistence` expects no better hour, so that it "
        "starts every run at once; the constants of recent_days were chosen on January to June 2023"
    )
    return Findings(study="forecasts", trace="grid", tables={"errors": rows, "starts": starts}, notes=notes)


FORECAST_ERRORS: Final = Study(name="forecasts", config=Config, run=run)
