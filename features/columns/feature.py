"""The definition of a feature (name, unit, kind, source), and the lookup of many jobs in a history (`Lookback`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.history import History
from features.keys import KEY_NAMES, NULL

__all__ = ["Lookback"]

Kind = Literal["q", "c"]
"""XGBoost's code of a feature type: `q` for a quantity, `c` for a category."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNumber:
    """A number computed from the job's own row: `above` * `times` / `over`.

    The fields name columns; `times` and `over` may be absent. The number is unknown where `over` is not positive.
    """

    above: str
    times: str | None = None
    over: str | None = None

    def expression(self) -> pl.Expr:
        """Return the polars expression of the number, which reads canonical columns."""
        value = pl.col(self.above).cast(pl.Float64)
        if self.times is not None:
            value = value * pl.col(self.times).cast(pl.Float64)
        if self.over is None:
            return value
        below = pl.col(self.over).cast(pl.Float64)
        return pl.when(below > 0).then(value / below)

    def rule(self, names: Sequence[str]) -> tuple[int, int, int]:
        """Return the positions of `above`, `times` and `over` in `names`, -1 if absent, for `kernels.own_numbers`."""
        above, times, over = (-1 if c is None else names.index(c) for c in (self.above, self.times, self.over))
        return above, times, over


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A canonical text column, used unchanged as a category."""

    column: str

    def expression(self) -> pl.Expr:
        """Return the polars expression of the text, which reads a canonical column."""
        return pl.col(self.column).cast(pl.String)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """The statistic `stat` of `column` over the `last` most recently ended (or measured) jobs of the same `key`."""

    events: Literal["ended", "measured"]
    key: str
    column: str
    stat: str
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A measure in `columns.load.MEASURES`, such as running jobs, of the jobs with the same key at submission."""

    key: str
    measure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """A statistic over the newest submissions with the same key, whether those jobs have ended or not."""

    key: str
    stat: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One column of a feature frame.

    `source` defines how the feature is computed: from the job's own row or from the history. `needs` names the
    canonical columns it reads; `from_request` is true if it changes with a counterfactual request.
    """

    name: str
    unit: str
    doc: str
    source: OwnNumber | Text | Recent | Load | Newest
    needs: tuple[str, ...]
    kind: Kind = "q"
    from_request: bool = False

    @property
    def dtype(self) -> pl.DataType:
        """Return the column's type: text for a category, a float for a quantity."""
        return pl.String() if self.kind == "c" else pl.Float64()


KEY_COLUMNS = ("trace", "cluster", "user", "vc", "group", "role", "req_gpus", "instances", "submit_ts")
"""The canonical columns that a history lookup reads."""


IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookback:
    """Jobs to look up in a history: their key codes (n, keys) and their submission times in microseconds (n,)."""

    history: History
    codes: IntArray
    submit_us: IntArray
    spans: dict[tuple[str, tuple[str, ...]], tuple[IntArray, IntArray]] = field(default_factory=dict)
    """Cache of the results of `span`, since several features read the same span."""

    @classmethod
    def of(cls, jobs: pl.DataFrame, history: History) -> "Lookback":
        """Find the code of each key of each job."""
        submit_us = jobs["submit_ts"].dt.cast_time_unit("us").to_physical().to_numpy().astype(np.int64)
        return cls(history=history, codes=history.keyspace.codes(jobs), submit_us=submit_us)

    def span(self, kind: str, keys: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Return, for each job and key, the begin and stop positions of its events in `History.events[kind]`.

        Only events strictly before the submission are inside. Both arrays have shape (n * keys,), with all keys of the
        first job first.
        """
        wanted = (kind, tuple(keys))
        if wanted not in self.spans:
            codes = self.codes[:, [KEY_NAMES.index(key) for key in keys]].ravel()
            ts = np.repeat(self.submit_us, len(keys))
            self.spans[wanted] = self.history.events[kind].span(codes, ts)
        return self.spans[wanted]

    def unknown(self, key: str) -> BoolArray:
        """Mark the jobs whose `key` is null (n,)."""
        null: BoolArray = self.codes[:, KEY_NAMES.index(key)] == NULL
        return null
