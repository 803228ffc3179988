"""Sizes that are means over earlier jobs with the same key, in history as of each submission.

Called by `sizes`.
"""

from typing import Final

import numpy as np
import polars as pl

from pipelines.models.baselines import UNINFORMED_S, HistoryBaseline, Key, key_codes
from pipelines.models.metrics import FloatArray
from pipelines.models.splits import finished
from scheduler_core.types import IntArray

LIKE_MEAN: Final = "like_mean"
"""Name of the mean over jobs with the same VC and GPUs, or the same GPUs if the trace has no VCs. Unlike the other
means it can be computed for every trace."""

MEANS: Final[dict[str, HistoryBaseline]] = {
    "user_mean": HistoryBaseline(keys=(("user",), ("cluster",))),
    "group_mean": HistoryBaseline(keys=(("group",), ("user",), ("cluster",))),
    LIKE_MEAN: HistoryBaseline(keys=(("cluster", "vc", "gpus"), ("cluster", "gpus"), ("cluster",))),
}
"""Sizes that are means over earlier jobs with the same key, by name.

Of each list of keys, the first under which an earlier job has ended is used. The mean is over all earlier jobs with
that key; the window of `HistoryBaseline` is ignored. `gpus` is the GPU count of the whole gang.
"""


def mean_sizes(jobs: pl.DataFrame, keys: tuple[Key, ...]) -> FloatArray:
    """Return for each job (n,) the mean run time in seconds of earlier jobs with the same key.

    The first of `keys` under which a job has ended is taken. Only finished jobs that ended strictly before the
    `submit_ts` of a job count; if there are none, its size is `UNINFORMED_S`.
    """
    sizes = np.full(jobs.height, UNINFORMED_S[0.5])
    for key in reversed(keys):
        means = _ended_means(jobs, key)
        sizes = np.where(np.isnan(means), sizes, means)
    return sizes


def _ended_means(jobs: pl.DataFrame, key: Key) -> FloatArray:
    """Return the mean run time of jobs with the same key that ended before each submission (n,), NaN if none had."""
    codes = key_codes(jobs, key)
    submit_us = jobs["submit_ts"].dt.epoch("us").to_numpy()
    ended = np.flatnonzero(jobs.select(finished()).to_series().to_numpy() & (codes >= 0))
    end_us = jobs["end_ts"].dt.epoch("us").to_numpy()[ended].astype(np.int64)
    order = np.lexsort((end_us, codes[ended]))
    ended, end_us = ended[order], end_us[order]
    totals = np.concatenate([[0.0], np.cumsum(jobs["run_s"].to_numpy()[ended])])
    firsts = np.searchsorted(codes[ended], codes)
    # Ends are sorted by key, then time: find how many of them come before each submission.
    ranks = _ranks(codes, submit_us, codes[ended], end_us)
    counts = np.where(codes >= 0, ranks - firsts, 0)
    with np.errstate(invalid="ignore"):
        return np.where(counts > 0, (totals[ranks] - totals[firsts]) / np.maximum(counts, 1), np.nan)


def _ranks(asked_code: IntArray, asked_us: IntArray, code: IntArray, us: IntArray) -> IntArray:
    """Return how many of the ascending pairs (code, us) come before each pair (asked_code, asked_us)."""
    is_end = np.concatenate([np.zeros(len(asked_code), dtype=np.bool_), np.ones(len(code), dtype=np.bool_)])
    order = np.lexsort((is_end, np.concatenate([asked_us, us]), np.concatenate([asked_code, code])))
    before = np.cumsum(is_end[order])
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = before
    return ranks[: len(asked_code)]
