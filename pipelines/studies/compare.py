"""Compare arms on the same seeds: one row a run, its values paired by seed, and 95 % confidence intervals."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import polars as pl
from scipy.stats import beta, t

from pipelines.engine.engine import Engine, Local
from pipelines.studies.study import SEED, Row
from scheduler_core.types import FloatArray

__all__ = ["ARM", "Values", "compare", "paired"]

Arm = TypeVar("Arm")
Run = Callable[[Arm, int], Row | Sequence[Row]]
Values = Mapping[str, Mapping[str, FloatArray]]
"""By arm and column, the values of its runs in order of seeds."""

ARM: Final = "arm"


def compare(
    arms: Mapping[str, Arm],
    seeds: Iterable[int],
    run: Run[Arm],
    *,
    engine: Engine | None = None,
    talk: Callable[[str], None] = lambda _: None,
) -> pl.DataFrame:
    """Run every arm on every seed; return the columns `arm` and `seed`, and those of the rows that `run` returns.

    All arms of a seed run in the same process, so what `run` draws from its seed may be cached. The first seed runs
    here, so that other processes on this machine find its compiled code in the cache. With an engine of processes,
    `arms` and `run` are pickled. `run` returns one row, or several if one run measures several things.

    >>> compare({"once": 1, "twice": 2}, [1, 2], lambda times, seed: {"wait_s": float(times * seed)}).rows()
    [('once', 1, 1.0), ('twice', 1, 2.0), ('once', 2, 2.0), ('twice', 2, 4.0)]
    """
    first, *others = seeds
    shared, rows = (dict(arms), run), []
    rows += _of_seed(shared, first)
    for seed, done in zip(others, (engine or Local()).run(_of_seed, shared, others), strict=True):
        rows += done
        talk(f"seed {seed}: {len(arms)} arms")
    return pl.DataFrame(rows, infer_schema_length=None)


def _of_seed(shared: tuple[Mapping[str, Arm], Run[Arm]], seed: int) -> list[Row]:
    arms, run = shared
    rows: list[Row] = []
    for name, arm in arms.items():
        done = run(arm, seed)
        rows += [{ARM: name, SEED: seed, **row} for row in ([done] if isinstance(done, dict) else done)]
    return rows


def paired(runs: pl.DataFrame, by: Sequence[str] = ()) -> Iterator[tuple[Row, Values]]:
    """Yield each group of runs: the columns `by` that it shares, and its numeric columns by arm, in order of seeds.

    Nulls are NaN; a column without any value in an arm is left out there.

    >>> runs = compare({"a": 1.0, "b": 3.0}, [2, 1], lambda arm, seed: {"load": "high", "wait_s": arm * seed})
    >>> [(of, arms["b"]["wait_s"].tolist()) for of, arms in paired(runs, ["load"])]
    [({'load': 'high'}, [3.0, 6.0])]
    """
    columns = [name for name, kind in runs.schema.items() if kind.is_numeric() and name not in (*by, SEED)]
    known = [pl.col(name).cast(pl.Float64).fill_null(float("nan")) for name in columns]
    for key, members in runs.group_by(by, maintain_order=True) if by else [((), runs)]:
        arms: dict[str, dict[str, FloatArray]] = {}
        for (arm,), own in members.group_by(ARM, maintain_order=True):
            values = own.sort(SEED, maintain_order=True).select(known).to_numpy()
            kept = ~np.isnan(values).all(axis=0)
            arms[str(arm)] = {name: values[:, at] for at, name in enumerate(columns) if kept[at]}
        yield dict(zip(by, key, strict=True)), arms


LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with the ends of its 95 % interval; NaN where the data do not determine them."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float, *, less: float = 0.0) -> "Interval":
        """Return the interval with `less` subtracted from the estimate and both ends, then multiplied by `factor`."""
        return Interval(
            value=(self.value - less) * factor, low=(self.low - less) * factor, high=(self.high - less) * factor
        )

    def columns(self, name: str) -> dict[str, float]:
        """Return the estimate as the column `name`, and the ends as `name_lo` and `name_hi`."""
        return {name: self.value, f"{name}_lo": self.low, f"{name}_hi": self.high}


NOTHING: Final = Interval(value=math.nan, low=math.nan, high=math.nan)


def mean(values: Sequence[float] | FloatArray) -> Interval:
    """Return the mean of one value per seed, with Student's interval; the interval of a single seed is NaN.

    >>> mean([1.0, 2.0, 3.0])
    Interval(value=2.0, low=-0.484..., high=4.484...)
    """
    found = np.asarray(values, dtype=np.float64)
    if not len(found) or np.isnan(found).any():
        return NOTHING
    return _around(float(found.mean()), found)


def ratio(over: Sequence[float] | FloatArray, under: Sequence[float] | FloatArray) -> Interval:
    """Return the mean of `over` divided by the mean of `under`, with its interval by the delta method.

    Both have one value per seed, in the same order. The interval comes from the spread of `over - ratio * under`, so
    an effect of a seed on both cancels out.

    >>> ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    Interval(value=2.0, low=2.0, high=2.0)
    """
    tops, bottoms = np.asarray(over, dtype=np.float64), np.asarray(under, dtype=np.float64)
    if not len(tops) or np.isnan(tops).any() or np.isnan(bottoms).any() or bottoms.mean() == 0.0:
        return NOTHING
    value = float(tops.mean() / bottoms.mean())
    return _around(value, (tops - value * bottoms) / bottoms.mean())


def ratio_difference(over: FloatArray, under: FloatArray, less_over: FloatArray, less_under: FloatArray) -> Interval:
    """Return `over` / `under` minus `less_over` / `less_under`, as ratios of means, with a delta-method interval.

    All four have one value per seed, in the same order.

    >>> ratio_difference(*(np.array(each) for each in ([3.0, 6.0], [1.0, 2.0], [2.0, 4.0], [2.0, 4.0])))
    Interval(value=2.0, low=2.0, high=2.0)
    """
    first, second = ratio(over, under), ratio(less_over, less_under)
    if math.isnan(first.value) or math.isnan(second.value):
        return NOTHING
    spread = (over - first.value * under) / under.mean()
    return _around(first.value - second.value, spread - (less_over - second.value * less_under) / less_under.mean())


def clopper_pearson(hits: int, of: int) -> Interval:
    """Return the share `hits` / `of` of independent trials, with its exact interval.

    References
    ----------
    Clopper, Pearson: The use of confidence or fiducial limits illustrated in the case of the binomial (1934).

    >>> round(clopper_pearson(0, 583).high, 4)
    0.0063
    """
    if of == 0:
        return NOTHING
    tail = (1.0 - LEVEL) / 2.0
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, of - hits + 1))
    high = 1.0 if hits == of else float(beta.ppf(1.0 - tail, hits + 1, of - hits))
    return Interval(value=hits / of, low=low, high=high)


def _around(value: float, spread: FloatArray) -> Interval:
    if len(spread) < 2:
        return Interval(value=value, low=math.nan, high=math.nan)
    half = float(t.ppf(0.5 + LEVEL / 2.0, len(spread) - 1) * spread.std(ddof=1) / math.sqrt(len(spread)))
    return Interval(value=value, low=value - half, high=value + half)
