"""Tables of replays for the screen, from the rows that `rows` makes.

Called by `study`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pipelines.studies.replay.rows import ALL, PAIRED
from pipelines.studies.study import Row

SECONDS_PER_HOUR: Final = 3600.0

_NAMED: Final = ("reading", "capacity_gpus", "offered_load", "order", "sizes")
_PARTS: Final = ("vc", "gang_gpus")
_HOURS: Final[Mapping[str, str]] = {"jct_mean_h": "jct_mean_s", "delay_mean_h": "delay_mean_s"}
_RATIOS: Final = ("fifo_jct_ratio", "gain_kept", "oracle_jct_ratio", "predicted_jct_ratio")


def rendered(rows: Sequence[Row]) -> list[Row]:
    """Return the rows for the screen, with columns for VC and gang class only if some row is of one VC or class."""
    parts = [name for name in _PARTS if any(row[name] != ALL for row in rows)]
    return [
        {
            **{name: row[name] for name in (*_NAMED[:1], *parts, *_NAMED[1:])},
            "jobs": row["jobs"],
            **{name: _cell(row, column, SECONDS_PER_HOUR) for name, column in _HOURS.items()},
            "delay_p99_h": _number(row["delay_p99_s"]) / SECONDS_PER_HOUR,
            **{name: _cell(row, name) for name in _RATIOS},
            "preemptions": row["preemptions"],
        }
        for row in rows
    ]


def paired(rows: Sequence[Row]) -> list[Row]:
    """Return for each row its mean JCT in hours less that of each order in `PAIRED` that was replayed.

    Every difference is of the same jobs, and its interval of the same resampled weeks.
    """
    parts = [name for name in _PARTS if any(row[name] != ALL for row in rows)]
    others = [name for name in PAIRED if any(row[f"less_{name}_s"] is not None for row in rows)]
    if not others:
        return []
    return [
        {
            **{name: row[name] for name in ("reading", *parts, "order", "sizes")},
            "jct_mean_h": _cell(row, "jct_mean_s", SECONDS_PER_HOUR),
            **{f"less_{name}_h": _cell(row, f"less_{name}_s", SECONDS_PER_HOUR) for name in others},
        }
        for row in rows
    ]


def _cell(row: Row, name: str, unit: float = 1.0) -> str | None:
    """Return the value of a column as text, with its interval if there is one.

    >>> _cell({"x": 7200.0, "x_low": 3600.0, "x_high": 10800.0}, "x", 3600.0)
    '2.00 [1.00, 3.00]'
    """
    if row[name] is None:
        return None
    value, low, high = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
    alone = f"{_number(value) / unit:.2f}"
    if low is None or high is None:
        return alone
    return f"{alone} [{_number(low) / unit:.2f}, {_number(high) / unit:.2f}]"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
