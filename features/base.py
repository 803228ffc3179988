"""What a growing history began with, in a third of the memory: events by key, without what only frames of jobs ask for.

Arrays along the rows only; what was fed since is in `features.ledger`, what is known of a key in `features.timelines`.
Called by `features.online` and `features.ledger`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from features.history import EVENT_KINDS, NEVER, History, weights_of
from features.keys import Keyspace, KeyValue

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The rows of a `History`; `rows` holds by kind those with an event, key by key and in time order.

    A history orders each kind by code and time to answer thousands of jobs at once, and sums up weights along it: 40
    bytes for each of ten keys of four kinds, a row. One job at a time needs the rows of a key, 4 bytes each.
    """

    frame: pl.DataFrame
    keyspace: Keyspace
    rows: Mapping[str, npt.NDArray[np.int32]]
    begins: Mapping[str, IntArray]
    times: Mapping[str, IntArray]
    values: Mapping[str, FloatArray]
    weights: Mapping[str, IntArray]

    @classmethod
    def of(cls, history: History) -> "Base":
        """Take what is needed of a history."""
        return cls(
            frame=history.frame,
            keyspace=history.keyspace,
            rows={kind: history.events[kind].rows.astype(np.int32) for kind in EVENT_KINDS},
            begins={kind: history.events[kind].begins for kind in EVENT_KINDS},
            times={"submit": history.submit_us, "start": history.start_us, "end": history.end_us},
            values=history.values,
            weights=weights_of(history.frame, history.start_us),
        )

    def code_of(self, key: tuple[str, KeyValue]) -> int:
        """Return the code of a key, below zero where no row has it."""
        return self.keyspace.code_of(*key)

    def rows_of(self, kind: str, code: int) -> IntArray:
        """Return the rows with an event of a kind under a key's code, in time order."""
        begin, stop = self.begins[kind][code : code + 2]
        return self.rows[kind][begin:stop].astype(np.int64)

    def has_ended(self, row: int) -> bool:
        """Tell whether the job of a row had ended."""
        return bool(self.times["end"][row] != NEVER)
