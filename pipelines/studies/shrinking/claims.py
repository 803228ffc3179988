"""Gains of every arm over `requested`, next to the gains that Yang, Hong and Tang claim, with intervals.

Pure functions of the rows of runs; nothing is simulated here. Called by `tables`; the charts read the same rows.
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
"""Columns that identify a set of paired runs: runs that differ only in arm and seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A metric: its column in the rows of runs, and the gain that Yang, Hong and Tang claim for it.

    They claim it at 70 jobs/h, under FIFO and with their mix 5:15:15:65. If `share`, the metric is a share, so its gain
    is given in percentage points as well.
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
"""Metrics by name. Yang, Hong and Tang measure utilisation as the allocated share; we add the used share."""

PAPER_CPU_MET_H: Final = 2.0
"""Hour at which the baseline of Yang, Hong and Tang has allocated all CPU."""


def claim_rows(runs: pl.DataFrame, figures: Sequence[str] = tuple(FIGURES)) -> list[Row]:
    """Return one row per metric, arm (except `requested`) and set of paired runs: the gain over `requested`.

    Columns: `requested` and `found` are the means over seeds of the baseline and of the arm. `gain_pct` is the relative
    gain in percent, `gain_points` the gain in percentage points (metrics that are shares only), and `of_oracle` the
    gain divided by the oracle's gain; each has a 95 % interval, paired by seed. `paper_gain_pct` is the gain that Yang,
    Hong and Tang claim. They do not state whether it is relative or in points, so `relative` and `points` compare it
    with both of our gains: our interval is `above` it, `below` it, or it lies `within` our interval.
    """
    rows: list[Row] = []
    for place, arms in _paired(runs):
        for name in figures:
            if FIGURES[name].column in arms[REQUESTED]:
                rows += [_claim(place, name, arm, arms) for arm in arms if arm != REQUESTED]
    return rows


def bottleneck_rows(runs: pl.DataFrame) -> list[Row]:
    """Return the hour at which each arm had allocated 95 % of the CPU, next to the published baseline's hour."""
    rows: list[Row] = []
    for place, arms in _paired(runs):
        for arm, values in arms.items():
            if "cpu_met_h" in values:
                stated = PAPER_CPU_MET_H if arm == REQUESTED else None
                rows.append({**place, "arm": arm, "paper_h": stated, **mean(values["cpu_met_h"]).columns("cpu_met_h")})
    return rows


def level_rows(runs: pl.DataFrame, columns: Sequence[str]) -> list[Row]:
    """Return one row per set of paired runs and arm: each column's mean over seeds, with its interval."""
    rows: list[Row] = []
    for place, arms in _paired(runs):
        for arm, values in arms.items():
            row: Row = {**place, "arm": arm}
            for column in columns:
                if column in values:
                    row |= mean(values[column]).columns(column)
            rows.append(row)
    return rows


def gain_of(arms: Mapping[str, Mapping[str, FloatArray]], arm: str, column: str) -> Interval:
    """Return the relative gain of an arm over the arm `requested` in one column, with its interval."""
    return ratio(arms[arm][column], arms[REQUESTED][column]).scaled(1.0, less=1.0)


def share_of_oracle(arms: Mapping[str, Mapping[str, FloatArray]], arm: str, column: str) -> Interval:
    """Return an arm's gain as a share of the oracle's gain; NaN if the interval of the oracle's gain includes zero."""
    base = arms[REQUESTED][column]
    if ORACLE not in arms:
        return NOTHING
    whole = mean(arms[ORACLE][column] - base)
    if not (whole.low > 0.0 or whole.high < 0.0):
        return NOTHING
    return ratio(arms[arm][column] - base, arms[ORACLE][column] - base)


def paired(runs: pl.DataFrame, **place: object) -> dict[str, dict[str, FloatArray]]:
    """Return the metrics of one set of paired runs: by arm and column, the values in order of seeds."""
    found = runs.filter(*(pl.col(name) == value for name, value in place.items()))
    return next(iter(dict_of for _, dict_of in _paired(found)), {})


def _paired(runs: pl.DataFrame) -> Iterator[tuple[Row, dict[str, dict[str, FloatArray]]]]:
    """Yield the keys of each set of paired runs, and its values by arm (`requested` first), column and seed."""
    figures = [name for name, kind in runs.schema.items() if kind.is_numeric() and name not in (*KEY, "seed")]
    known = pl.col(figures).cast(pl.Float64).fill_null(float("nan"))
    for key, members in runs.group_by(PLACE, maintain_order=True):
        arms: dict[str, dict[str, FloatArray]] = {REQUESTED: {}}
        for (arm,), own in members.group_by("arm", maintain_order=True):
            values = own.sort("seed", maintain_order=True).select(known).to_numpy()
            # A column that is null in every run was not computed for this arm.
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
        **relative.columns("gain_pct"),
        **points.columns("gain_points"),
        **share_of_oracle(arms, arm, figure.column).columns("of_oracle"),
        "relative": _beside(stated, relative),
        "points": _beside(stated, points),
    }


def _beside(stated: float | None, found: Interval) -> str | None:
    """Return whether our interval lies above or below the claimed gain or contains it; None without a claim."""
    if stated is None or np.isnan([found.low, found.high]).any():
        return None
    if found.low > stated:
        return "above"
    return "below" if found.high < stated else "within"
