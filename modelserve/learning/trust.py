"""Trust in reports of finished jobs: what may be learnt from the use in a report, so that forged ones lower nothing.

A report is *tied* if it names an answer of this service about a job of its group and user; an answer ties as many
reports as it has such jobs. A tied report is *confirmed* if enough of the newest tied reports measured about as little
or less, among those of its group and role, and among all of its group and of its user, whose history it enters too. As
long as fewer of them are forged, forged ones alone confirm nothing. Reports that are not tied count only against it,
if they measured more. Memory that differs from that of similar jobs by a factor near 1024 is *quarantined*: somebody
mixed up MiB and GiB. Any other report of a caller with the scope `accounting`, the cluster's own records, counts as
tied and confirmed. Reports that are not confirmed may still raise predictions and floors
(`modelserve.contract.feedback_rules`).
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final

import numpy as np

from modelserve.learning.logged import jobs_of
from modelserve.store import Store
from modelserve.store.answers import named_answers
from modelserve.store.finished import MEASURES, Finished, Trust, newest_use, reports_by_answer

__all__ = ["WINDOW", "with_trust"]

WINDOW: Final = 100
"""Number of newest tied reports of similar jobs that confirm a report."""
OWN_SHARE: Final = 0.9
"""Share of the reports of a group and role, this one included, that those with about as little use must exceed."""
SHARE: Final = 0.5
"""The same of all reports of a group, and of a user, whose jobs may differ."""
LEAST: Final = 3
"""Minimum number of reports that measured about as little, the report included."""
NEAR: Final = 1.25
"""Ratio up to which a larger use counts as about as little."""
UNITS: Final = 1024.0
"""Ratio of a GiB to a MiB."""
UNITS_OFF: Final = 2.0
"""Factor by which the ratio to similar jobs may be off `UNITS` for the units to count as mixed up."""
READ_BYTES: Final = 64 * 2**20
"""Maximum total size of the logged answers that are read for one call; reports beyond them are untied."""
KINDS: Final = ("prediction", "recommendation")

Uses = tuple[float | None, ...]
"""Use of one job, in the order of `MEASURES`."""
Alike = tuple[tuple[str, str | None], ...]
"""What similar jobs have in common: columns and their values."""
Whom = tuple[str, str, str | None, str | None]
"""Answer id, trace, group and user."""


def with_trust(store: Store, rows: Sequence[Finished], *, believed: bool = False) -> list[Finished]:
    """Return the reports with the trust in each; they count for each other in their order.

    `believed` reports are the cluster's own records (scope `accounting`).
    """
    left, windows, judged = _ties(store, rows), _Windows(store), []
    for row in rows:
        whom = _whom(row)
        tied = believed or left[whom] > 0
        left[whom] -= 1
        trust = _trust(row, windows, tied=tied, believed=believed)
        if trust != "quarantined":
            windows.add(row, tied=tied)
        judged.append(replace(row, trust=trust))
    return judged


class _Windows:
    """The newest reports of similar jobs: those of the store, and those judged before in the same call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stored: dict[tuple[Alike, bool], list[Uses]] = {}
        self._added: dict[tuple[Alike, bool], list[Uses]] = defaultdict(list)

    def of(self, alike: Alike, *, tied: bool) -> list[Uses]:
        """Return the use in at most `WINDOW` reports that are tied (or not), the oldest first."""
        key = (alike, tied)
        if key not in self._stored:
            self._stored[key] = newest_use(self._store, alike, tied=tied, limit=WINDOW)
        return [*self._stored[key], *self._added[key]][-WINDOW:]

    def add(self, row: Finished, *, tied: bool) -> None:
        """Add a report to the windows of all its keys."""
        for alike in _keys(row):
            self._added[alike, tied].append(_use(row))


def _keys(row: Finished) -> list[Alike]:
    """Return the keys of similar jobs: first group and role (user and role without a group), then group and user."""
    whose = ("group", "user") if row.group is None else ("group",)
    owned = [(*whose, "role"), *(() if row.group is None else [("group",)]), *(() if row.user is None else [("user",)])]
    return [tuple((name, getattr(row, name)) for name in ("trace", "cluster", *names)) for names in owned]


def _trust(row: Finished, windows: _Windows, *, tied: bool, believed: bool) -> Trust:
    own, *wider = _keys(row)
    if _mixed_up(row, windows.of(own, tied=True)):
        return "quarantined"
    if believed:
        return "confirmed"
    if not tied:
        return "untied"
    sure = _confirmed(row, windows, own, share=OWN_SHARE) and all(
        _confirmed(row, windows, alike, share=SHARE) for alike in wider
    )
    return "confirmed" if sure else "unconfirmed"


def _confirmed(row: Finished, windows: _Windows, alike: Alike, *, share: float) -> bool:
    seen = np.array([*windows.of(alike, tied=True), _use(row)], dtype=np.float64)[-WINDOW:]
    untied = windows.of(alike, tied=False)
    against = np.array([*untied, (np.nan,) * len(MEASURES)], dtype=np.float64) > NEAR * seen[-1]
    counted = np.isfinite(seen).sum(axis=0) + against.sum(axis=0)
    about_as_little = (seen <= NEAR * seen[-1]).sum(axis=0)
    confirmed = (about_as_little >= LEAST) & (about_as_little > share * counted)
    return bool(np.all(confirmed | np.isnan(seen[-1])))


def _mixed_up(row: Finished, window: Sequence[Uses]) -> bool:
    """Return whether memory is off by about 1024 from that of similar jobs, or from the prediction if they are few."""
    for place, predicted in enumerate((row.peak_mem_gib, row.peak_gpu_mem_gib)):
        use, others = _use(row)[place], [other for uses in window if (other := uses[place])]
        usual = median(others) if len(others) >= LEAST else predicted
        if use and usual:
            ratio = max(use / usual, usual / use)
            if UNITS / UNITS_OFF <= ratio <= UNITS * UNITS_OFF:
                return True
    return False


def _use(row: Finished) -> Uses:
    return tuple(getattr(row, name) for name in MEASURES)


def _whom(row: Finished) -> Whom:
    return row.answer_id or "", row.trace, row.group, row.user


def _ties(store: Store, rows: Sequence[Finished]) -> Counter[Whom]:
    """Return for how many more reports the named answers stand, by group and user."""
    named = {row.answer_id for row in rows if row.answer_id}
    ties: Counter[Whom] = Counter()
    if named:
        used = reports_by_answer(store, named)
        for record in named_answers(store, named, parts=("context",), limit_bytes=READ_BYTES):
            if record.kind in KINDS:
                found = Counter(
                    (record.answer_id, job["trace"], job.get("group"), job.get("user")) for job in jobs_of(record)
                )
                room = sum(found.values()) - used.get(record.answer_id, 0)
                ties.update({whom: min(count, room) for whom, count in found.items()})
    return ties
