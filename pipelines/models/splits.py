"""Splits of jobs into training and judged rows: by group, and time-later (judged jobs come after the cut)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.frames import has_ended
from pipelines.errors import TrainingError

__all__ = ["finished", "group_folds", "leak_key", "time_later"]

IntArray = npt.NDArray[np.int64]
SplitName = Literal["group", "time"]


STOP_SHARE: Final = 0.15
"""Share of the training rows for early stopping and calibration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One division of the jobs of a frame into training and judged rows, as row numbers.

    Trees are fitted on `fit`; `stop` is for early stopping and calibration. On a time-later split every `stop` row was
    submitted after every `fit` row. `test` are the judged rows. `censored` are jobs submitted before the cut that had
    not ended by then (time-later only): only a lower bound of their run time is known.
    """

    name: SplitName
    fit: IntArray
    stop: IntArray
    test: IntArray
    censored: IntArray

    @property
    def train(self) -> IntArray:
        """Return the row numbers of all training rows: `fit`, then `stop`."""
        return np.concatenate([self.fit, self.stop])


def finished() -> pl.Expr:
    """Return an expression that is true for rows with an end and a run time."""
    return has_ended() & pl.col("run_s").is_not_null()


def leak_key(jobs: pl.DataFrame) -> pl.Series:
    """Return the key that recurring jobs share, one per job: its group, else its user, else its VC, else its own id."""
    named = [pl.concat_str(pl.lit(f"{c} "), c) for c in ("group", "user", "vc", "job_id")]
    return jobs.select(pl.coalesce(named).alias("leak_key")).to_series()


def time_later(jobs: pl.DataFrame, *, until: datetime, since: datetime | None = None) -> Split:
    """Split by time: train on jobs that ended before `until`, judge jobs submitted at or after `since`.

    `since` is `until` by default. Early stopping uses the training rows that were submitted last.
    """
    since = until if since is None else since
    if since < until:
        raise TrainingError(
            f"judged rows start {since.isoformat()}, before the cut {until.isoformat()}: "
            "expected a start at or after the cut; move --since or --until"
        )
    marks = jobs.select(
        known=finished() & (pl.col("end_ts") < until) & (pl.col("submit_ts") < until),
        open=(pl.col("submit_ts") < until) & (pl.col("end_ts").is_null() | (pl.col("end_ts") >= until)),
        test=finished() & (pl.col("submit_ts") >= since),
    )
    fit, stop = _latest_apart(jobs["submit_ts"], _rows(marks["known"]))
    return Split(name="time", fit=fit, stop=stop, test=_rows(marks["test"]), censored=_rows(marks["open"]))


def group_folds(jobs: pl.DataFrame, *, folds: int, seed: int) -> list[Split]:
    """Split finished jobs into folds that share no `leak_key`; each job is judged in one fold.

    Keys are assigned in descending order of their number of jobs (ties at random), each to the fold with the fewest
    jobs so far. Early-stopping rows share no key with fitted rows either, unless one key has all remaining rows.
    """
    rows = _rows(jobs.select(finished()).to_series())
    keys = np.unique(leak_key(jobs).to_numpy()[rows], return_inverse=True)[1]
    sizes = np.bincount(keys)
    if len(sizes) < folds:
        raise TrainingError(
            f"{len(sizes)} groups of jobs for {folds} folds: expected at least one group per fold; use fewer folds"
        )
    rng = np.random.default_rng(seed)
    fold_of_key = _deal(sizes, folds, rng)
    splits = []
    for fold in range(folds):
        held = fold_of_key[keys] == fold
        stops = _lot_of_keys(sizes, np.flatnonzero(fold_of_key != fold), rng)
        stop = ~held & np.isin(keys, stops)
        fit = ~held & ~stop
        splits.append(Split(name="group", fit=rows[fit], stop=rows[stop], test=rows[held], censored=_NO_ROWS))
    return splits


_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


def _rows(mask: pl.Series) -> IntArray:
    return np.flatnonzero(mask.fill_null(value=False).to_numpy())


def _latest_apart(submit_ts: pl.Series, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Split rows by submission: return the earlier rows, and the latest share; rows of equal time stay together."""
    submitted = submit_ts.dt.epoch("us").to_numpy()[rows]
    if len(rows) == 0:
        return rows, rows
    border = np.quantile(submitted, 1.0 - STOP_SHARE, method="higher")
    return rows[submitted < border], rows[submitted >= border]


def _deal(sizes: IntArray, folds: int, rng: np.random.Generator) -> IntArray:
    shuffled = rng.permutation(len(sizes))
    load = np.zeros(folds, dtype=np.int64)
    fold_of_key = np.zeros(len(sizes), dtype=np.int64)
    for key in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        fold = int(np.argmin(load))
        fold_of_key[key] = fold
        load[fold] += sizes[key]
    return fold_of_key


def _lot_of_keys(sizes: IntArray, keys: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw random keys until they hold `STOP_SHARE` of the rows of `keys`; skip keys larger than twice that share."""
    wanted = STOP_SHARE * sizes[keys].sum()
    drawn: list[int] = []
    held = 0
    for key in rng.permutation(keys):
        if held >= wanted or len(drawn) == len(keys) - 1:
            break
        if sizes[key] <= 2 * wanted:
            drawn.append(int(key))
            held += int(sizes[key])
    return np.array(drawn, dtype=np.int64)
