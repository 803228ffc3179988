"""Features of the submission's place in the day and the week, in the cluster's own time zone.

No trend over days: a day index would teach a tree the past and tell it nothing of the future.
Called through `features.sets`.
"""

from datetime import datetime
from typing import Final

import polars as pl

from features.columns.feature import Feature, Local
from features.vocabulary import ZONES


def _hour_of_series(ts: pl.Expr) -> pl.Expr:
    return ts.dt.hour().cast(pl.Float64) + (ts.dt.minute() // 15).cast(pl.Float64) * 0.25


def _hour_of_datetime(ts: datetime) -> float:
    return ts.hour + ts.minute // 15 * 0.25


HOUR: Final = Local(zones=ZONES, of_series=_hour_of_series, of_datetime=_hour_of_datetime)
"""The local hour of day in quarters (0..23.75): exact, where minutes over 60 would round by the batch."""
WEEKDAY: Final = Local(zones=ZONES, of_series=lambda ts: ts.dt.weekday(), of_datetime=lambda ts: float(ts.isoweekday()))
"""The local day of the week (Monday is 1)."""

_NEEDS: Final = ("trace", "submit_ts")

CALENDAR: Final[dict[str, Feature]] = {
    "hour": Feature(
        name="hour", unit="h", doc="local hour of day at submission, in quarters", source=HOUR, needs=_NEEDS
    ),
    "weekday": Feature(name="weekday", unit="day", doc="local day of week, Monday 1", source=WEEKDAY, needs=_NEEDS),
}
