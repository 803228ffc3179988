"""The rows of a growing history: those it began with, and after them those that feedback told.

Arrays by row number, filled where they stand; which keys a row has, and in what order events came, is elsewhere.
Called by `features.online`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from features.history import NEVER, History, times_us, values_of, weights_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)
Identity = tuple[str, str, str]
"""Cluster, job, role: a row of one trace."""

WEIGHTS: Final = ("jobs", "milli_gpus", "start_s")
_SPARE_ROWS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """Rows that feedback told, computed as a `History` computes its own."""

    frame: pl.DataFrame
    identities: Sequence[Identity]
    times: Mapping[str, IntArray]
    values: Mapping[str, FloatArray]
    weights: Mapping[str, IntArray]
    measured: BoolArray

    @classmethod
    def of(cls, frame: pl.DataFrame) -> "Fed":
        """Take the rows of a frame with the columns of `History.frame`."""
        times = times_us(frame)
        return cls(
            frame=frame,
            identities=list(frame.select("cluster", "job_id", "role").iter_rows()),
            times=times,
            values=values_of(frame),
            weights=weights_of(frame, times["start"]),
            measured=frame["measured"].to_numpy(),
        )


class Ledger:
    """Arrays along the rows of a history and of what was fed since; only the first `size` places are rows."""

    def __init__(self, base: History) -> None:
        self.base = base
        self.size = base.frame.height
        self.times: dict[str, IntArray] = {"submit": base.submit_us, "start": base.start_us, "end": base.end_us}
        self.values: dict[str, FloatArray] = dict(base.values)
        self.fed: list[Fed] = []
        self._weights: dict[str, IntArray] = {name: np.empty(0, dtype=np.int64) for name in WEIGHTS}
        self._measured: BoolArray = np.empty(0, dtype=np.bool_)
        self._identities: list[Identity] = []
        self._by_hash: tuple[IntArray, IntArray] | None = None

    @property
    def fed_rows(self) -> int:
        """Return how many rows were fed."""
        return self.size - self.base.frame.height

    def append(self, fed: Fed) -> None:
        """Put rows at the end."""
        start, stop = self.size, self.size + fed.frame.height
        first, last = start - self.base.frame.height, stop - self.base.frame.height
        for name, times in fed.times.items():
            self.times[name] = _filled(self.times[name], start, times)
        for name, values in fed.values.items():
            self.values[name] = _filled(self.values[name], start, values)
        for name, weights in fed.weights.items():
            self._weights[name] = _filled(self._weights[name], first, weights)
        self._measured = _filled(self._measured, first, fed.measured)
        self._identities[first:last] = fed.identities
        self.fed.append(fed)
        self.size = stop

    def identity(self, row: int) -> Identity:
        """Return whose row it is."""
        base = self.base.frame
        if row >= base.height:
            return self._identities[row - base.height]
        return base["cluster"][row], base["job_id"][row], base["role"][row]

    def order(self, row: int) -> tuple[int, Identity]:
        """Return what rows of one moment are ordered by, as `History` orders them."""
        return int(self.times["submit"][row]), self.identity(row)

    def base_row(self, identity: Identity) -> int | None:
        """Return the row the history began with for this identity, if any."""
        hashes, rows = self._base_hashes()
        mine = hash(identity)
        for place in range(int(hashes.searchsorted(mine)), len(hashes)):
            if hashes[place] != mine:
                break
            if self.identity(int(rows[place])) == identity:
                return int(rows[place])
        return None

    def happened(self, kind: str, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return, of fed rows, those with an event of a kind and when it was."""
        ts = self.times[{"submitted": "submit", "started": "start"}.get(kind, "end")][rows]
        held = ts != NEVER
        if kind == "measured":
            held &= self._measured[rows - self.base.frame.height]
        return rows[held], ts[held]

    def weights(self, name: str, rows: IntArray) -> IntArray:
        """Return a weight of fed rows."""
        return self._weights[name][rows - self.base.frame.height]

    def frame(self, gone: set[int]) -> pl.DataFrame:
        """Return all rows but those of the base that are gone, as `History.from_tail` takes them."""
        base = self.base.frame
        kept = base.filter(~pl.int_range(base.height, eager=True).is_in(sorted(gone))) if gone else base
        return pl.concat([kept, *(fed.frame for fed in self.fed)])

    def _base_hashes(self) -> tuple[IntArray, IntArray]:
        if self._by_hash is None:
            base = self.base.frame
            identities = base.select("cluster", "job_id", "role").iter_rows()
            hashes = np.fromiter(map(hash, identities), dtype=np.int64, count=base.height)
            rows = np.argsort(hashes, kind="stable")
            self._by_hash = hashes[rows], rows
        return self._by_hash


def _filled(array: npt.NDArray[T], start: int, values: npt.NDArray[T]) -> npt.NDArray[T]:
    """Return an array that holds `values` from `start` on: the same one where it has room, else a longer copy."""
    stop = start + len(values)
    if stop > len(array):
        longer = np.empty(stop + stop // 4 + _SPARE_ROWS, dtype=array.dtype)
        longer[:start] = array[:start]
        array = longer
    array[start:stop] = values
    return array
