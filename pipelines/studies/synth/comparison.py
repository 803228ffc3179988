"""A statistic twice, as published and as measured: pairs, tables of pairs, and how shares and quantiles are paired.

Which statistics there are is in `job_comparisons` and `use_comparisons`; text is rendered in `report`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from pipelines.synth.random_numbers import Curve, Floats

QUANTILES: Final = (0.05, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One statistic twice: as published (or, where nothing is, as chosen) and as measured, number by number."""

    name: str
    published: tuple[float, ...]
    synthetic: tuple[float, ...]
    origin: str = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One table of pairs: its title, what its numbers are, and what to know about them."""

    title: str
    columns: tuple[str, ...]
    pairs: tuple[Pair, ...]
    note: str = ""


def numbers(frame: pl.DataFrame, column: str) -> Floats:
    """Return a column's numbers without nulls."""
    return frame[column].drop_nulls().to_numpy().astype(np.float64)


def quantiles(values: Floats, at: Sequence[float]) -> tuple[float, ...]:
    """Return quantiles, NaN where there is nothing."""
    return tuple(np.quantile(values, at).tolist()) if len(values) else (float("nan"),) * len(at)


def labels(at: Iterable[float]) -> tuple[str, ...]:
    """Name probabilities as percentiles."""
    return tuple(f"p{100 * p:g}" for p in at)


def published_values(curve: Curve) -> tuple[float, ...]:
    """Return the quantiles a curve was made from."""
    return tuple(0.0 if log < np.log(1.1e-3) else float(np.exp(log)) for log in curve.logs)


def shares_of(title: str, published: Mapping[str, float], column: pl.Series, note: str = "") -> Comparison:
    """Compare shares of a column's values; published counts are turned into shares of their sum or of one."""
    total = max(1.0, sum(published.values()))
    found = column.cast(pl.String).fill_null("")
    pairs = [
        Pair(name=value or "none", published=(count / total,), synthetic=(float(np.mean((found == value).to_numpy())),))
        for value, count in published.items()
    ]
    return Comparison(title=title, columns=("share",), pairs=tuple(pairs), note=note)
