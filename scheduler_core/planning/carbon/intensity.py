"""Intensity getter: return the carbon intensity at the start of a period, or a substitute if the feed gives none.

The caller passes the feed as a function. Called by `round`, which also passes the reading of the previous round.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scheduler_core.errors import BadInput

MOST_AGE_S: Final = 6 * 3600.0
"""Default maximum age in seconds at which the last reported value is still used (ours); feeds are mostly hourly."""


class Source(StrEnum):
    """Origin of a reading: reported by the feed now, reported earlier, or the fallback value."""

    REPORTED = "reported"
    KEPT = "kept"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The intensity used in a round, and the Unix time of its report, `reported_ts`; -inf for the fallback."""

    g_per_kwh: float
    reported_ts: float
    source: Source


def read_intensity(
    feed: Callable[[float], float | None],
    now_ts: float,
    *,
    before: Reading | None,
    fallback_g_per_kwh: float,
    most_age_s: float = MOST_AGE_S,
) -> Reading:
    """Return the intensity at `now_ts` (Unix time): the feed's value, else its last recent value, else the fallback.

    `feed` is a function of Unix time such as `Grid.carbon_g_per_kwh`. An exception, None, a negative value or NaN
    counts as no value, so that a broken feed never stops a round. `before` is the reading of the previous round; it is
    used up to an age of `most_age_s`. With the zone's highest intensity as fallback, the budget is kept whatever the
    true intensity is (ours).

    Raises
    ------
    BadInput
        If the fallback is negative or not a number.

    Examples
    --------
    >>> first = read_intensity(lambda ts: 210.0, 0.0, before=None, fallback_g_per_kwh=800.0)
    >>> first.g_per_kwh, str(first.source)
    (210.0, 'reported')
    >>> str(read_intensity(lambda ts: float("nan"), 900.0, before=first, fallback_g_per_kwh=800.0).source)
    'kept'
    """
    if not 0.0 <= fallback_g_per_kwh < math.inf:
        raise BadInput(f"carbon intensity: found a fallback of {fallback_g_per_kwh} g/kWh, expected 0 or more")
    try:
        answer = feed(now_ts)
        value = math.nan if answer is None else float(answer)
    except Exception:  # the feed is foreign code and may raise anything
        value = math.nan
    if 0.0 <= value < math.inf:
        return Reading(g_per_kwh=value, reported_ts=now_ts, source=Source.REPORTED)
    # A reading dated later than now comes from a wrong clock and is not used.
    if before is not None and 0.0 <= now_ts - before.reported_ts <= most_age_s:
        return Reading(g_per_kwh=before.g_per_kwh, reported_ts=before.reported_ts, source=Source.KEPT)
    return Reading(g_per_kwh=fallback_g_per_kwh, reported_ts=-math.inf, source=Source.FALLBACK)
