"""Jobs at their submission, looking back: their keys, and the spans of history they may see.

One object per chunk of a build; every answer is a row's own, whatever rows stand beside it.
Called by `features.build`; read by `columns.recency`, `columns.load` and `columns.newest`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from features.history import History
from features.keys import KEY_NAMES, NULL

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookback:
    """The key codes (n, keys) and submission times in microseconds (n,) of the jobs asked about."""

    history: History
    codes: IntArray
    submit_us: IntArray
    spans: dict[tuple[str, tuple[str, ...], int], tuple[IntArray, IntArray]] = field(default_factory=dict)
    """The spans found so far: many measures look at the same ones."""

    @classmethod
    def of(cls, jobs: pl.DataFrame, history: History) -> "Lookback":
        """Look up the keys of `jobs` in `history`."""
        submit_us = jobs["submit_ts"].dt.cast_time_unit("us").to_physical().to_numpy().astype(np.int64)
        return cls(history=history, codes=history.keyspace.codes(jobs), submit_us=submit_us)

    def span(self, kind: str, keys: Sequence[str], ago_us: int = 0) -> tuple[IntArray, IntArray]:
        """Return where each (job, key)'s events of a kind begin and stop: those strictly before `ago_us` ago.

        Both are (n * keys,), job by job.
        """
        asked = (kind, tuple(keys), ago_us)
        if asked not in self.spans:
            codes = self.codes[:, [KEY_NAMES.index(key) for key in keys]].ravel()
            ts = np.repeat(self.submit_us - ago_us, len(keys))
            self.spans[asked] = self.history.events[kind].span(codes, ts)
        return self.spans[asked]

    def unknown(self, key: str) -> BoolArray:
        """Mark the jobs whose `key` is null (n,)."""
        null: BoolArray = self.codes[:, KEY_NAMES.index(key)] == NULL
        return null
