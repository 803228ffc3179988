"""Energy at equal tardiness: ours along the weights it plans with, read off where it is as late as each method.

Pure functions of the runs' rows. Called by `pipelines.studies.cost.experiment` and by its charts.
"""

from typing import Final

import numpy as np
import polars as pl

from pipelines.studies.cost.arms import AHEAD, first_principle
from pipelines.studies.cost.studies import EXACT, WEIGHTS
from pipelines.studies.study import SEED, Row
from scheduler_core.types import FloatArray, IntArray

RESAMPLES: Final = 2000
PERCENT: Final = 100.0


def frontier(runs: pl.DataFrame, middle: float, zone: str) -> pl.DataFrame:
    """Return ours by the factor it takes the weights times: `value, seed, tardiness_usd, energy_usd, energy_kwh`."""
    ours = runs.filter(pl.col("arm") == AHEAD, pl.col("load") == middle, pl.col("zone") == zone)
    kept = ours.filter(pl.col("study").is_in([EXACT, WEIGHTS]))
    return kept.select("value", SEED, "tardiness_usd", "energy_usd", "energy_kwh").sort("value", SEED)


def equal_tardiness_rows(runs: pl.DataFrame, middle: float, zone: str) -> list[Row]:
    """Return a row per method: its energy, ours where it is as late in all, and the saving in percent.

    Ours is interpolated between the two factors around the method's tardiness, on means over seeds; the interval is
    the bootstrap's over seeds. Where every factor is less late, or every one later, the nearest is taken, `beyond`.
    """
    ours = frontier(runs, middle, zone)
    late, energy = (_by_factor(ours, name) for name in ("tardiness_usd", "energy_kwh"))
    every = np.arange(late.shape[1])
    draws = np.random.default_rng(0).integers(len(every), size=(RESAMPLES, len(every)))
    place = (pl.col("study") == EXACT, pl.col("load") == middle, pl.col("zone") == zone)
    rows: list[Row] = []
    for arm in first_principle():
        own = runs.filter(*place, pl.col("arm") == arm).sort(SEED)
        theirs = own["tardiness_usd"].to_numpy(), own["energy_kwh"].to_numpy()
        saving = [_saving_pct(late, energy, *theirs, each) for each in (every, *draws)]
        low, high = np.quantile(saving[1:], [0.025, 0.975]).tolist()
        means, at = late.mean(axis=1), float(theirs[0].mean())
        rows.append(
            {
                "against": arm,
                "tardiness_usd": at,
                "energy_kwh": float(theirs[1].mean()),
                "ours_kwh": _read_off(means, energy.mean(axis=1), at),
                "beyond": not float(means.min()) <= at <= float(means.max()),
                "saving_pct": saving[0],
                "saving_pct_lo": low,
                "saving_pct_hi": high,
            }
        )
    return rows


def _by_factor(ours: pl.DataFrame, figure: str) -> FloatArray:
    """Return a figure of every factor and seed (F, S)."""
    groups = ours.group_by("value", maintain_order=True).agg(pl.col(figure))
    return np.array(groups[figure].to_list(), np.float64)


def _saving_pct(
    late: FloatArray, energy: FloatArray, theirs_late: FloatArray, theirs_kwh: FloatArray, seeds: IntArray
) -> float:
    read = _read_off(late[:, seeds].mean(axis=1), energy[:, seeds].mean(axis=1), float(theirs_late[seeds].mean()))
    return PERCENT * (1.0 - read / float(theirs_kwh[seeds].mean()))


def _read_off(late: FloatArray, energy: FloatArray, at: float) -> float:
    """Return the energy at a tardiness, on the line through the points by tardiness."""
    order = np.argsort(late, kind="stable")
    return float(np.interp(at, late[order], energy[order]))
