"""The types of a source's declaration: files, raw columns, rules that quarantine rows, canonical SELECTs.

`pipelines.lake.staging` executes declarations. No file is read here, and no vendor's names appear here.
Called by the sources in this folder, `pipelines.lake.generic` and the lake's loading modules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from pipelines.lake.manifest import Input

__all__ = ["Source"]

NULL_TEXTS: Final = ("", "NA", "None", "NULL", "null", "nan")
"""Texts that mean a missing number or time in at least one published trace."""

COMPUTED: Final = "NULL"
"""The text of a column that is in no file; its value is computed from the columns before it."""

MOST_ASKED: Final = 1e8
"""Upper bound on cores, GPUs or GiB in one request or machine; larger numbers are unit errors."""
MOST_INSTANCES: Final = 1e6
MOST_SPAN_S: Final = 1e10
"""Upper bound on time spans: three centuries in seconds."""

LOCAL_TIME: Final = "%Y-%m-%d %H:%M:%S"

CLUSTER: Final = "{cluster}"
"""Placeholder of the cluster's name in a file stem, for sources with several clusters in one folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One raw column: the SQL of its text, and the SQL that converts the text to a value.

    `text` may use `f` (the fields of a line) or `line`; None means the field at the column's position.
    `value` may use `{text}` and earlier columns; a text that gives null and is not in `missing` is unparsable.
    `read_as` is a type in which DuckDB's reader may read the text directly; `value` must accept it with equal results.
    `finite` is a cheaper SQL than `value`, equal to it for every finite number read that way.
    `fault` names the column in the rule `unparsable_<fault>`; by default the column's name.
    """

    name: str
    value: str
    text: str | None = None
    missing: tuple[str, ...] = NULL_TEXTS
    read_as: str = "VARCHAR"
    finite: str | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A named reason to quarantine a row: `bad` is SQL over the columns; null counts as good.

    The SQL of a link rule may also use tables declared earlier; it names its own row `r`.
    """

    name: str
    bad: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTable:
    """One published table.

    Attributes
    ----------
    stems
        File names without suffix; may contain `CLUSTER`.
    feeds
        The canonical table that its rows become part of.
    suffixes, archives
        Suffixes in the order in which they are tried; tar archives that may contain the file.
    json_array
        The file is one JSON array, not lines.
    header
        Column names in the first line; `*` stands for any further names. None: no header.
    fields
        Allowed numbers of fields in a row. Empty: the number of header names or columns.
    key
        Of rows with equal key the first stays.
    links
        Rules about other tables.
    passing
        Columns used only by the key and the row's own rules; checked but not kept.
    nulls
        Texts that mean a missing number in every number column of the table.
    records
        Converts a file that is not plain lines to a file of records (`pipelines.lake.raw_rows`), whose columns are the
        texts of `columns`; returns the number of records.
    counted_in
        Whether the place of a record is a `line` or a `row`.
    logs
        Suffixes of write-ahead logs next to the file, which hold rows too.
    """

    name: str
    stems: tuple[str, ...]
    columns: tuple[Column, ...]
    feeds: str
    suffixes: tuple[str, ...] = (".csv", ".csv.gz")
    archives: tuple[str, ...] = ()
    json_array: bool = False
    header: tuple[str, ...] | None = None
    fields: tuple[int, ...] = ()
    required: bool = False
    key: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    links: tuple[Rule, ...] = ()
    passing: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ("",)
    records: Callable[[Path, Path], int] | None = None
    counted_in: str = "line"
    logs: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[str, ...]:
        """Return the names of the columns that are kept for good rows."""
        return tuple(c.name for c in self.columns if c.name not in self.passing)

    def of(self, cluster: str) -> Self:
        """Return the table with the cluster's name in its stems."""
        return replace(self, stems=tuple(stem.replace(CLUSTER, cluster) for stem in self.stems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A warning for the manifest, given if the SQL `holds` is true of the good rows."""

    text: str
    holds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcut:
    """A faster SELECT of a canonical table, used if only rows of `table` feed it and none must be aggregated.

    It gives the same rows, to the bit, if the table has at most one row per `machine` and `ts`.
    """

    table: str
    select: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One published trace: `clusters` finds the folder of each cluster, `outputs` are the canonical SELECTs.

    Every SELECT names the canonical columns it fills, without `trace` and `cluster`; the others become null.
    `split_by` maps an output to the column by which a large output is written in parts; all its tables have the column.
    `shortcuts` are faster SELECTs of outputs, used if the rows allow it.
    `representative` is set if the clusters are alternatives, never added up: the one that represents the trace.
    `declared` are inputs besides the files (a mapping); `cures` replace the general cures by rule name.
    """

    name: str
    clusters: Callable[[Path], dict[str, Path]]
    tables: tuple[RawTable, ...]
    outputs: Mapping[str, str]
    macros: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = field(default=())
    split_by: Mapping[str, str] = field(default_factory=dict)
    shortcuts: Mapping[str, Shortcut] = field(default_factory=dict)
    representative: str | None = None
    declared: tuple[Input, ...] = ()
    cures: Mapping[str, str] = field(default_factory=dict)


def text(name: str, *, of: str | None = None) -> Column:
    """Declare a text column; only the empty text is missing."""
    return Column(name=name, text=of, value="{text}", missing=("",))


def number(name: str, *, of: str | None = None) -> Column:
    """Declare a finite number."""
    value = "CASE WHEN isfinite(try_cast({text} AS DOUBLE)) THEN {text}::DOUBLE END"
    return Column(name=name, text=of, value=value, read_as="DOUBLE", finite="{text}")


def count(name: str, *, of: str | None = None) -> Column:
    """Declare a 32-bit whole number, in any spelling (`10.0`)."""
    value = "try_cast({text} AS DOUBLE)"
    whole = f"CASE WHEN abs({value}) < 2147483648 AND {value} = floor({value}) THEN {value}::INTEGER END"
    return Column(name=name, text=of, value=whole, read_as="DOUBLE")


def seconds(name: str) -> Column:
    """Declare a Unix time in seconds, within the range of a timestamp."""
    value = "try_cast({text} AS DOUBLE)"
    return Column(name=name, value=f"CASE WHEN abs({value}) < 1e10 THEN {value} END", read_as="DOUBLE")


def local_time(name: str, zone: str, *, of: str | None = None) -> Column:
    """Declare a local time without offset in `zone`; no hour may repeat during the trace."""
    return Column(name=name, text=of, value=f"timezone('{zone}', try_strptime({{text}}, '{LOCAL_TIME}'))")


def missing(*names: str, rule: str = "missing_key") -> Rule:
    """Quarantine rows that lack one of the named columns."""
    return Rule(name=rule, bad=" OR ".join(f'"{n}" IS NULL' for n in names))


def negative(*names: str, rule: str = "negative") -> Rule:
    """Quarantine rows in which one of the named columns is below zero."""
    return Rule(name=rule, bad=" OR ".join(f'"{n}" < 0' for n in names))


def beyond(names: Sequence[str], most: float, rule: str) -> Rule:
    """Quarantine rows in which one of the named columns exceeds `most`; the bounds also keep sums from overflowing."""
    return Rule(name=rule, bad=f"greatest({', '.join(names)}) > {most:g}")


def unlisted(column: str, known: Mapping[str, object], rule: str = "unknown_status") -> Rule:
    """Quarantine rows whose value is not in `known`; other rules handle null."""
    listed = ", ".join(f"'{k}'" for k in known)
    return Rule(name=rule, bad=f'"{column}" NOT IN ({listed})')


def translated(expression: str, meanings: Mapping[str, object], otherwise: str = "NULL") -> str:
    """Return the SQL that maps a vendor's values to the canonical ones."""
    cases = " ".join(f"WHEN '{vendor}' THEN '{ours}'" for vendor, ours in meanings.items())
    return f"CASE {expression} {cases} ELSE {otherwise} END"


def one_cluster(name: str) -> Callable[[Path], dict[str, Path]]:
    """Return the `clusters` function of a trace with one cluster in one folder."""
    return lambda folder: {name: folder}
