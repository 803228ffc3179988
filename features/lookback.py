"""Jobs at their submission, looking back: their keys, and the spans of history they may see.

One object per chunk of a build; every answer is a row's own, whatever rows stand beside it.
Called by `features.build`; read by `columns.recency` and `columns.load`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from features.history import History
from features.keys import KEY_NAMES, NULL

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookback:
    """The key codes (n, keys) and submission times in microseconds (n,) of the jobs asked about."""

    history: History
    codes: IntArray
    submit_us: IntArray

    @classmethod
    def of(cls, jobs: pl.DataFrame, history: History) -> "Lookback":
        """Look up the keys of `jobs` in `history`."""
        submit_us = jobs["submit_ts"].dt.cast_time_unit("us").to_physical().to_numpy().astype(np.int64)
        return cls(history=history, codes=history.keyspace.codes(jobs), submit_us=submit_us)

    def span(self, kind: str, keys: Sequence[str], ago_us: int = 0) -> tuple[IntArray, IntArray]:
        """Return where each (job, key)'s events of a kind begin and stop: those strictly before `ago_us` ago.

        Both are (n * keys,), job by job.
        """
        codes = self.key_codes(keys)
        ts = np.repeat(self.submit_us - ago_us, len(keys))
        return self.history.events[kind].span(codes, ts)

    def key_codes(self, keys: Sequence[str]) -> IntArray:
        """Return the codes (n * keys,), job by job."""
        return self.codes[:, [KEY_NAMES.index(key) for key in keys]].ravel()

    def unless_null(self, values: npt.NDArray[np.generic], keys: Sequence[str]) -> FloatArray:
        """Return `values` (n * keys,) as floats, NaN where the key is null: an unknown user has no history."""
        return np.where(self.key_codes(keys) == NULL, np.nan, values)
