"""Keys of the history: their integer codes (`Keyspace`), and the events under each key in time order (`Events`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

IntArray = npt.NDArray[np.int64]

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "user": ("cluster", "user"),
    "group": ("cluster", "group"),
    "gpus": ("cluster", "gpus"),
    "user_gpus": ("cluster", "user", "gpus"),
    "vc_gpus": ("cluster", "vc", "gpus"),
    "group_role": ("cluster", "group", "role"),
    "all": ("cluster",),
}
"""Parts of each key by its name; `gpus` is the gang's number of GPUs. A key never joins jobs of several clusters."""

LIKE: Final = "like"
LIKE_LEVELS: Final = ("group_role", "user_gpus", "vc_gpus", "gpus", "all")
"""Keys tried in turn for the key `like` (similar jobs); the first whose parts are all known for a job is used."""

KEY_NAMES: Final = (*KEYS, LIKE)
"""All key names, in the column order of matrices of key codes."""

PARTS: Final = ("cluster", "user", "vc", "group", "role", "gpus")

Parts = tuple[str | None, str | None, str | None, str | None, str | None, float | None]
"""The values of one job's key parts, in the order of `PARTS`; None where unknown."""
KeyValue = tuple[Any, ...]  # texts, and the number of GPUs


def _value_of(parts: Sequence[str]) -> Callable[[Parts], KeyValue]:
    places = [PARTS.index(part) for part in parts]
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


_VALUE_OF: Final = {name: _value_of(parts) for name, parts in KEYS.items()}


def key_of(name: str, parts: Parts) -> tuple[str, KeyValue] | None:
    """Return the name and value of one job's key, None if a part is unknown.

    For `like`, it is the first of `LIKE_LEVELS` whose parts are all known.
    """
    for level in LIKE_LEVELS if name == LIKE else (name,):
        value = _VALUE_OF[level](parts)
        if None not in value:
            return level, value
    return None


UNSEEN: Final = -1
"""Code of a key value that no job of the history has."""
NULL: Final = -2
"""Code of a key with an unknown part. It selects no earlier jobs, so jobs with unknown users do not share a history."""


def _part_values(jobs: pl.DataFrame, part: str) -> list[object]:
    if part == "gpus":
        return (jobs["req_gpus"].cast(pl.Float64) * jobs["instances"].cast(pl.Float64)).to_list()
    return jobs[part].to_list()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyspace:
    """Integer codes of all key values of a history.

    `parts` numbers the values of each part. `values` holds for each key the sorted combinations of part numbers that
    occur. The code of a combination is its position plus the key's entry of `offsets`, so codes of different keys
    differ. `size` is the number of codes.
    """

    parts: Mapping[str, Mapping[object, int]]
    values: Mapping[str, IntArray]
    offsets: Mapping[str, int]
    size: int

    @classmethod
    def of(cls, jobs: pl.DataFrame) -> "Keyspace":
        """Assign a code to each key value of `jobs`. The codes do not depend on the order of the rows."""
        parts: dict[str, dict[object, int]] = {}
        for part in PARTS:
            seen = sorted({v for v in _part_values(jobs, part) if v is not None}, key=lambda v: (str(type(v)), v))
            parts[part] = {value: code for code, value in enumerate(seen)}
        numbered = _numbered(jobs, parts)
        values = {name: np.unique(_combined(numbered, parts, key)) for name, key in KEYS.items()}
        values = {name: codes[codes >= 0] for name, codes in values.items()}
        ends = np.cumsum([len(codes) for codes in values.values()])
        offsets = dict(zip(values, (0, *ends[:-1].tolist()), strict=True))
        return cls(parts=parts, values=values, offsets=offsets, size=int(ends[-1]))

    def codes(self, jobs: pl.DataFrame) -> IntArray:
        """Return the key codes of `jobs` (n, len(KEY_NAMES)); `UNSEEN` and `NULL` mark keys without a code."""
        numbered = _numbered(jobs, self.parts)
        matrix = np.empty((jobs.height, len(KEY_NAMES)), dtype=np.int64)
        for column, (name, key) in enumerate(KEYS.items()):
            matrix[:, column] = self._coded(name, _combined(numbered, self.parts, key))
        matrix[:, -1] = _first_known(matrix, LIKE_LEVELS)
        return matrix

    def code_of(self, name: str, value: KeyValue) -> int:
        """Return the code of a value of the key `name` (of `KEYS`), `UNSEEN` if no job of the history has it."""
        combined = 0
        for part, each in zip(KEYS[name], value, strict=True):
            code = self.parts[part].get(each, UNSEEN)
            if code < 0:
                return UNSEEN
            combined = combined * max(len(self.parts[part]), 1) + code
        return int(self._coded(name, np.array([combined], dtype=np.int64))[0])

    def _coded(self, name: str, combined: IntArray) -> IntArray:
        values = self.values[name]
        if not len(values):
            return np.minimum(combined, UNSEEN)
        place = np.minimum(np.searchsorted(values, combined), len(values) - 1)
        found = np.where(values[place] == combined, place + self.offsets[name], UNSEEN)
        return np.where(combined < 0, combined, found)


def _numbered(jobs: pl.DataFrame, parts: Mapping[str, Mapping[object, int]]) -> dict[str, IntArray]:
    numbered = {}
    for part in PARTS:
        codes = {None: NULL, **parts[part]}
        values = _part_values(jobs, part)
        numbered[part] = np.fromiter((codes.get(v, UNSEEN) for v in values), dtype=np.int64, count=len(values))
    return numbered


def _combined(
    numbered: Mapping[str, IntArray], parts: Mapping[str, Mapping[object, int]], key: Sequence[str]
) -> IntArray:
    """Return a number per row for a key's combined parts; `NULL` if a part is null, else `UNSEEN` if one is unseen."""
    combined = np.zeros(len(numbered["cluster"]), dtype=np.int64)
    worst = np.zeros_like(combined)
    for part in key:
        combined = combined * max(len(parts[part]), 1) + numbered[part]
        worst = np.minimum(worst, numbered[part])
    return np.where(worst < 0, worst, combined)


def _first_known(matrix: IntArray, names: Sequence[str]) -> IntArray:
    columns = [matrix[:, KEY_NAMES.index(name)] for name in names]
    like = columns[-1]
    for codes in reversed(columns[:-1]):
        like = np.where(codes != NULL, codes, like)
    return like


BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Events of one kind, sorted by key code, then time, then row; each is listed once under every key of its job.

    `clock` holds the distinct times (microseconds), `order` the sorted numbers `code * (len(clock) + 1) + rank` of the
    time in `clock`, `rows` the row of each event in the history's frame, `begins` the position of the first event of
    each code. `running` holds running sums of integer job weights in this order, which start with 0.
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
        """Sort events with times `ts` (n,), rows `rows` (n,) in ascending order and key codes `codes` (n, keys).

        `size` is the number of codes; each array of `weights` has one integer per row of the history's frame.
        """
        clock = np.unique(ts)
        stride = len(clock) + 1
        numbers = codes * stride + np.searchsorted(clock, ts)[:, None]
        held = codes >= 0
        numbers, repeated = numbers[held], np.broadcast_to(rows[:, None], codes.shape)[held]
        sorting = np.argsort(numbers, kind="stable")  # events of equal code and time stay in the order of their rows
        order, ordered_rows = numbers[sorting], repeated[sorting]
        begins = np.searchsorted(order, np.arange(size + 1, dtype=np.int64) * stride)
        running = {name: np.concatenate(([0], np.cumsum(weight[ordered_rows]))) for name, weight in weights.items()}
        return cls(clock=clock, order=order, rows=ordered_rows, begins=begins.astype(np.int64), running=running)

    def span(self, codes: IntArray, ts: IntArray) -> tuple[IntArray, IntArray]:
        """Return begin and stop positions of the events under `codes` strictly before `ts`; equal for codes below 0."""
        known = np.maximum(codes, 0)
        numbers = known * (len(self.clock) + 1) + np.searchsorted(self.clock, ts)
        begin = np.where(codes >= 0, self.begins[known], 0) if len(self.begins) > 1 else np.zeros_like(codes)
        stop = np.where(codes >= 0, np.searchsorted(self.order, numbers), 0)
        return begin, stop

    def newest(self, begin: IntArray, stop: IntArray, last: int) -> tuple[IntArray, BoolArray]:
        """Return rows of the `last` newest events per span (n, last), newest first, and which entries are filled."""
        places = stop[:, None] - 1 - np.arange(last)
        held = places >= begin[:, None]
        if not len(self.rows):
            return np.zeros_like(places), held
        return self.rows[np.where(held, places, 0)], held


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAsked:
    """One job at its submission, with canonical column names; NaN for an unknown number, None for an unknown text."""

    trace: str
    cluster: str | None
    job_id: str
    role: str
    user: str | None
    vc: str | None
    group: str | None
    workload: str | None
    task_type: str
    gpu_type: str | None
    submit_us: int
    instances: int
    req_cpu_cores: float
    req_mem_gib: float
    req_gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """One ended run, with canonical column names; NaN for a number that is unknown or was not measured."""

    trace: str
    cluster: str
    job_id: str
    role: str
    user: str | None
    vc: str | None
    group: str | None
    submit_us: int
    start_us: int | None
    end_us: int
    run_s: float
    status: str | None
    instances: int
    req_cpu_cores: float
    req_mem_gib: float
    req_gpus: float
    used_cpu_cores: float
    used_gpus: float
    mem_max_gib: float
    gpu_mem_max_gib: float
    measured: bool
    net_read_bytes_per_s: float = nan


def parts_of(job: JobAsked | EndedRun) -> Parts:
    """Return the key parts of a job or run, in the order of `PARTS`."""
    gpus = job.req_gpus * job.instances
    known = gpus == gpus  # only NaN differs from itself
    return job.cluster, job.user, job.vc, job.group, job.role, gpus if known else None


def keys_of(run: EndedRun) -> list[tuple[str, KeyValue]]:
    """Return the names and values of all keys of a run whose parts are all known."""
    parts = parts_of(run)
    keys = (key_of(name, parts) for name in KEYS)
    return [key for key in keys if key is not None]
