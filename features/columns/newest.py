"""Features of the newest submissions with the same key: how long those jobs had run, and the burst the job continues.

Jobs that still run count with their run time so far, as censored observations of Kaplan-Meier curves. So long jobs
count even before they end.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from features.columns.feature import KEY_COLUMNS, Feature, Lookback, Newest
from features.history import SUBMITTED_DEPTH

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NEWEST_COUNTS: Final = (20, SUBMITTED_DEPTH)
"""Numbers of newest submissions from which Kaplan-Meier curves are computed."""
BURST_GAPS_S: Final = (60, 300, 1800)
"""Gaps in seconds that define bursts at three scales: within a burst, neighbouring submissions are closer."""

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
"""Units by statistic name, in the order in which `features.kernels.newest_of_one` writes the statistics.

- `newest*_so_far_s`: run time so far of the k-th newest submission.
- `newest*_ended`: 1 if the k-th newest submission has ended, else 0.
- `newest*_since_s`: seconds since the k-th newest submission.
- `newest_run_s_km*`: quantiles of the Kaplan-Meier curve of the newest 20 or 60 submissions.
- `newest_ended_*`: share of the newest 20 that have ended; run time of the newest ended job, and the number of newer
  submissions.
- `burst*`: the burst that the job continues, in which no gap between submissions reaches the scale. The number of
  earlier submissions in it (0 if the job opens one), the seconds since the first, the ended share, and quantiles of
  the burst's own Kaplan-Meier curve.
"""
STATS: Final = tuple(UNITS)


Plan = Mapping[str, tuple[IntArray, IntArray]]
"""Row indices of the lookups of each key, and the indices of their `STATS`."""


def plan(looks: Sequence[Newest]) -> Plan:
    """Group the lookups `looks` by key."""
    places = {}
    for key in dict.fromkeys(look.key for look in looks):
        here = [place for place, look in enumerate(looks) if look.key == key]
        places[key] = (np.array(here), np.array([STATS.index(looks[place].stat) for place in here]))
    return places


def fill(answers: FloatArray, planned: Plan, seen: Lookback) -> None:
    """Compute the planned lookups of n jobs and write them into `answers` (looks, n)."""
    if not planned:
        return
    from features.kernels import newest_of_many  # numba takes half a second to import

    history, keys = seen.history, tuple(planned)
    rows = history.events["submitted"].rows
    begin, stop = seen.span("submitted", keys)
    now_us = np.repeat(seen.submit_us, len(keys))
    stats_of = newest_of_many(rows, begin, stop, now_us, history.submit_us, history.start_us, history.end_us)
    by_key = stats_of.reshape(-1, len(keys), len(STATS))
    for position, (places, stats) in enumerate(planned.values()):
        answers[places] = by_key[:, position, stats].T


NEWEST_KEYS: Final = ("user", "gpus", "vc_gpus", "like", "all")


def _feature(look: Newest) -> Feature:
    doc = f"{look.stat} over the newest submissions of the same {look.key}, as known at submission"
    return Feature(name=f"{look.key}_{look.stat}", unit=UNITS[look.stat], doc=doc, source=look, needs=KEY_COLUMNS)


NEWEST: Final[dict[str, Feature]] = {
    feature.name: feature for feature in (_feature(Newest(key=key, stat=stat)) for key in NEWEST_KEYS for stat in STATS)
}
