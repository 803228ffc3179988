"""Events by key in time order: what had happened under a key before a moment.

Sorted integer arrays only, so that any row is answered alone and alike; knows nothing of jobs or features.
Called by `features.history`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Events ordered by key code, then time, then row; one event stands once under each of its row's keys.

    `clock` holds the distinct times (microseconds), `order` the sorted numbers `code * (len(clock) + 1) + rank`,
    `rows` the row of each event in the history's frame, `begins` where each code's events begin, and `running` the
    running sums of integer weights along the order (one longer, from 0): whole numbers, so that no span rounds.
    """

    clock: IntArray
    order: IntArray
    rows: IntArray
    begins: IntArray
    running: Mapping[str, IntArray]

    @classmethod
    def of(
        cls, *, codes: IntArray, ts: IntArray, rows: IntArray, size: int, weights: Mapping[str, IntArray]
    ) -> "Events":
        """Order the events at `ts` (n,) of the ascending `rows` (n,) under `codes` (n, keys).

        `size` is the number of codes; `weights` holds whole numbers, one per row of the frame.
        """
        clock = np.unique(ts)
        stride = len(clock) + 1
        numbers = codes * stride + np.searchsorted(clock, ts)[:, None]
        held = codes >= 0
        numbers, repeated = numbers[held], np.broadcast_to(rows[:, None], codes.shape)[held]
        sorting = np.argsort(numbers, kind="stable")  # ties stay in the order of the rows
        order, ordered_rows = numbers[sorting], repeated[sorting]
        begins = np.searchsorted(order, np.arange(size + 1, dtype=np.int64) * stride)
        running = {name: np.concatenate(([0], np.cumsum(weight[ordered_rows]))) for name, weight in weights.items()}
        return cls(clock=clock, order=order, rows=ordered_rows, begins=begins.astype(np.int64), running=running)

    def span(self, codes: IntArray, ts: IntArray) -> tuple[IntArray, IntArray]:
        """Return where the events under `codes` begin and where those strictly before `ts` stop; empty if no code."""
        known = np.maximum(codes, 0)
        numbers = known * (len(self.clock) + 1) + np.searchsorted(self.clock, ts)
        begin = np.where(codes >= 0, self.begins[known], 0) if len(self.begins) > 1 else np.zeros_like(codes)
        stop = np.where(codes >= 0, np.searchsorted(self.order, numbers), 0)
        return begin, stop

    def newest(self, begin: IntArray, stop: IntArray, last: int) -> tuple[IntArray, BoolArray]:
        """Return the rows of the `last` newest events of each span (n, last), newest first, and which are real."""
        places = stop[:, None] - 1 - np.arange(last)
        held = places >= begin[:, None]
        if not len(self.rows):
            return np.zeros_like(places), held
        return self.rows[np.where(held, places, 0)], held
