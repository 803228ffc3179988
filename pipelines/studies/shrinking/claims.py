"""The paper's claims next to the gains found: each figure with its relative gain, its gain in points, and intervals.

Pure functions of the runs' rows; nothing is simulated here. Called by `tables`; the charts read the same rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.advice import ORACLE, REQUESTED
from pipelines.studies.intervals import NOTHING, Interval, mean, ratio
from pipelines.studies.shrinking.runs import KEY
from pipelines.studies.study import Row
from scheduler_core.types import FloatArray

PERCENT: Final = 100.0
PLACE: Final = tuple(name for name in KEY if name != "arm")
"""The columns that name a set of paired runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A column of the runs' rows, and the gain the paper states at 70 jobs/h under FIFO and its mix.

    `share`: the column is a share of something, so that its gain is given in points as well.
    """

    column: str
    paper_gain_pct: float | None = None
    share: bool = False


FIGURES: Final = {
    "deployed": Figure(column="deployed", paper_gain_pct=25.3),
    "completion_rate": Figure(column="complete_rate", paper_gain_pct=15.2, share=True),
    "gpu_allocated": Figure(column="gpu_allocated_frac", paper_gain_pct=7.2, share=True),
    "mem_allocated": Figure(column="mem_allocated_frac", paper_gain_pct=8.0, share=True),
    "cpu_allocated": Figure(column="cpu_allocated_frac", paper_gain_pct=-2.0, share=True),
    "cpu_request": Figure(column="cpu_request_cores", paper_gain_pct=-28.5),
    "completed": Figure(column="completed"),
    "gpu_used": Figure(column="gpu_used_frac", share=True),
    "mem_used": Figure(column="mem_used_frac", share=True),
    "cpu_used": Figure(column="cpu_used_frac", share=True),
}
"""Figures of experiment 1. The paper's utilisation is that of what is allocated; the columns of true use are ours."""

PAPER_CPU_MET_H: Final = 2.0
"""When the paper's baseline meets the CPU bottleneck."""


def claim_rows(runs: pl.DataFrame, figures: Sequence[str] = tuple(FIGURES)) -> list[Row]:
    """Return a row for each figure of every arm but `requested`, under each slowdown model, next to its baseline.

    Columns: `requested` and `found` are means over seeds; `gain_pct` is the ratio of the means less one,
    `gain_points` their difference (of shares only, times 100), `of_oracle` the difference over that of the oracle; each
    with its 95 % interval paired over seeds. `paper_gain_pct` is the paper's figure; the paper does not state
    whether its percentages are relative or points. `relative` and `points` compare both readings with it: our interval
    is `above` or `below` it, or it is `within`.
    """
    rows: list[Row] = []
    for place, arms in _paired(runs):
        for name in figures:
            if FIGURES[name].column in arms[REQUESTED]:
                rows += [_claim(place, name, arm, arms) for arm in arms if arm != REQUESTED]
    return rows


def bottleneck_rows(runs: pl.DataFrame) -> list[Row]:
    """Return when each arm first held nearly all CPU, in hours, next to the paper's figure for its baseline."""
    rows: list[Row] = []
    for place, arms in _paired(runs):
        for arm, values in arms.items():
            if "cpu_met_h" in values:
                stated = PAPER_CPU_MET_H if arm == REQUESTED else None
                rows.append({**place, "arm": arm, "paper_h": stated, **_spread("cpu_met_h", mean(values["cpu_met_h"]))})
    return rows


def level_rows(runs: pl.DataFrame, columns: Sequence[str]) -> list[Row]:
    """Return one row per set of paired runs and arm: the mean of each column over seeds, with `_lo` and `_hi`."""
    rows: list[Row] = []
    for place, arms in _paired(runs):
        for arm, values in arms.items():
            row: Row = {**place, "arm": arm}
            for column in columns:
                if column in values:
                    found = mean(values[column])
                    row |= {column: found.value, f"{column}_lo": found.low, f"{column}_hi": found.high}
            rows.append(row)
    return rows


def gain_of(arms: Mapping[str, Mapping[str, FloatArray]], arm: str, column: str) -> Interval:
    """Return the relative gain of an arm over `requested`."""
    return ratio(arms[arm][column], arms[REQUESTED][column]).scaled(1.0, less=1.0)


def share_of_oracle(arms: Mapping[str, Mapping[str, FloatArray]], arm: str, column: str) -> Interval:
    """Return an arm's gain as a share of the oracle's; NaN where the oracle's interval includes no gain."""
    base = arms[REQUESTED][column]
    if ORACLE not in arms:
        return NOTHING
    whole = mean(arms[ORACLE][column] - base)
    if not (whole.low > 0.0 or whole.high < 0.0):
        return NOTHING
    return ratio(arms[arm][column] - base, arms[ORACLE][column] - base)


def paired(runs: pl.DataFrame, **place: object) -> dict[str, dict[str, FloatArray]]:
    """Return, for each arm at one place, every column of figures by seed."""
    found = runs.filter(*(pl.col(name) == value for name, value in place.items()))
    return next(iter(dict_of for _, dict_of in _paired(found)), {})


def _paired(runs: pl.DataFrame) -> Iterator[tuple[Row, dict[str, dict[str, FloatArray]]]]:
    """Yield each place with its arms in their order, `requested` first: every column of figures by seed."""
    figures = [name for name, kind in runs.schema.items() if kind.is_numeric() and name not in (*KEY, "seed")]
    known = pl.col(figures).cast(pl.Float64).fill_null(float("nan"))
    for key, members in runs.group_by(PLACE, maintain_order=True):
        arms: dict[str, dict[str, FloatArray]] = {REQUESTED: {}}
        for (arm,), own in members.group_by("arm", maintain_order=True):
            values = own.sort("seed", maintain_order=True).select(known).to_numpy()
            # A figure that is null in every run was not computed.
            told = ~np.isnan(values).all(axis=0)
            arms[str(arm)] = {name: values[:, at] for at, name in enumerate(figures) if told[at]}
        yield dict(zip(PLACE, key, strict=True)) | {"seeds": members["seed"].n_unique()}, arms


def _claim(place: Row, name: str, arm: str, arms: Mapping[str, Mapping[str, FloatArray]]) -> Row:
    figure = FIGURES[name]
    base, own = arms[REQUESTED][figure.column], arms[arm][figure.column]
    relative = gain_of(arms, arm, figure.column).scaled(PERCENT)
    points = mean(own - base).scaled(PERCENT) if figure.share else NOTHING
    stated = figure.paper_gain_pct
    return {
        **place,
        "figure": name,
        "arm": arm,
        "paper_gain_pct": stated,
        "requested": float(np.mean(base)),
        "found": float(np.mean(own)),
        **_spread("gain_pct", relative),
        **_spread("gain_points", points),
        **_spread("of_oracle", share_of_oracle(arms, arm, figure.column)),
        "relative": _beside(stated, relative),
        "points": _beside(stated, points),
    }


def _spread(name: str, found: Interval) -> Row:
    return {name: found.value, f"{name}_lo": found.low, f"{name}_hi": found.high}


def _beside(stated: float | None, found: Interval) -> str | None:
    """Return whether our interval lies above or below the stated gain, or contains it."""
    if stated is None or np.isnan([found.low, found.high]).any():
        return None
    if found.low > stated:
        return "above"
    return "below" if found.high < stated else "within"
