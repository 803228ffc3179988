"""What a feature is: its name, unit and kind, and how it is computed.

Types only; the features themselves are in the sibling files, the registry of all in `features.sets`.
Called by every file of `columns/`, by `features.build` and by `features.contract`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import polars as pl

Kind = Literal["q", "c"]
"""XGBoost's feature types: quantity or category."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """A statistic over the `last` newest ended (or measured) jobs of a key."""

    events: Literal["ended", "measured"]
    key: str
    column: str
    stat: str
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A measure of what a key had submitted, running and waiting at the job's submission."""

    key: str
    measure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """A statistic over the newest submissions of a key, ended or not."""

    key: str
    stat: str


Look = Recent | Load | Newest
"""Whatever is computed from the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One column of a feature frame.

    `source` is a function returning an expression over the job's own row, or a look into the history.
    `needs` names the canonical columns read; `from_request` marks what changes with a counterfactual request.
    """

    name: str
    unit: str
    doc: str
    source: Callable[[], pl.Expr] | Look
    needs: tuple[str, ...]
    kind: Kind = "q"
    from_request: bool = False

    @property
    def dtype(self) -> pl.DataType:
        """Return the column's type: text for a category, a float for a quantity."""
        return pl.String() if self.kind == "c" else pl.Float64()


KEY_COLUMNS = ("trace", "cluster", "user", "vc", "group", "role", "req_gpus", "instances", "submit_ts")
"""The canonical columns that a look into the history reads."""
