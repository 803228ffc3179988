"""History lookups of feature rows, planned per key; recent results are cached with the key.

The statistics are defined in `features.columns`; rows are assembled in `features.rows`, which calls this.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from features.columns import recency
from features.columns.feature import Load, Newest, Recent
from features.columns.load import MEASURES, Measure
from features.columns.newest import STATS
from features.kernels import newest_at_places
from features.ledger import Ledger
from features.reference import ALL, LIKE, QUANTILE_NAMES, log_mean
from features.sets import FEATURES
from features.timelines import Glance, newest_rows

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Statistics over windows of one key, cached together under the identity of this object."""

    kind: str
    plan: recency.Plan
    finish: Callable[[FloatArray], Any] = np.array  # makes the cached value: the statistics, or a reference

    def at(self, glances: Sequence[Glance], values: Mapping[str, FloatArray]) -> list[Any]:
        """Return the statistics of each glance; those not cached are computed in one batch."""
        found = [glance.timeline.answers.get((self, glance.stop(self.kind))) for glance in glances]
        for answer in found:
            if answer is None:
                return self._completed(found, glances, values)
        return found

    def _completed(self, found: list[Any], glances: Sequence[Glance], values: Mapping[str, FloatArray]) -> list[Any]:
        spans = [(id(glance.timeline), glance.stop(self.kind)) for glance in glances]
        new = {span: glance for span, glance, answer in zip(spans, glances, found, strict=True) if answer is None}
        computed = recency.of_spans(self.plan, values, partial(newest_rows, list(new.values())))
        answers = dict(zip(new, map(self.finish, computed), strict=True))
        for span, glance in new.items():
            glance.timeline.remember(self, span[1], answers[span])
        return [answers[span] if known is None else known for span, known in zip(spans, found, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlan:
    """The lookups under one key, and the columns they fill."""

    key: str
    windows: Sequence[tuple[Windows, IntArray]]
    measures: Sequence[tuple[Measure, int]]
    newest: tuple[IntArray, IntArray] | None

    def fill(self, rows: Sequence[FloatArray], glances: Sequence[Glance], ledger: Ledger) -> None:
        """Write the looked-up values of each glance into its row."""
        for windows, places in self.windows:
            for row, answer in zip(rows, windows.at(glances, ledger.values), strict=True):
                row[places] = answer
        for measure, place in self.measures:
            for row, glance in zip(rows, glances, strict=True):
                row[place] = measure(glance)
        if self.newest is not None:
            stats, places = self.newest
            times = ledger.times
            submit_us, start_us, end_us = times["submit"], times["start"], times["end"]
            for row, glance in zip(rows, glances, strict=True):
                submitted, stop = glance.timeline.tracks["submitted"].rows, glance.stop("submitted")
                newest_at_places(submitted, stop, glance.now_us, submit_us, start_us, end_us, stats, places, row)


def key_plans(names: Sequence[str]) -> list[KeyPlan]:
    """Return the lookups of the features `names` by key; columns are positions in `names`."""
    looks = {i: source for i, name in enumerate(names) if isinstance(source := FEATURES[name].source, _LOOKS)}
    plans = []
    for key in dict.fromkeys(look.key for look in looks.values()):
        mine = {i: look for i, look in looks.items() if look.key == key}
        recent = {i: look for i, look in mine.items() if isinstance(look, Recent)}
        windows = []
        for kind in dict.fromkeys(look.events for look in recent.values()):
            here = {i: look for i, look in recent.items() if look.events == kind}
            windows.append((_windows(kind, tuple(here.values())), np.array(list(here), dtype=np.int64)))
        submitted = {i: STATS.index(look.stat) for i, look in mine.items() if isinstance(look, Newest)}
        stats_and_places = (np.array(list(submitted.values())), np.array(list(submitted)))
        plans.append(
            KeyPlan(
                key=key,
                windows=windows,
                measures=[(MEASURES[look.measure], i) for i, look in mine.items() if isinstance(look, Load)],
                newest=stats_and_places if submitted else None,
            )
        )
    return plans


_LOOKS: Final = (Recent, Load, Newest)


@lru_cache(maxsize=256)
def _windows(kind: str, looks: tuple[Recent, ...]) -> Windows:
    """Return the windows of these lookups, the same object each time: models of one history share its cache."""
    return Windows(kind, recency.plan(looks))


def _reference_windows(names: Mapping[str, Sequence[str]]) -> Windows:
    sources = [FEATURES[name].source for quantile in QUANTILE_NAMES for name in names[quantile]]
    looks = tuple(source for source in sources if isinstance(source, Recent))
    return Windows("ended", recency.plan(looks), _log_means)


def _log_means(seconds: FloatArray) -> tuple[float, float]:
    """Return the log means of p50 and p90, each of three windows; NaN where unknown."""
    known = seconds.tolist()
    return log_mean(known[:3]), log_mean(known[3:])


REFERENCE_OF_LIKE: Final = _reference_windows(LIKE)
REFERENCE_OF_ALL: Final = _reference_windows(ALL)
