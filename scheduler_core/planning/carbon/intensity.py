"""The intensity getter: at every period's begin the newest carbon intensity, or what stands in while nobody tells it.

No feed is read here: whoever tells is a callable. Called at every round, with the reading of the round before.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scheduler_core.errors import BadInput

MOST_AGE_S: Final = 6 * 3600.0
"""How long the last value told stands in by default (ours): feeds come by the hour, and days repeat themselves."""


class Source(StrEnum):
    """Where a reading is from."""

    TOLD = "told"
    KEPT = "kept"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An intensity as a round takes it; `told_ts` is when it was told, minus infinity for the fallback."""

    g_per_kwh: float
    told_ts: float
    source: Source


def read_intensity(
    told: Callable[[float], float | None],
    now_ts: float,
    *,
    before: Reading | None,
    fallback_g_per_kwh: float,
    most_age_s: float = MOST_AGE_S,
) -> Reading:
    """Return the intensity at `now_ts` (Unix time): told, else the last one told if not too old, else the fallback.

    `told` is `GridProvider.carbon_g_per_kwh`, `HourlySeries.at` or the like. That it raises, or answers
    what no intensity can be (None, negative, no number), counts as silence: a round is never lost for it.
    The fallback should be the highest intensity of the zone: a budget then holds whatever the truth is (ours).

    Raises
    ------
    BadInput
        If the fallback is negative or no number.

    Examples
    --------
    >>> first = read_intensity(lambda ts: 210.0, 0.0, before=None, fallback_g_per_kwh=800.0)
    >>> first.g_per_kwh, str(first.source)
    (210.0, 'told')
    >>> str(read_intensity(lambda ts: float("nan"), 900.0, before=first, fallback_g_per_kwh=800.0).source)
    'kept'
    """
    if not 0.0 <= fallback_g_per_kwh < math.inf:
        raise BadInput(f"carbon intensity: found a fallback of {fallback_g_per_kwh} g/kWh, expected 0 or more")
    try:
        answer = told(now_ts)
        value = math.nan if answer is None else float(answer)
    except Exception:  # somebody else's feed may raise whatever it likes
        value = math.nan
    if 0.0 <= value < math.inf:
        return Reading(g_per_kwh=value, told_ts=now_ts, source=Source.TOLD)
    # A reading from after now is another clock's, and as good as none.
    if before is not None and 0.0 <= now_ts - before.told_ts <= most_age_s:
        return Reading(g_per_kwh=before.g_per_kwh, told_ts=before.told_ts, source=Source.KEPT)
    return Reading(g_per_kwh=fallback_g_per_kwh, told_ts=-math.inf, source=Source.FALLBACK)
