"""Compare a lake's statistics with published numbers, one by one: `match`, `off`, or `not computable` with a reason.

A published number is compared only if the lake has the rows that it describes. `published` reads these numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final

import polars as pl

from pipelines.errors import BadUsage, LakeError, SourceError
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Manifest
from pipelines.statistics import STATISTICS
from pipelines.statistics.published import Population, Published, PublishedRow, printed
from pipelines.statistics.statistic import Answer

__all__ = ["verify"]

Checked = dict[str, object]
"""One published number and the computed one, with the columns of `CHECKED_SCHEMA`; a missing one is null."""
Ask = Callable[[str, tuple[str, ...], str | None], Answer]
"""Function that computes a statistic of the trace: `(statistic, by, cluster)`."""

WHOLE_WITHIN: Final = 0.01
"""Maximum relative difference in the number of rows at which a table counts as the published one."""
ROUNDING: Final = 1e-9
NOT_COMPUTABLE: Final = "not computable"

CHECKED_SCHEMA: Final = {
    "trace": pl.String,
    "of": pl.String,
    "what": pl.String,
    "published": pl.String,
    "found": pl.String,
    "verdict": pl.String,
    "off_by": pl.Float64,
    "off_by_frac": pl.Float64,
    "why": pl.String,
    "source": pl.String,
}
"""`off_by` is computed minus published, in the printed unit; `off_by_frac` is relative to the published number."""


def verify(lake: Lake, published: Published, traces: Sequence[str] | None = None) -> pl.DataFrame:
    """Compare every published number of the given traces (None: of all traces in the lake) with the computed one.

    A number matches if the computed value rounds to it. A number read off a figure matches within the stated tolerance;
    a lower bound (`> 3`) matches if the computed value is larger.
    """
    for name in traces or ():
        lake.manifest(name)
        if name not in published.traces:
            raise BadUsage(f"nothing is published of {name!r}; numbers are there of {', '.join(published.traces)}")
    held = [name for name in (traces or lake.traces()) if name in published.traces]
    if not held:
        raise LakeError(
            f"{lake.where} holds {', '.join(lake.traces()) or 'no trace'}; numbers are published of "
            f"{', '.join(published.traces)}: ingest one under its own name"
        )
    return pl.DataFrame([each for name in held for each in _checked(lake, published, name)], schema=CHECKED_SCHEMA)


def _checked(lake: Lake, published: Published, trace: str) -> Iterator[Checked]:
    """Yield the published numbers of one trace; each statistic is computed once."""

    @cache
    def ask(statistic: str, by: tuple[str, ...], cluster: str | None) -> Answer:
        return STATISTICS[statistic].answer(lake, trace, by, cluster)

    for row in published.rows:
        population = published.of[row.of]
        if population.trace != trace:
            continue
        where = ", ".join(f"{name} {_told(value)}" for name, value in row.where.items())
        lacks = _lacks(published, population, lake.manifest(trace), ask)
        for column, text in row.published.items():
            what = f"{row.statistic}.{column}" + (f" ({where})" if where else "")
            number: Checked = {
                "trace": trace,
                "of": population.what,
                "what": what,
                "published": text,
                "source": row.source,
            }
            yield number | (
                {"verdict": NOT_COMPUTABLE, "why": lacks} if lacks else _compared(row, column, ask, population)
            )
    for each in published.uncomputed:
        if published.of[each.of].trace == trace:
            lost: Checked = {"trace": trace, "of": published.of[each.of].what, "verdict": NOT_COMPUTABLE}
            yield lost | each.model_dump(include={"what", "published", "why", "source"})


def _compared(row: PublishedRow, column: str, ask: Ask, population: Population) -> Checked:
    answer = ask(row.statistic, row.by, population.cluster)
    if answer.reason is not None:
        return {"verdict": NOT_COMPUTABLE, "why": answer.reason}
    found = _cell(answer.rows, row, column)
    if found is None:
        return {"verdict": NOT_COMPUTABLE, "why": "no such row here, or its value is null"}
    return _judged(row.published[column], found, row)


def _lacks(published: Published, population: Population, manifest: Manifest, ask: Ask) -> str | None:
    """Describe which rows of the population the lake lacks; return None if it has all."""
    for name in population.parts:
        lacks = _lacks(published, published.of[name], manifest, ask)
        if lacks is not None:
            return lacks
    clusters = {account.cluster for account in manifest.accounts}
    others = sorted(clusters - {published.of[name].cluster for name in population.parts})
    if population.parts and others:
        return f"not these rows alone: the trace also holds {', '.join(others)}"
    if population.cluster is not None and population.cluster not in clusters:
        return f"no cluster {population.cluster} in this lake (it has {', '.join(sorted(clusters))})"
    for table, rows in population.rows.items():
        files = [
            a for a in manifest.accounts if a.table == table and population.cluster in (None, a.cluster) and a.file
        ]
        if not files:
            return f"no table {table} in this lake"
        here = sum(account.rows_in for account in files)
        if abs(here - rows) > WHOLE_WITHIN * rows:
            return f"other rows: {table} has {here:,} here, {rows:,} there{_periods(population, ask)}"
    return None


def _periods(population: Population, ask: Ask) -> str:
    """Return the periods of submission here and there as text; empty if one of them is unknown."""
    if population.period is None:
        return ""
    answer = ask("period", (), population.cluster)
    if answer.reason is not None:
        return ""
    first, last = (str(answer.rows[name][0])[:10] for name in ("first_submit", "last_submit"))
    return f"; submitted {first} to {last} here, {' to '.join(population.period)} there"


def _cell(rows: pl.DataFrame, row: PublishedRow, column: str) -> str | float | None:
    """Return the computed value for a published number, or the sum of several rows; None if there is none."""
    for name in (*row.where, column):
        if name not in rows.columns:
            raise SourceError(f"{row.statistic} has no column {name!r}; expected one of {', '.join(rows.columns)}")
    conditions = [_is(name, value) for name, value in row.where.items()]
    values = (rows.filter(*conditions) if conditions else rows)[column].drop_nulls().to_list()
    if len(values) > 1 and not row.add:
        raise SourceError(
            f"{row.statistic}.{column}: {len(values)} rows match, expected one; set `add` or narrow `where`"
        )
    if not values:
        return None
    return str(values[0]) if isinstance(values[0], str) else float(sum(values))


def _is(name: str, value: str | int | float | list[str | int | float]) -> pl.Expr:
    """Return the condition that a column equals the value or one of several values; an empty text means null."""
    if isinstance(value, list):
        return pl.any_horizontal(_is(name, each) for each in value)
    return pl.col(name).is_null() if value == "" else pl.col(name) == value


def _judged(text: str, found: str | float, row: PublishedRow) -> Checked:
    number = printed(text)
    if isinstance(found, str) or number is None:
        same = str(found) == text
        return {"found": str(found), "verdict": "match" if same else "off", "why": None if same else row.note}
    value = found * number.factor
    off_by = value - number.value
    tolerance = number.half_digit if row.about is None else row.about * abs(number.value)
    matches = off_by > 0.0 if number.bound else abs(off_by) <= tolerance + ROUNDING * abs(number.value)
    return {
        "found": f"{value:.10g}",
        "verdict": "match" if matches else "off",
        "off_by": off_by,
        "off_by_frac": off_by / abs(number.value) if number.value else None,
        "why": None if matches else row.note,
    }


def _told(value: object) -> str:
    if isinstance(value, list):
        return " or ".join(_told(each) for each in value)
    return "null" if value == "" else str(value)
