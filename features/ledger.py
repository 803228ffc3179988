"""Job data of a growing history, by row: first the rows of a `History` (`Base`), then the ended runs added later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Self, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from features.history import EVENT_KINDS, JOB_COLUMNS, NEVER, USE_COLUMNS, History, times_us, values_of, weights_of
from features.keys import EndedRun, Keyspace, KeyValue

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

T = TypeVar("T", bound=np.generic)
Identity = tuple[str, str, str]
"""Cluster, job id and role, which identify a row within one trace."""

WEIGHTS: Final = ("jobs", "start_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The rows of a `History`, stored compactly: 4 bytes per row, key and kind of event instead of 40.

    `rows` holds for each kind of event the rows with such an event, by key code and then by time; `begins` the position
    of the first row of each key code. `times`, `values` and `weights` have one entry per row.
    """

    frame: pl.DataFrame
    keyspace: Keyspace
    rows: Mapping[str, npt.NDArray[np.int32]]
    begins: Mapping[str, IntArray]
    times: Mapping[str, IntArray]
    values: Mapping[str, FloatArray]
    weights: Mapping[str, IntArray]

    @classmethod
    def of(cls, history: History) -> Self:
        """Build the compact rows of a history."""
        return cls(
            frame=history.frame,
            keyspace=history.keyspace,
            rows={kind: history.events[kind].rows.astype(np.int32) for kind in EVENT_KINDS},
            begins={kind: history.events[kind].begins for kind in EVENT_KINDS},
            times={"submit": history.submit_us, "start": history.start_us, "end": history.end_us},
            values=history.values,
            weights=weights_of(history.start_us),
        )

    def code_of(self, key: tuple[str, KeyValue]) -> int:
        """Return the code of a key, negative if no row has the key."""
        return self.keyspace.code_of(*key)

    def rows_of(self, kind: str, code: int) -> IntArray:
        """Return the rows that have an event of a kind under a key code, in time order."""
        begin, stop = self.begins[kind][code : code + 2]
        return self.rows[kind][begin:stop].astype(np.int64)

    def has_ended(self, row: int) -> bool:
        """Return whether the row's job has ended."""
        return bool(self.times["end"][row] != NEVER)


def identity_of(run: EndedRun) -> Identity:
    """Return the identity of a run."""
    return run.cluster, run.job_id, run.role


class Ledger:
    """Arrays with one entry per row: those of the `Base`, then those of the runs added since.

    Only the first `size` entries of an array are in use; the others are spare, so that adding rows rarely copies.
    """

    def __init__(self, base: Base) -> None:
        self.base = base
        self.size = base.frame.height
        self.times: dict[str, IntArray] = dict(base.times)
        self.values: dict[str, FloatArray] = dict(base.values)
        self._weights: dict[str, IntArray] = dict(base.weights)
        self._runs: list[EndedRun] = []
        self._by_hash: tuple[IntArray, IntArray] | None = None

    @property
    def fed_rows(self) -> int:
        """Return the number of added rows."""
        return len(self._runs)

    def append(self, runs: Sequence[EndedRun]) -> None:
        """Append ended runs, all of one trace, after all present rows."""
        frame = runs_frame(runs)
        times = times_us(frame)
        _extend(self.times, self.size, times)
        _extend(self.values, self.size, values_of(frame))
        _extend(self._weights, self.size, weights_of(times["start"]))
        self._runs += runs
        self.size += len(runs)

    def identity(self, row: int) -> Identity:
        """Return the identity of a row."""
        base = self.base.frame
        if row >= base.height:
            return identity_of(self._runs[row - base.height])
        return base["cluster"][row], base["job_id"][row], base["role"][row]

    def roles(self, rows: IntArray) -> list[str]:
        """Return the roles of rows, those of the base first."""
        base = self.base.frame
        added = (rows[rows >= base.height] - base.height).tolist()
        return base["role"].gather(rows[rows < base.height]).to_list() + [self._runs[i].role for i in added]

    def order(self, row: int) -> tuple[int, Identity]:
        """Return the key that sorts a row among events of the same time, in the same order as in a `History`."""
        return int(self.times["submit"][row]), self.identity(row)

    def base_row(self, identity: Identity) -> int | None:
        """Return the row of the base with this identity, None if there is none."""
        hashes, rows = self._base_hashes()
        mine = hash(identity)
        for place in range(int(hashes.searchsorted(mine)), len(hashes)):
            if hashes[place] != mine:
                break
            if self.identity(int(rows[place])) == identity:
                return int(rows[place])
        return None

    def happened(self, kind: str, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the added rows in `rows` that have an event of a kind, and the times of these events."""
        ts = self.times_of(kind)[rows]
        held = ts != NEVER
        if kind == "measured":
            begin = self.base.frame.height
            held &= np.array([self._runs[row - begin].measured for row in rows.tolist()], dtype=np.bool_)
        return rows[held], ts[held]

    def times_of(self, kind: str) -> IntArray:
        """Return the time of each row's event of a kind, `NEVER` where it has not happened."""
        return self.times[{"submitted": "submit", "started": "start"}.get(kind, "end")]

    def weights(self, name: str, rows: IntArray) -> IntArray:
        """Return the weight `name` of each of `rows`."""
        return self._weights[name][rows]

    def frame(self, gone: set[int]) -> pl.DataFrame:
        """Return a frame for `History.from_tail` with all rows except the rows of the base in `gone`."""
        base = self.base.frame
        kept = base.filter(~pl.int_range(base.height, eager=True).is_in(sorted(gone))) if gone else base
        return pl.concat([kept, runs_frame(self._runs).select(base.columns)], rechunk=True)

    def _base_hashes(self) -> tuple[IntArray, IntArray]:
        if self._by_hash is None:
            base = self.base.frame
            identities = base.select("cluster", "job_id", "role").iter_rows()
            hashes = np.fromiter(map(hash, identities), dtype=np.int64, count=base.height)
            rows = np.argsort(hashes, kind="stable")
            self._by_hash = hashes[rows], rows
        return self._by_hash


_SPARE_ROWS: Final = 1024


def _extend(arrays: dict[str, npt.NDArray[T]], start: int, new: Mapping[str, npt.NDArray[T]]) -> None:
    """Write new values into each array from index `start`; replace an array that is too short by a longer copy."""
    for name, values in new.items():
        array, stop = arrays[name], start + len(values)
        if stop > len(array):
            arrays[name] = np.empty(stop + stop // 4 + _SPARE_ROWS, dtype=array.dtype)
            arrays[name][:start] = array[:start]
        arrays[name][start:stop] = values


_MICROSECONDS: Final = ("submit_us", "start_us", "end_us")


def runs_frame(runs: Sequence[EndedRun]) -> pl.DataFrame:
    """Return a frame of the runs with the columns of `History.frame`."""
    raw = {field.name: [getattr(run, field.name) for run in runs] for field in fields(EndedRun)}
    numbers = {name: raw.pop(name) for name in _MICROSECONDS}
    schema = {**JOB_COLUMNS, **dict.fromkeys(USE_COLUMNS, pl.Float64()), "measured": pl.Boolean()}
    columns = [
        pl.Series(name, numbers[f"{name.removesuffix('_ts')}_us"], dtype=pl.Int64()).cast(dtype)
        if name.endswith("_ts")
        else pl.Series(name, raw[name], dtype=dtype)
        for name, dtype in schema.items()
    ]
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))
