"""Features of the submission's place in the day and the week, in the cluster's own time zone.

No trend over days: a day index would teach a tree the past and tell it nothing of the future.
Called through `features.sets`.
"""

from collections.abc import Callable
from typing import Final

import polars as pl

from features.columns.feature import Feature

ZONES: Final[dict[str, str]] = {
    "pai": "Asia/Shanghai",
    "helios": "Asia/Shanghai",
    "philly": "America/Los_Angeles",
}
"""The start of a trace's name to its time zone (`pai-synth` is under `pai`); any other trace is read in UTC."""


def _in_zone(of: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
    submit_ts = pl.col("submit_ts")
    value = of(submit_ts)
    for prefix, zone in ZONES.items():
        local = of(submit_ts.dt.convert_time_zone(zone))
        value = pl.when(pl.col("trace").str.starts_with(prefix)).then(local).otherwise(value)
    return value.cast(pl.Float64)


def hour() -> pl.Expr:
    """Return the local hour of day in quarters (0..23.75): exact, where minutes over 60 would round by the batch."""
    return _in_zone(lambda ts: ts.dt.hour().cast(pl.Float64) + (ts.dt.minute() // 15).cast(pl.Float64) * 0.25)


def weekday() -> pl.Expr:
    """Return the local day of the week (Monday is 1)."""
    return _in_zone(lambda ts: ts.dt.weekday())


_NEEDS: Final = ("trace", "submit_ts")

CALENDAR: Final[dict[str, Feature]] = {
    "hour": Feature(
        name="hour", unit="h", doc="local hour of day at submission, in quarters", source=hour, needs=_NEEDS
    ),
    "weekday": Feature(name="weekday", unit="day", doc="local day of week, Monday 1", source=weekday, needs=_NEEDS),
}
