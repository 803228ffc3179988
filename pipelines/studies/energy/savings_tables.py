"""The table of savings: per finished job, against the same jobs at their requests, with 95 % intervals.

Drawn seeds have Student's intervals, recorded weeks those of blocks. Called by `pipelines.studies.energy.savings`.
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.advice import REQUESTED
from pipelines.simulation.energy.meters import OFF, ON, Row
from pipelines.studies.energy.savings_drawn import ARMS
from pipelines.studies.energy.savings_recorded import FINISHED, PACKED, SPREAD, WHAT_IF
from pipelines.studies.intervals import BLOCK_DAYS, LEAST_BLOCKS, LEVEL, Interval, day_counts, mean, ratio
from scheduler_core.types import FloatArray

PERCENT: Final = 100.0
JOBS: Final = 1000.0
"""Amounts are told for so many finished jobs."""

WHAT: Final = {"energy_kwh": "energy", "carbon_kg": "carbon", "cost_usd": "cost"}
KEY: Final = ("scene", "truth", "zone", "machines")
PER_WORK: Final = "energy_per_work_saved_pct"
HARM: Final = ("finished", "killed", "jct_mean_h")
PARTS: Final = ("work_kwh", "idle_of_used_kwh", "idle_of_unused_gpus_kwh", "idle_unheld_kwh", "idle_empty_kwh")


def right_sizing(runs: pl.DataFrame) -> list[Row]:
    """Return what each arm saves against `requested` under the same seeds, and the harm beside it."""
    rows: list[Row] = []
    for key, members in runs.group_by(KEY, maintain_order=True):
        base = _of(members, REQUESTED)
        for arm in ARMS:
            own = _of(members, arm)
            row: Row = {**dict(zip(KEY, key, strict=True)), "arm": arm, "against": REQUESTED, "n": own.height}
            row |= _told(own, base)
            per_work, standing = (each["energy_kwh"].to_numpy() / each["work_kwh"].to_numpy() for each in (own, base))
            row |= _spanned(PER_WORK, ratio(per_work, standing).scaled(-PERCENT, less=1.0))
            for name in HARM:
                row[name] = float(own[name].cast(pl.Float64).mean() or 0.0)  # type: ignore[arg-type]  # of numbers
            row["finished_requested"] = float(base["finished"].mean() or 0.0)  # type: ignore[arg-type]  # of numbers
            rows.append(row)
    return rows


def switching_off(runs: pl.DataFrame) -> list[Row]:
    """Return what switching empty machines off saves with every job at its request, nothing right-sized."""
    rows: list[Row] = []
    kept = runs.filter(pl.col("arm") == REQUESTED, pl.col("truth") == pl.col("truth").first())
    for (scene, zone), members in kept.group_by(["scene", "zone"], maintain_order=True):
        on, off = (members.filter(pl.col("machines") == each).sort("seed") for each in (ON, OFF))
        told: Row = {"scene": scene, "zone": zone, "arm": f"{REQUESTED}, {OFF}", "against": f"{REQUESTED}, {ON}"}
        rows.append(told | {"n": on.height} | _told(off, on))
    return rows


def recorded_savings(days: pl.DataFrame, seed: int) -> tuple[list[Row], list[Row]]:
    """Return what the what-if saves against all GPUs held, and what switching off and placement save.

    Intervals resample weeks, the same for both sides; none where there are fewer than two.
    """
    right: list[Row] = []
    off: list[Row] = []
    for (zone,), own in days.group_by(["zone"], maintain_order=True):
        sums = {key: rows.sort("day") for key, rows in own.group_by(["arm", "machines"], maintain_order=True)}
        counts = day_counts(next(iter(sums.values())).height, rng=np.random.default_rng(seed))
        for machines in (ON, OFF):
            found = _resampled(sums[WHAT_IF, machines], sums[PACKED, machines], counts)
            right.append(
                {"scene": "recorded", "zone": zone, "machines": machines, "arm": WHAT_IF}
                | _against(PACKED, counts)
                | found
            )
        for arm, against in (
            ((PACKED, OFF), (PACKED, ON)),
            ((SPREAD, OFF), (SPREAD, ON)),
            ((PACKED, OFF), (SPREAD, OFF)),
        ):
            told: Row = {"scene": "recorded", "zone": zone, "arm": ", ".join(arm)}
            off.append(told | _against(", ".join(against), counts) | _resampled(sums[arm], sums[against], counts))
    return right, off


def drawn_parts(runs: pl.DataFrame) -> list[Row]:
    """Return where the energy of machines that are always on goes, means over seeds, by arm under the last truth."""
    zone, truth = runs["zone"][0], runs["truth"][-1]
    kept = runs.filter(pl.col("zone") == zone, pl.col("truth") == truth, pl.col("machines") == ON)
    return [
        {"scene": scene, "arm": arm, "n": members.height}
        | shares({name: float(members[name].mean() or 0.0) for name in PARTS})  # type: ignore[arg-type]  # of numbers
        for (scene, arm), members in kept.group_by(["scene", "arm"], maintain_order=True)
    ]


def shares(parts: Mapping[str, float]) -> Row:
    """Return the sum of parts, and each in percent of it."""
    whole = sum(parts.values())
    return {"energy_kwh": whole, **{name.replace("_kwh", "_pct"): PERCENT * kwh / whole for name, kwh in parts.items()}}


def _of(members: pl.DataFrame, arm: str) -> pl.DataFrame:
    return members.filter(pl.col("arm") == arm).sort("seed")


def _against(arm: str, counts: FloatArray) -> Row:
    return {"against": arm, "n": counts.shape[1]}


def _told(own: pl.DataFrame, base: pl.DataFrame) -> Row:
    row: Row = {}
    finished, other = (frame["finished"].to_numpy().astype(np.float64) for frame in (own, base))
    for name, what in WHAT.items():
        each, standing = own[name].to_numpy() / finished * JOBS, base[name].to_numpy() / other * JOBS
        row |= _spanned(f"{what}_saved_pct", ratio(each, standing).scaled(-PERCENT, less=1.0))
        row |= _spanned(f"{name}_saved", mean(standing - each))
    return row


def _resampled(own: pl.DataFrame, base: pl.DataFrame, counts: FloatArray) -> Row:
    row: Row = {}
    every = np.ones((1, counts.shape[1]))
    for name, what in WHAT.items():
        drawn, whole = (_per_job(own, base, name, weights) for weights in (counts, every))
        for figure, at in ((f"{what}_saved_pct", 0), (f"{name}_saved", 1)):
            row |= _spanned(figure, _quantiles(float(whole[at][0]), drawn[at], counts.shape[1]))
    return row


def _per_job(own: pl.DataFrame, base: pl.DataFrame, name: str, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what is saved in percent, and for `JOBS` finished jobs, in each resample."""
    each, standing = (
        weights @ frame[name].to_numpy() / (weights @ frame[FINISHED].to_numpy()) for frame in (own, base)
    )
    return PERCENT * (1.0 - each / standing), JOBS * (standing - each)


def _quantiles(value: float, drawn: FloatArray, days: int) -> Interval:
    if days < LEAST_BLOCKS * BLOCK_DAYS:
        return Interval(value=value, low=math.nan, high=math.nan)
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail]).tolist()
    return Interval(value=value, low=low, high=high)


def _spanned(name: str, found: Interval) -> Row:
    # A saving of -0 is one of 0.
    ends = sorted((found.low + 0.0, found.high + 0.0))
    return {name: found.value + 0.0, f"{name}_lo": ends[0], f"{name}_hi": ends[1]}
