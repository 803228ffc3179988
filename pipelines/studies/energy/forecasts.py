"""Study of forecasts: errors of simple forecasts of carbon intensity and electricity price on recorded series.

Forecasts are made in `scheduler_core.planning.forecast`. Called by `taut study forecasts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines.errors import BadUsage
from pipelines.simulation.energy.grid_files import zone_files, zones_of
from pipelines.studies.study import Context, Findings, Row, Study, grid_option, option
from scheduler_core.errors import BadInput
from scheduler_core.planning.forecast import FORECASTS, forecast_error
from scheduler_core.planning.hourly import HourlySeries

HORIZONS_H: Final = (1, 3, 6, 12, 24, 48)


def forecast_rows(
    folder: Path, zones: Sequence[str] | None = None, horizons_h: Sequence[int] = HORIZONS_H
) -> tuple[list[Row], list[str]]:
    """Return a row per zone, series, forecast and horizon, and notes on the files read.

    Every reported hour of the files is forecast, from the second day on; hours without a reported value are left out.
    The value of the current hour is known to both forecasts.

    Raises
    ------
    BadUsage
        If there is no zone, a requested zone is missing, or a file is not in the expected format or too short.
    """
    rows: list[Row] = []
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
    return rows, notes


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
    """Return the errors of the forecasts `persistence` and `yesterday` for every zone of a folder and every horizon."""
    rows, notes = forecast_rows(config.grid or context.energy / "grid", config.zones, config.horizons_h)
    return Findings(study="forecasts", trace="grid", tables={"": rows}, notes=notes, flat=rows)


FORECAST_ERRORS: Final = Study(name="forecasts", config=Config, run=run)
