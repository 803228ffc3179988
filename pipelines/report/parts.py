"""Parts of a report (sections with figures, tables, notes), and queries of a statistic for several traces at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.render import printable
from pipelines.statistics import STATISTICS, cluster_note

if TYPE_CHECKING:
    import altair as alt

NAMED: Final = ("user", "group", "vc")
"""Columns that may name people, anonymised or not; their values are shortened."""
LEAST_CHARACTERS: Final = 8
MOST_CHARACTERS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart, and its rows for download."""

    name: str
    chart: "alt.TopLevelMixin"
    rows: pl.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; with `upright` each row is shown as a column. `said` is a text that explains the columns."""

    name: str
    title: str
    rows: pl.DataFrame
    said: str = ""
    upright: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A sentence below figures and tables, such as the reason for a missing chart."""

    text: str


Part = Figure | Table | Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page with a heading and an introduction, whose lines are paragraphs."""

    name: str
    title: str
    intro: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The rows of a statistic for all traces, with a column `trace`, and the reasons for traces without rows."""

    rows: pl.DataFrame
    reasons: tuple[str, ...]

    def of(self, trace: str) -> pl.DataFrame:
        """Return the rows of one trace."""
        return self.rows.filter(pl.col("trace") == trace) if self.rows.width else self.rows

    @property
    def traces(self) -> list[str]:
        """Return the names of the traces with rows."""
        return self.rows["trace"].unique(maintain_order=True).to_list() if self.rows.width else []

    def where(self, *conditions: pl.Expr) -> "Asked":
        """Return only the rows that meet the conditions."""
        return replace(self, rows=self.rows.filter(*conditions)) if self.rows.width else self

    def figure(self, name: str, draw: "Callable[[pl.DataFrame], alt.TopLevelMixin]") -> list[Part]:
        """Return a figure of all traces, none without rows."""
        return [Figure(name=name, chart=draw(self.rows), rows=self.rows)] if self.rows.width else []

    def figures(self, name: str, draw: "Callable[[pl.DataFrame, str], alt.TopLevelMixin]") -> list[Part]:
        """Return a figure for each trace with rows, its name after `{trace}` in `name`; `draw` gets rows and trace."""
        of = {trace: self.of(trace) for trace in self.traces}
        return [Figure(name=name.format(trace=trace), chart=draw(rows, trace), rows=rows) for trace, rows in of.items()]

    def table(self, name: str, title: str, said: str, columns: Sequence[str] = ()) -> list[Part]:
        """Return a table of all traces with these columns, or all; none without rows."""
        rows = self.rows.select(columns) if columns and self.rows.width else self.rows
        return [Table(name=name, title=title, rows=rows, said=said)] if self.rows.width else []

    def first(self, column: str, keys: tuple[str, ...], most: int) -> pl.DataFrame:
        """Return of each trace the `most` rows with the largest values of a column; ties are in the order of `keys`."""
        order = [True, *[False] * len(keys)]
        rows = [self.of(trace).sort(column, *keys, descending=order).head(most) for trace in self.traces]
        return pl.concat(rows) if rows else self.rows

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return the reasons for traces without rows as notes."""
        return tuple(Note(text=reason) for reason in self.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """The traces of a report, and queries of statistics for all of them."""

    lake: Lake
    names: tuple[str, ...]
    cluster: str | None = None
    """The cluster to report. None: all clusters or, if clusters are alternatives, the representative one."""

    def ask(self, statistic: str, *by: str) -> Asked:
        """Compute a statistic for every trace, split by the dimensions `by`."""
        told, reasons = [], []
        for name in self.names:
            answer = STATISTICS[statistic].answer(self.lake, name, by, self.cluster)
            if answer.reason is None:
                told.append(answer.rows.select(pl.lit(name).alias("trace"), pl.all()))
            else:
                reasons.append(f"{name}: {STATISTICS[statistic].title.lower()} not available; {answer.reason}.")
        rows = pl.concat(told, how="diagonal_relaxed") if told else pl.DataFrame()
        return Asked(rows=rows, reasons=tuple(reasons))

    def cluster_of(self, trace: str) -> str | None:
        """Return the cluster of a trace that is reported; None: all clusters."""
        return self.cluster or self.lake.manifest(trace).representative

    @property
    def alternatives(self) -> tuple[Note, ...]:
        """Return notes that name the reported cluster of traces whose clusters are alternatives."""
        said = [] if self.cluster else [cluster_note(self.lake, name) for name in self.names]
        return tuple(Note(text=f"{text}.") for text in said if text)

    def colour(self, trace: str) -> int:
        """Return the index of a trace's colour: its position among the traces."""
        return self.names.index(trace)


def shortened(names: Sequence[str | None]) -> list[str | None]:
    """Shorten names to the fewest characters (at least 8) that keep them distinct; escape unprintable characters.

    >>> shortened(["0123456789abcdef", "0123456789abXYZ", "u7", None])
    ['0123456789abc…', '0123456789abX…', 'u7', None]
    """
    printed = [None if name is None else printable(name) for name in names]
    different = len({name for name in printed if name is not None})
    for length in range(LEAST_CHARACTERS, MOST_CHARACTERS + 1):
        cut = [name if name is None or len(name) <= length + 1 else f"{name[:length]}…" for name in printed]
        if len({name for name in cut if name is not None}) == different:
            return cut
    seen: dict[str, int] = {name: i for i, name in enumerate(dict.fromkeys(n for n in printed if n is not None), 1)}
    return [None if name is None else f"{name[:MOST_CHARACTERS]}…({seen[name]})" for name in printed]


def known_sum(column: str) -> pl.Expr:
    """Return the expression of a column's sum; it is null, not 0, if all values are null."""
    return pl.when(pl.col(column).count() > 0).then(pl.col(column).sum()).alias(column)


def with_short_names(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the names of users, groups and virtual clusters shortened."""
    present = [name for name in NAMED if name in rows.columns]
    return rows.with_columns(pl.Series(name, shortened(rows[name].to_list()), dtype=pl.String) for name in present)
