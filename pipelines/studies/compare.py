"""Compare arms on the same seeds: one row a run, and its values paired by seed; intervals are in `intervals`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
import polars as pl

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
