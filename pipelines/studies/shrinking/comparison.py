"""Claims that compare gains across mixes, queue policies and slowdown models, judged by paired differences.

A claim holds, fails, or is undecided if the intervals are too wide. Pure functions of the rows of runs. Called by
`tables`.
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


def largest_in(runs: pl.DataFrame, figures: Sequence[str], *, across: str, of: str, claim: str) -> list[Row]:
    """Judge whether the gain is larger at the value `of` of the column `across` than at all its other values.

    There is one row per slowdown model, population, arm and metric. Columns: `gain_pct V` is the gain at the value V;
    `ahead_pct V` is the gain at `of` minus the gain at V, in percentage points, paired by seed. The claim holds if all
    these differences are above zero.
    """
    return _compared(runs, figures, across=across, of=of, claim=claim, verdict=lambda _, ahead: judged(ahead))


def gained_in_all(runs: pl.DataFrame, figures: Sequence[str], *, across: str, of: str, claim: str) -> list[Row]:
    """Judge whether there is a gain at every value of the column `across`.

    Rows and columns are those of `largest_in`, but the claim holds if every gain is above zero.
    """
    return _compared(runs, figures, across=across, of=of, claim=claim, verdict=lambda gains, _: judged(gains))


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
        found.append({**row, **_spread("beside_unchanged_pct", "", beside[row["truth"]]), **told})
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
    """Yield each population and slowdown model, with its paired runs at every value of the column `across`."""
    values = runs[across].unique(maintain_order=True).to_list()
    for fixed in runs.select("gnn", "devices", "truth").unique(maintain_order=True).rows(named=True):
        yield fixed, {str(value): paired(runs, **fixed, **{across: value}) for value in values}


def _spread(name: str, of: str, found: Interval) -> Row:
    return {f"{name}{of}": found.value, f"{name}_lo{of}": found.low, f"{name}_hi{of}": found.high}
