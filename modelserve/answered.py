"""What a call comes to: the bytes of its answer, and what is counted of it.

No HTTP, no metrics library and no model here. Returned by the service's calls; turned into responses and counters by
`modelserve.api`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from pydantic_core import to_json

Counts = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One answer, written: its JSON, the models it cites (`runtime.pai.ctr@7`), and what there is to count.

    `counts` has keys `("prediction", name, version, outcome)` and `("recommendation", resource, reason)`; `reclaimed`
    holds, per resource, what was asked in all and what was given, over the instances of all jobs.
    """

    body: bytes
    models: tuple[str, ...] = ()
    counts: Counts = field(default_factory=dict)
    reclaimed: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What surrounds the jobs of a call: its answer's id, the trace meant where none is named, the time (Unix, s)."""

    answer_id: str
    trace: str | None
    now: float


def written(answer: object) -> bytes:
    """Write an answer of plain values as JSON; NaN and infinities are null.

    Examples
    --------
    >>> written({"p50": 1.5, "p90": float("nan")})
    b'{"p50":1.5,"p90":null}'
    """
    return to_json(answer, inf_nan_mode="null")


def known(value: float) -> float | None:
    """Return a finite number, or None."""
    return float(value) if math.isfinite(value) else None


@lru_cache(maxsize=1024)  # the models' times, again and again
def moment(at: datetime) -> str:
    """Write a time as answers show it.

    Examples
    --------
    >>> from datetime import timedelta, timezone
    >>> moment(datetime(2026, 11, 20, 11, tzinfo=timezone(timedelta(hours=8))))
    '2026-11-20T03:00:00Z'
    """
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
