"""What a study past the paper comes to: tables of rows, the frames behind them, charts, and what has to be said.

What is studied is in `departures`, `shrinking`, `online` and `large_jobs`. Called by them and by their command.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TypeVar

import altair as alt
import polars as pl

from pipelines.report.charts.saving import saved
from pipelines.studies.intervals import mean

Row = dict[str, object]
Task = TypeVar("Task")
Done = TypeVar("Done")

SEED: Final = "seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """One study: `tables` by their titles, `frames` and `charts` by the names of their files."""

    study: str
    trace: str
    tables: Mapping[str, list[Row]]
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    charts: Mapping[str, Callable[[], alt.TopLevelMixin]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        """Return the rows of all tables, each saying what it is of."""
        said = {"study": self.study, "trace": self.trace}
        return [{**said, "table": title, **row} for title, rows in self.tables.items() for row in rows]


def write(findings: Findings, folder: Path) -> list[Path]:
    """Write `rows.json` with the notes, every frame as Parquet, and each chart as HTML, SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    book = folder / "rows.json"
    text = json.dumps({"notes": list(findings.notes), "rows": findings.rows()}, indent=1, ensure_ascii=False)
    book.write_text(text + "\n", encoding="utf-8", newline="\n")
    written = [book]
    for name, frame in findings.frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
        written.append(folder / f"{name}.parquet")
    for name, draw in findings.charts.items():
        written += saved(draw(), folder, name)
    return written


def summed_up(runs: pl.DataFrame, keys: Sequence[str], figures: Iterable[str]) -> list[Row]:
    """Return a row per group of runs: each figure's mean over its runs, with `_lo` and `_hi` of its 95 % interval."""
    rows: list[Row] = []
    wanted = list(figures)
    for key, members in runs.group_by(keys, maintain_order=True):
        row: Row = {**dict(zip(keys, key, strict=True)), "seeds": members[SEED].n_unique()}
        for figure in wanted:
            found = mean(members[figure].cast(pl.Float64).fill_null(float("nan")).to_numpy())
            row |= {figure: found.value, f"{figure}_lo": found.low, f"{figure}_hi": found.high}
        rows.append(row)
    return rows


def differences(runs: pl.DataFrame, keys: Sequence[str], arm: str, base: str, figures: Sequence[str]) -> list[Row]:
    """Return a row per group and other arm: each figure less that of `base` under the same seed, with its interval."""
    theirs = runs.filter(pl.col(arm) == base).select(*keys, SEED, *(pl.col(name).alias(f"_{name}") for name in figures))
    paired = runs.filter(pl.col(arm) != base).join(theirs, on=[*keys, SEED], how="inner", maintain_order="left")
    less = paired.with_columns(pl.col(name) - pl.col(f"_{name}") for name in figures)
    return [{**row, "less": base} for row in summed_up(less, [*keys, arm], figures)]


def shown(rows: Sequence[Row]) -> list[Row]:
    """Return rows for eyes: a figure and the ends of its interval in one cell.

    >>> shown([{"wait_s": 12.34, "wait_s_lo": 10.0, "wait_s_hi": 14.68}])
    [{'wait_s': '12.3 [10, 14.7]'}]
    """
    found: list[Row] = []
    for row in rows:
        ends = {name: (row[f"{name}_lo"], row[f"{name}_hi"]) for name in row if f"{name}_lo" in row}
        hidden = {f"{name}{end}" for name in ends for end in ("_lo", "_hi")}
        found.append({name: _in_one(row[name], ends.get(name)) for name in row if name not in hidden})
    return found


def _in_one(value: object, ends: tuple[object, object] | None) -> object:
    if ends is None or not isinstance(value, float):
        return value
    told = [f"{end:.3g}" for end in ends if isinstance(end, float) and not math.isnan(end)]
    return f"{value:.3g} [{', '.join(told)}]" if told else f"{value:.3g}"


def dealt(run: Callable[[Task], Done], tasks: Sequence[Task], processes: int) -> Iterator[Done]:
    """Yield what each task comes to, in their order; the first is done here, and what it compiles is read back."""
    yield run(tasks[0])
    rest = tasks[1:]
    if processes == 1 or not rest:
        yield from map(run, rest)
        return
    with ProcessPoolExecutor(max_workers=min(processes, len(rest)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, rest)
