"""Gains compared between slowdown models, and the verdict on a claim, from paired differences.

Pure functions of the rows of runs. Called by `tables` and `paper`.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import polars as pl

from pipelines.simulation.advice import REQUESTED
from pipelines.studies.intervals import Interval, ratio_difference
from pipelines.studies.shrinking.claims import FIGURES, PERCENT, PLACE, paired
from pipelines.studies.study import Row
from scheduler_core.types import FloatArray

Arms = Mapping[str, Mapping[str, FloatArray]]

MILDEST: Final = "unchanged"
"""The slowdown model of Yang, Hong and Tang: a smaller request does not change the run time."""

ALIKE: Final = "none"
"""Value of `binding_truth` if under no slowdown model the gain differs from the gain under `MILDEST`."""


class Verdict(StrEnum):
    """Whether a claim holds, judged by 95 % intervals."""

    HOLDS = "holds"
    FAILS = "fails"
    UNTOLD = "not told apart"


def judged(intervals: Sequence[Interval]) -> Verdict:
    """Return `HOLDS` if all intervals are above zero, `FAILS` if any is below zero, else `UNTOLD` (undecided).

    >>> judged([Interval(value=2.0, low=1.0, high=3.0), Interval(value=1.0, low=-1.0, high=3.0)])
    <Verdict.UNTOLD: 'not told apart'>
    """
    if any(each.high < 0.0 for each in intervals):
        return Verdict.FAILS
    return Verdict.HOLDS if intervals and all(each.low > 0.0 for each in intervals) else Verdict.UNTOLD


def binding_truths(runs: pl.DataFrame, claims: Sequence[Row]) -> list[Row]:
    """Add to rows of claims the slowdown model under which the gain is smallest.

    Added columns: `beside_unchanged_pct` is the gain under the row's slowdown model minus that under `unchanged`, in
    percentage points, paired by seed. `binding_truth` is the slowdown model with the smallest gain for this arm and
    metric, or `none` if its gain does not differ from that under `unchanged`.
    """
    truths = runs["truth"].unique(maintain_order=True).to_list()
    if MILDEST not in truths:
        return list(claims)
    places = runs.select(PLACE).unique().rows(named=True)
    arms_at = {tuple(place.values()): paired(runs, **place) for place in places}
    found: list[Row] = []
    for row in claims:
        at = {truth: arms_at[tuple({**_place(row), "truth": truth}.values())] for truth in truths}
        column, arm = FIGURES[str(row["figure"])].column, str(row["arm"])
        beside = {truth: _less(arms, at[MILDEST], arm, column) for truth, arms in at.items()}
        stated = row["paper_gain_pct"]
        falls = isinstance(stated, float) and stated < 0.0
        told = {"binding_truth": _binding(beside, falls=falls)}
        found.append({**row, **beside[row["truth"]].columns("beside_unchanged_pct"), **told})
    return found


def _place(row: Row) -> Row:
    return {name: row[name] for name in PLACE}


def _binding(by_truth: Mapping[str, Interval], *, falls: bool) -> str:
    """Return the slowdown model with the smallest gain (with `falls`: smallest decrease), or `none` if uncertain."""
    lost = {truth: each.scaled(-1.0 if falls else 1.0) for truth, each in by_truth.items()}
    least = min(lost, key=lambda truth: lost[truth].value)
    return least if max(lost[least].low, lost[least].high) < 0.0 else ALIKE


def _less(arms: Arms, other: Arms, arm: str, column: str) -> Interval:
    """Return an arm's relative gain in one set of paired runs minus its gain in another, in percentage points."""
    pairs = (each[name][column] for each in (arms, other) for name in (arm, REQUESTED))
    return ratio_difference(*pairs).scaled(PERCENT)
