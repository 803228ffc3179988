"""Compare a lake's statistics with published numbers, one by one: `match`, `off`, or `not computable` with a reason.

A published number is compared only if the lake has the rows that it describes. `published` reads these numbers.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final, Literal

import polars as pl

from pipelines.errors import BadUsage, LakeError, SourceError
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Manifest
from pipelines.statistics import STATISTICS
from pipelines.statistics.published import Population, Published, PublishedRow, printed
from pipelines.statistics.statistic import Answer

__all__ = ["verify"]

Verdict = Literal["match", "off", "not computable"]

WHOLE_WITHIN: Final = 0.01
"""Maximum relative difference in the number of rows at which a table counts as the published one."""
ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One published number and the computed one; `off_by` is computed minus published, in the printed unit."""

    trace: str
    of: str
    what: str
    published: str
    found: str | None = None
    verdict: Verdict = "not computable"
    off_by: float | None = None
    off_by_frac: float | None = None
    why: str | None = None
    source: str


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


def verify(lake: Lake, published: Published, traces: Sequence[str] | None = None) -> pl.DataFrame:
    """Compare every published number of the given traces (None: of all traces in the lake) with the computed one.

    A number matches if the computed value rounds to it. A number read off a figure matches within the stated tolerance;
    a lower bound (`> 3`) matches if the computed value is larger. `off_by_frac` is relative to the published number.
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
    comparison = _Comparison(lake=lake, published=published)
    checked = [each for name in held for each in comparison.checked(name)]
    return pl.DataFrame([asdict(each) for each in checked], schema=CHECKED_SCHEMA)


@dataclass(slots=True, kw_only=True)
class _Comparison:
    """Comparison of one lake with the published numbers; it computes each statistic once."""

    lake: Lake
    published: Published
    answers: dict[tuple[str, str, tuple[str, ...], str | None], Answer] = field(default_factory=dict)

    def checked(self, trace: str) -> list[Checked]:
        of = self.published.of
        manifest = self.lake.manifest(trace)
        rows = [row for row in self.published.rows if of[row.of].trace == trace]
        compared = [
            self._compared(row, column, text, manifest) for row in rows for column, text in row.published.items()
        ]
        return compared + [
            Checked(
                trace=trace,
                of=of[row.of].what,
                what=row.what,
                published=row.published,
                why=row.why,
                source=row.source,
            )
            for row in self.published.uncomputed
            if of[row.of].trace == trace
        ]

    def _compared(self, row: PublishedRow, column: str, text: str, manifest: Manifest) -> Checked:
        population = self.published.of[row.of]
        where = ", ".join(f"{name} {_told(value)}" for name, value in row.where.items())
        blank = Checked(
            trace=population.trace,
            of=population.what,
            what=f"{row.statistic}.{column}" + (f" ({where})" if where else ""),
            published=text,
            source=row.source,
        )
        lacks = self._lacks(population, manifest)
        if lacks is not None:
            return replace(blank, why=lacks)
        answer = self._answer(row.statistic, population, row.by)
        if answer.unanswerable is not None:
            return replace(blank, why=answer.unanswerable.reason)
        found = _cell(answer.rows, row, column)
        if found is None:
            return replace(blank, why="no such row here, or its value is null")
        return _judged(blank, found, row)

    def _answer(self, statistic: str, population: Population, by: tuple[str, ...]) -> Answer:
        asked = (statistic, population.trace, by, population.cluster)
        if asked not in self.answers:
            self.answers[asked] = STATISTICS[statistic].answer(self.lake, population.trace, by, population.cluster)
        return self.answers[asked]

    def _lacks(self, population: Population, manifest: Manifest) -> str | None:
        """Describe which rows of the population the lake lacks; return None if it has all."""
        for name in population.parts:
            lacks = self._lacks(self.published.of[name], manifest)
            if lacks is not None:
                return lacks
        clusters = {account.cluster for account in manifest.accounts}
        others = sorted(clusters - {self.published.of[name].cluster for name in population.parts})
        if population.parts and others:
            return f"not these rows alone: the trace also holds {', '.join(others)}"
        if population.cluster is not None and population.cluster not in clusters:
            return f"no cluster {population.cluster} in this lake (it has {', '.join(sorted(clusters))})"
        for table, rows in population.rows.items():
            lacks = self._lacks_rows(population, manifest, table, rows)
            if lacks is not None:
                return lacks
        return None

    def _lacks_rows(self, population: Population, manifest: Manifest, table: str, rows: int) -> str | None:
        accounts = [
            a for a in manifest.accounts if a.table == table and population.cluster in (None, a.cluster) and a.file
        ]
        here = sum(account.rows_in for account in accounts)
        if not accounts:
            return f"no table {table} in this lake"
        if abs(here - rows) <= WHOLE_WITHIN * rows:
            return None
        reason = f"other rows: {table} has {here:,} here, {rows:,} there"
        if population.period is None:
            return reason
        answer = self._answer("period", population, ())
        if answer.unanswerable is not None:
            return reason
        first, last = (str(answer.rows[name][0])[:10] for name in ("first_submit", "last_submit"))
        return f"{reason}; submitted {first} to {last} here, {' to '.join(population.period)} there"


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


def _judged(blank: Checked, found: str | float, row: PublishedRow) -> Checked:
    number = printed(blank.published)
    if isinstance(found, str) or number is None:
        same = str(found) == blank.published
        return replace(blank, found=str(found), verdict="match" if same else "off", why=None if same else row.note)
    value = found * number.factor
    off_by = value - number.value
    tolerance = number.half_digit if row.about is None else row.about * abs(number.value)
    matches = off_by > 0.0 if number.bound else abs(off_by) <= tolerance + ROUNDING * abs(number.value)
    return replace(
        blank,
        found=f"{value:.10g}",
        verdict="match" if matches else "off",
        off_by=off_by,
        off_by_frac=_relative(off_by, number.value),
        why=None if matches else row.note,
    )


def _relative(off_by: float, published: float) -> float | None:
    return off_by / abs(published) if published else None


def _told(value: object) -> str:
    if isinstance(value, list):
        return " or ".join(_told(each) for each in value)
    return "null" if value == "" else str(value)
