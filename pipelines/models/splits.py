"""Which rows are learnt from and which are judged: random, by group, and time-later.

Row numbers only; nothing is fitted and no feature is read. The time-later split is the one that is trusted.
Called by `training.runtime`, `training.usage`, `training.evaluate` and `training.replication`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.tables import has_ended
from pipelines.errors import TrainingError

IntArray = npt.NDArray[np.int64]
SplitName = Literal["random", "group", "time"]
SPLITS: Final[tuple[SplitName, ...]] = ("random", "group", "time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One division of the rows of a jobs frame, as row numbers.

    Attributes
    ----------
    fit, stop
        Rows the trees are grown on, and rows that say when to stop and calibrate; together the training rows.
        On a time-later split every `stop` row was submitted after every `fit` row.
    test
        Rows that are judged; never fitted, never stopped on.
    censored
        Rows submitted before the cut that had not ended at it (time-later only): known only to be longer.
    """

    name: SplitName
    fit: IntArray
    stop: IntArray
    test: IntArray
    censored: IntArray

    @property
    def train(self) -> IntArray:
        """All rows that may be learnt from."""
        return np.concatenate([self.fit, self.stop])


def finished() -> pl.Expr:
    """Return whether a row has an end and a run time to learn or be judged by."""
    return has_ended() & pl.col("run_s").is_not_null()


def leak_key(jobs: pl.DataFrame) -> pl.Series:
    """Return what recurring jobs share, one value per row: the group, else the user, else the VC, else the job.

    >>> leak_key(pl.DataFrame({"group": ["g", None], "user": ["u", "u"], "vc": [None, None], "job_id": ["1", "2"]},
    ...     schema_overrides={"vc": pl.String})).to_list()
    ['group g', 'user u']
    """
    named = [pl.concat_str(pl.lit(f"{c} "), c) for c in ("group", "user", "vc", "job_id")]
    return jobs.select(pl.coalesce(named).alias("leak_key")).to_series()


def time_later(
    jobs: pl.DataFrame, *, until: datetime, since: datetime | None = None, stop_share: float = 0.15
) -> Split:
    """Split at a cut on labels: learn from what ended before `until`, judge what was submitted at or after `since`.

    Parameters
    ----------
    jobs
        Canonical jobs, any order.
    until
        The cut. A job submitted before it and still running then is in `censored`.
    since
        Start of the judged rows, `until` by default; never before it.
    stop_share
        Share of the training rows, the latest submitted, that early stopping and calibration use.

    Raises
    ------
    TrainingError
        `since` lies before `until`.
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
    fit, stop = _latest_apart(jobs["submit_ts"], _rows(marks["known"]), stop_share)
    return Split(name="time", fit=fit, stop=stop, test=_rows(marks["test"]), censored=_rows(marks["open"]))


def random_split(jobs: pl.DataFrame, *, seed: int, test_share: float = 0.2, stop_share: float = 0.15) -> Split:
    """Split finished rows by lot: recurring jobs leak across it, so it flatters (kept for comparison)."""
    rows = _rows(jobs.select(finished()).to_series())
    shuffled = np.random.default_rng(seed).permutation(rows)
    n_test = round(test_share * len(rows))
    n_stop = round(stop_share * (len(rows) - n_test))
    test, stop, fit = np.split(shuffled, [n_test, n_test + n_stop])
    return Split(name="random", fit=np.sort(fit), stop=np.sort(stop), test=np.sort(test), censored=_NO_ROWS)


def group_folds(jobs: pl.DataFrame, *, folds: int, seed: int, stop_share: float = 0.15) -> list[Split]:
    """Split finished rows into folds that share no `leak_key`; each row is judged once.

    Keys are dealt to the folds largest first, to the emptiest fold, ties by lot: folds differ in size by at most one
    key. Stopping rows share no key with fitted rows either, unless one key holds everything that is left.

    Raises
    ------
    TrainingError
        There are fewer keys than folds.
    """
    rows = _rows(jobs.select(finished()).to_series())
    keys = np.unique(leak_key(jobs).to_numpy()[rows], return_inverse=True)[1]
    sizes = np.bincount(keys)
    if len(sizes) < folds:
        raise TrainingError(
            f"{len(sizes)} groups of jobs for {folds} folds: expected at least one group a fold; use fewer folds"
        )
    rng = np.random.default_rng(seed)
    fold_of_key = _deal(sizes, folds, rng)
    splits = []
    for fold in range(folds):
        held = fold_of_key[keys] == fold
        stops = _lot_of_keys(sizes, np.flatnonzero(fold_of_key != fold), stop_share, rng)
        stop = ~held & np.isin(keys, stops)
        fit = ~held & ~stop
        splits.append(Split(name="group", fit=rows[fit], stop=rows[stop], test=rows[held], censored=_NO_ROWS))
    return splits


_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


def _rows(mask: pl.Series) -> IntArray:
    return np.flatnonzero(mask.fill_null(value=False).to_numpy())


def _latest_apart(submit_ts: pl.Series, rows: IntArray, share: float) -> tuple[IntArray, IntArray]:
    """Part the rows by submission: the latest `share` (whole instants, so that no tie is on both sides) apart."""
    submitted = submit_ts.dt.epoch("us").to_numpy()[rows]
    if len(rows) == 0:
        return rows, rows
    border = np.quantile(submitted, 1.0 - share, method="higher")
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


def _lot_of_keys(sizes: IntArray, keys: IntArray, share: float, rng: np.random.Generator) -> IntArray:
    """Draw keys by lot until they hold `share` of the rows, passing over keys that would hold twice that."""
    wanted = share * sizes[keys].sum()
    drawn: list[int] = []
    held = 0
    for key in rng.permutation(keys):
        if held >= wanted or len(drawn) == len(keys) - 1:
            break
        if sizes[key] <= 2 * wanted:
            drawn.append(int(key))
            held += int(sizes[key])
    return np.array(drawn, dtype=np.int64)
