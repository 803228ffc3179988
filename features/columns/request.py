"""Features of the job's own row: its request, its categories, and the local hour and weekday of its submission.

The column `nodes` is not a feature, since it is known only after placement. The date is not a feature either, since
trees would use it to memorise single days. Called through `features.sets`.
"""

from datetime import datetime
from typing import Final

import polars as pl

from features.columns.feature import Feature, LocalTime, OwnNumber, Text
from features.vocabulary import ZONES

__all__ = ["REQUEST_COLUMNS"]

REQUEST_COLUMNS: Final = ("req_cpu_cores", "req_mem_gib", "req_gpus")
"""The canonical columns of a request, in the column order of a request matrix."""
_UNITS: Final = dict(zip(REQUEST_COLUMNS, ("cores", "GiB", "GPUs"), strict=True))
_CATEGORIES: Final = {
    "gpu_type": "requested device type",
    "vc": "virtual cluster",
    "role": "role in the job",
    "task_type": "kind of work",
    "workload": "raw workload tag",
}


def _number(name: str, unit: str, doc: str, source: OwnNumber) -> Feature:
    needs = tuple(column for column in (source.above, source.times, source.over) if column is not None)
    requested = not set(REQUEST_COLUMNS).isdisjoint(needs)
    return Feature(name=name, unit=unit, doc=doc, source=source, needs=needs, from_request=requested)


def _amount(name: str, unit: str, doc: str) -> Feature:
    return _number(name, unit, doc, OwnNumber(above=name))


def _total(name: str, unit: str, doc: str, column: str) -> Feature:
    return _number(name, unit, doc, OwnNumber(above=column, times="instances"))


def _ratio(name: str, unit: str, doc: str, above: str, below: str) -> Feature:
    return _number(name, unit, doc, OwnNumber(above=above, over=below))


_DEFINED: Final = (
    *(_amount(column, unit, f"requested {unit} per instance") for column, unit in _UNITS.items()),
    _amount("instances", "count", "size of the gang"),
    _total("total_gpus", "GPUs", "GPUs of the whole gang", "req_gpus"),
    _total("total_cpu_cores", "cores", "cores of the whole gang", "req_cpu_cores"),
    _total("total_mem_gib", "GiB", "memory of the whole gang", "req_mem_gib"),
    _ratio("cpu_cores_per_gpu", "cores", "cores requested per GPU", "req_cpu_cores", "req_gpus"),
    _ratio("mem_gib_per_gpu", "GiB", "memory requested per GPU", "req_mem_gib", "req_gpus"),
    _ratio("mem_gib_per_cpu_core", "GiB", "memory requested per core", "req_mem_gib", "req_cpu_cores"),
    _amount("time_limit_s", "s", "the user's own limit on the run"),
    _amount("priority", "rank", "priority given at submission"),
    *(
        Feature(name=column, unit="", doc=doc, source=Text(column=column), needs=(column,), kind="c")
        for column, doc in _CATEGORIES.items()
    ),
)

REQUEST: Final[dict[str, Feature]] = {feature.name: feature for feature in _DEFINED}


def _hour_of_series(ts: pl.Expr) -> pl.Expr:
    return ts.dt.hour().cast(pl.Float64) + (ts.dt.minute() // 15).cast(pl.Float64) * 0.25


def _hour_of_datetime(ts: datetime) -> float:
    return ts.hour + ts.minute // 15 * 0.25


HOUR: Final = LocalTime(zones=ZONES, of_series=_hour_of_series, of_datetime=_hour_of_datetime)
"""The local hour of day in steps of 0.25 (0..23.75). Quarters are exact as floats, so both engines agree to the bit."""
WEEKDAY: Final = LocalTime(
    zones=ZONES, of_series=lambda ts: ts.dt.weekday(), of_datetime=lambda ts: float(ts.isoweekday())
)
"""The local day of the week (Monday is 1)."""

_NEEDS: Final = ("trace", "submit_ts")

CALENDAR: Final[dict[str, Feature]] = {
    "hour": Feature(
        name="hour", unit="h", doc="local hour of day at submission, in quarters", source=HOUR, needs=_NEEDS
    ),
    "weekday": Feature(name="weekday", unit="day", doc="local day of week, Monday 1", source=WEEKDAY, needs=_NEEDS),
}
