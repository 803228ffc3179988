"""Claims that compare: gains across mixes, policies and truths, judged by paired differences and their intervals.

Pure functions of the runs' rows; three answers, as few seeds may not tell. Called by `tables`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import polars as pl

from pipelines.simulation.advice import REQUESTED
from pipelines.studies.intervals import Interval, ratio_difference
from pipelines.studies.shrinking.claims import FIGURES, PERCENT, PLACE, gain_of, paired
from pipelines.studies.study import Row
from scheduler_core.types import FloatArray

Arms = Mapping[str, Mapping[str, FloatArray]]

MILDEST: Final = "unchanged"
"""The paper's truth, under which a smaller request costs nothing."""

ALIKE: Final = "none"
"""Instead of a truth: what is gained is not told apart from what is gained under the mildest."""


class Verdict(StrEnum):
    """What the intervals say of a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    UNTOLD = "not told apart"


def judged(intervals: Sequence[Interval]) -> Verdict:
    """Say whether all of these are above nothing, some one is below it, or neither can be told at 95 %.

    >>> judged([Interval(value=2.0, low=1.0, high=3.0), Interval(value=1.0, low=-1.0, high=3.0)])
    <Verdict.UNTOLD: 'not told apart'>
    """
    if any(each.high < 0.0 for each in intervals):
        return Verdict.FAILS
    return Verdict.HOLDS if intervals and all(each.low > 0.0 for each in intervals) else Verdict.UNTOLD


def largest_in(runs: pl.DataFrame, figures: Sequence[str], *, across: str, of: str, claim: str) -> list[Row]:
    """Say, for each truth, population and arm, whether more is gained at `of` than at every other value of `across`.

    `gain_pct V` is what is gained at V, `ahead_pct V` what is gained at `of` beyond that: the difference of the two
    relative gains in percentage points, paired by seed. The claim holds where all of these are above nothing.
    """
    return _compared(runs, figures, across=across, of=of, claim=claim, verdict=lambda _, ahead: judged(ahead))


def gained_in_all(runs: pl.DataFrame, figures: Sequence[str], *, across: str, of: str, claim: str) -> list[Row]:
    """Say, for each truth, population and arm, whether something is gained at every value of `across`.

    Columns are those of `largest_in`; here the claim holds where every gain is above nothing.
    """
    return _compared(runs, figures, across=across, of=of, claim=claim, verdict=lambda gains, _: judged(gains))


def binding_truths(runs: pl.DataFrame, claims: Sequence[Row]) -> list[Row]:
    """Return rows of claims with the truth that binds each figure of an arm, and how far it differs from the mildest.

    `beside_unchanged_pct` is the gain under the row's truth less that under `unchanged`, in percentage points, paired
    by seed. `binding_truth` is the truth that leaves the least of what the figure should gain, `none` where that is
    not told apart from what `unchanged` leaves.
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
        found.append({**row, **_spread("beside_unchanged_pct", "", beside[row["truth"]]), **told})
    return found


def _place(row: Row) -> Row:
    return {name: row[name] for name in PLACE}


def _binding(by_truth: Mapping[str, Interval], *, falls: bool) -> str:
    """Return the truth with the least gain, or the least fall, if the difference is told apart from nothing."""
    lost = {truth: each.scaled(-1.0 if falls else 1.0) for truth, each in by_truth.items()}
    least = min(lost, key=lambda truth: lost[truth].value)
    return least if max(lost[least].low, lost[least].high) < 0.0 else ALIKE


def _less(arms: Arms, other: Arms, arm: str, column: str) -> Interval:
    """Return the relative gain of an arm at one place less that at another, in percentage points."""
    pairs = (each[name][column] for each in (arms, other) for name in (arm, REQUESTED))
    return ratio_difference(*pairs).scaled(PERCENT)


def _compared(
    runs: pl.DataFrame,
    figures: Sequence[str],
    *,
    across: str,
    of: str,
    claim: str,
    verdict: Callable[[list[Interval], list[Interval]], Verdict],
) -> list[Row]:
    rows: list[Row] = []
    for fixed, by_value in _places(runs, across):
        for arm in next(iter(by_value.values())):
            if arm == REQUESTED:
                continue
            for figure in figures:
                column = FIGURES[figure].column
                gains = {value: gain_of(arms, arm, column).scaled(PERCENT) for value, arms in by_value.items()}
                ahead = {v: _less(by_value[of], arms, arm, column) for v, arms in by_value.items() if v != of}
                row: Row = {**fixed, "arm": arm, "figure": figure, "claim": claim}
                for value, gain in gains.items():
                    row |= _spread("gain_pct", f" {value}", gain)
                for value, lead in ahead.items():
                    row |= _spread("ahead_pct", f" {value}", lead)
                rows.append({**row, "verdict": verdict(list(gains.values()), list(ahead.values())).value})
    return rows


def _places(runs: pl.DataFrame, across: str) -> Iterator[tuple[Row, dict[str, Arms]]]:
    """Yield each population and truth with its paired runs at every value of what is varied."""
    values = runs[across].unique(maintain_order=True).to_list()
    for fixed in runs.select("gnn", "devices", "truth").unique(maintain_order=True).rows(named=True):
        yield fixed, {str(value): paired(runs, **fixed, **{across: value}) for value in values}


def _spread(name: str, of: str, found: Interval) -> Row:
    return {f"{name}{of}": found.value, f"{name}_lo{of}": found.low, f"{name}_hi{of}": found.high}
