"""Job data of a growing history, by row: first the rows of a `History` (`Base`), then rows added later (`Ledger`).

Added rows are ended runs, reported as feedback. `features.lookups` holds events in time order. Called by
`features.online` and `features.lookups`.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from features.history import EVENT_KINDS, JOB_COLUMNS, NEVER, USE_COLUMNS, History, times_us, values_of, weights_of
from features.keys import EndedRun, Keyspace, KeyValue

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The rows of a `History`, stored compactly.

    `rows` holds for each kind of event the rows with such an event, by key code and then by time; `begins` the position
    of the first row of each key code. `times`, `values` and `weights` have one entry per row.

    A `History` also stores sort numbers and running sums for thousands of lookups at once: 40 bytes per row, key (10)
    and kind of event (4). Lookups for one job at a time need only the row numbers, 4 bytes each.
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
        """Build the compact rows of a history."""
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
        """Return the code of a key, negative if no row has the key."""
        return self.keyspace.code_of(*key)

    def rows_of(self, kind: str, code: int) -> IntArray:
        """Return the rows that have an event of a kind under a key code, in time order."""
        begin, stop = self.begins[kind][code : code + 2]
        return self.rows[kind][begin:stop].astype(np.int64)

    def has_ended(self, row: int) -> bool:
        """Return whether the row's job has ended."""
        return bool(self.times["end"][row] != NEVER)


T = TypeVar("T", bound=np.generic)
Identity = tuple[str, str, str]
"""Cluster, job id and role, which identify a row within one trace."""

WEIGHTS: Final = ("jobs", "milli_gpus", "start_s")
_AS_REPORTED: Final = {"end_us": np.int64, "instances": np.int64, "req_gpus": np.float64, "measured": np.bool_}
"""Columns of added rows that are also kept as reported, to rebuild frames.

One is the reported end: for a run whose status says that it still runs, `Ledger.times` holds `NEVER` instead.
"""
_SPARE_ROWS: Final = 1024


class _Texts(NamedTuple):
    """Text columns of an added row, without its identity; rows with the same texts share one object."""

    trace: str
    user: str | None
    vc: str | None
    group: str | None
    status: str | None


_TEXT_COLUMNS: Final = ("cluster", "job_id", "role", *_Texts._fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """Rows to add to a `Ledger`, with the derived arrays of a `History`."""

    identities: Sequence[Identity]
    texts: Sequence[_Texts]
    times: Mapping[str, IntArray]
    values: Mapping[str, FloatArray]
    weights: Mapping[str, IntArray]
    reported: Mapping[str, npt.NDArray[Any]]  # with the types in `_AS_REPORTED`

    @classmethod
    def of(cls, runs: Sequence[EndedRun]) -> "Fed":
        """Convert ended runs, all of one trace, to rows."""
        frame = runs_frame(runs)
        times = times_us(frame)
        return cls(
            identities=[(sys.intern(run.cluster), run.job_id, sys.intern(run.role)) for run in runs],
            texts=[_Texts(run.trace, run.user, run.vc, run.group, run.status) for run in runs],
            times=times,
            values=values_of(frame),
            weights=weights_of(frame, times["start"]),
            reported={
                name: np.array([getattr(run, name) for run in runs], dtype=dtype)
                for name, dtype in _AS_REPORTED.items()
            },
        )


class Ledger:
    """Arrays with one entry per row: those of the `Base`, then those added since.

    Only the first `size` entries of an array are in use; the others are spare, so that adding rows rarely copies. An
    added row takes some hundred bytes, where one frame per report would take kibibytes per row.
    """

    def __init__(self, base: Base) -> None:
        self.base = base
        self.size = base.frame.height
        self.times: dict[str, IntArray] = dict(base.times)
        self.values: dict[str, FloatArray] = dict(base.values)
        self._weights: dict[str, IntArray] = dict(base.weights)
        self._reported: dict[str, npt.NDArray[Any]] = {}  # with the types in `_AS_REPORTED`
        for name, dtype in _AS_REPORTED.items():
            self._reported[name] = np.empty(0, dtype=dtype)
        self._identities: list[Identity] = []
        self._texts: list[_Texts] = []
        self._texts_known: dict[_Texts, _Texts] = {}
        self._by_hash: tuple[IntArray, IntArray] | None = None

    @property
    def fed_rows(self) -> int:
        """Return the number of added rows."""
        return self.size - self.base.frame.height

    def append(self, fed: Fed) -> None:
        """Append rows after all present rows."""
        start, first = self.size, self.fed_rows
        for name, times in fed.times.items():
            self.times[name] = _filled(self.times[name], start, times)
        for name, values in fed.values.items():
            self.values[name] = _filled(self.values[name], start, values)
        for name, weights in fed.weights.items():
            self._weights[name] = _filled(self._weights[name], start, weights)
        for name, reported in fed.reported.items():
            self._reported[name] = _filled(self._reported[name], first, reported)
        self._identities += fed.identities
        self._texts += [self._texts_known.setdefault(texts, texts) for texts in fed.texts]
        self.size += len(fed.identities)

    def identity(self, row: int) -> Identity:
        """Return the identity of a row."""
        base = self.base.frame
        if row >= base.height:
            return self._identities[row - base.height]
        return base["cluster"][row], base["job_id"][row], base["role"][row]

    def roles(self, rows: IntArray) -> list[str]:
        """Return the roles of rows, those of the base first."""
        base = self.base.frame
        added = (rows[rows >= base.height] - base.height).tolist()
        return base["role"].gather(rows[rows < base.height]).to_list() + [self._identities[i][2] for i in added]

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
            held &= self._reported["measured"][rows - self.base.frame.height]
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
        return pl.concat([kept, self._fed_frame().select(base.columns)], rechunk=True)

    def _fed_frame(self) -> pl.DataFrame:
        """Return a frame of the added rows, with their values as reported."""
        fed, begin = self.fed_rows, self.base.frame.height
        rows = [(*identity, *values) for identity, values in zip(self._identities, self._texts, strict=True)]
        texts = pl.DataFrame(rows, schema=dict.fromkeys(_TEXT_COLUMNS, pl.String()), orient="row")
        numbers = {
            "submit_ts": self.times["submit"][begin : self.size],
            "start_ts": self.times["start"][begin : self.size],
            "end_ts": self._reported["end_us"][:fed],
            "instances": self._reported["instances"][:fed],
            "req_gpus": self._reported["req_gpus"][:fed],
            **{name: self.values[name][begin : self.size] for name in ("run_s", *USE_COLUMNS)},
            "measured": self._reported["measured"][:fed],
        }
        known = texts.with_columns(pl.Series(name, values) for name, values in numbers.items())
        return known.with_columns(pl.col("start_ts").replace(int(NEVER), None), pl.col(pl.Float64).fill_nan(None)).cast(
            {name: JOB_COLUMNS[name] for name in numbers if name in JOB_COLUMNS}
        )

    def _base_hashes(self) -> tuple[IntArray, IntArray]:
        if self._by_hash is None:
            base = self.base.frame
            identities = base.select("cluster", "job_id", "role").iter_rows()
            hashes = np.fromiter(map(hash, identities), dtype=np.int64, count=base.height)
            rows = np.argsort(hashes, kind="stable")
            self._by_hash = hashes[rows], rows
        return self._by_hash


def _filled(array: npt.NDArray[T], start: int, values: npt.NDArray[T]) -> npt.NDArray[T]:
    """Write `values` into an array from index `start`, or into a longer copy if needed; return the array written."""
    stop = start + len(values)
    if stop > len(array):
        longer = np.empty(stop + stop // 4 + _SPARE_ROWS, dtype=array.dtype)
        longer[:start] = array[:start]
        array = longer
    array[start:stop] = values
    return array


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
