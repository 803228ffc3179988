"""Features of a key's newest submissions, ended or not: how long they had run, and the burst that a job belongs to.

Running jobs count as "at least this long", so long jobs count before they end (Kaplan-Meier quantiles).
Called through `features.sets` and by `features.build`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from features.columns.feature import KEY_COLUMNS, Feature, Lookback, Newest
from features.history import SUBMITTED_DEPTH

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NEWEST_COUNTS: Final = (20, SUBMITTED_DEPTH)
"""Submissions per Kaplan-Meier curve."""
BURST_GAPS_S: Final = (60, 300, 1800)
"""Submissions of one key closer than this are one burst, at three scales."""

UNITS: Final[dict[str, str]] = {
    **{f"newest{back}_so_far_s": "s" for back in (1, 2, 3, 4, 5)},
    **{f"newest{back}_ended": "fraction" for back in (1, 2, 3)},
    **{f"newest{back}_since_s": "s" for back in (1, 2, 5, 20)},
    **{f"newest_run_s_km{p}_{count}": "s" for count in NEWEST_COUNTS for p in (25, 50, 75, 90)},
    "newest_ended_frac": "fraction",
    "newest_ended_run_s": "s",
    "newest_ended_back": "count",
    **{f"burst{gap_s}_before": "count" for gap_s in BURST_GAPS_S},
    **{f"burst{gap_s}_age_s": "s" for gap_s in BURST_GAPS_S},
    **{f"burst{gap_s}_ended_frac": "fraction" for gap_s in BURST_GAPS_S},
    **{f"burst{gap_s}_run_s_km{p}": "s" for gap_s in BURST_GAPS_S for p in (50, 90)},
}
"""Statistic name to its unit, in the order in which `features.kernels.newest_of_one` writes them:

how long the newest five had run; whether the newest three had ended (1) or not (0); how long ago they came;
quantiles of Kaplan-Meier curves over the newest 20 and 60; the share of the newest 20 that had ended, the run time of
the newest that had, and how many are newer; and of the burst that the job continues (no gap reaches it): how many came
before (0: the job opens one), how long since its first, the share that had ended, and quantiles of its own curve.
"""
STATS: Final = tuple(UNITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The keys to look up, and for each key the positions of its lookups and of their statistics."""

    keys: tuple[str, ...]
    places: Mapping[str, tuple[IntArray, IntArray]]


def plan(looks: Sequence[Newest]) -> Plan:
    """Group `looks` by key."""
    keys = tuple(dict.fromkeys(look.key for look in looks))
    places = {}
    for key in keys:
        here = [place for place, look in enumerate(looks) if look.key == key]
        places[key] = (np.array(here), np.array([STATS.index(looks[place].stat) for place in here]))
    return Plan(keys=keys, places=places)


def fill(answers: FloatArray, planned: Plan, seen: Lookback) -> None:
    """Write the planned lookups into `answers` (looks, n)."""
    if not planned.keys:
        return
    from features.kernels import newest_of_many  # numba takes half a second: only where rows are made

    history, events = seen.history, seen.history.events["submitted"]
    begin, stop = seen.span("submitted", planned.keys)
    now_us = np.repeat(seen.submit_us, len(planned.keys))
    found = newest_of_many(events.rows, begin, stop, now_us, history.submit_us, history.start_us, history.end_us)
    by_key = found.reshape(-1, len(planned.keys), len(STATS))
    for position, (places, stats) in enumerate(planned.places.values()):
        answers[places] = by_key[:, position, stats].T


NEWEST_KEYS: Final = ("user", "vc", "gpus", "vc_gpus", "like", "all")


def _feature(look: Newest) -> Feature:
    doc = f"{look.stat} over the newest submissions of the same {look.key}, as known at submission"
    return Feature(name=f"{look.key}_{look.stat}", unit=UNITS[look.stat], doc=doc, source=look, needs=KEY_COLUMNS)


NEWEST: Final[dict[str, Feature]] = {
    feature.name: feature for feature in (_feature(Newest(key=key, stat=stat)) for key in NEWEST_KEYS for stat in STATS)
}
