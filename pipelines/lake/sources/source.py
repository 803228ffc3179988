"""What a source is: its files, its raw columns, the rules that quarantine rows, and its canonical SELECTs.

A source declares; `pipelines.lake.staging` executes. Nothing here reads a file, and no vendor spelling is here.
Called by the sources beside it and by `pipelines.lake.ingest`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from pipelines.lake.manifest import Input

NULL_TEXTS: Final = ("", "NA", "None", "NULL", "null", "nan")
"""What stands for a missing number or time in at least one of the published traces."""

COMPUTED: Final = "NULL"
"""The text of a column that is in no file: its value is of the columns before it."""

MOST_ASKED: Final = 1e8
"""Cores, GPUs or GiB that nobody asks for, or has, at once."""
MOST_INSTANCES: Final = 1e6
MOST_SPAN_S: Final = 1e10
"""Three centuries: that many seconds nothing lasts."""

LOCAL_TIME: Final = "%Y-%m-%d %H:%M:%S"

CLUSTER: Final = "{cluster}"
"""Stands for the cluster's name in the stem of a file, where the files of several clusters lie in one folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One raw column: the SQL of its text, and the SQL that makes a value of it.

    `text` may use `f` (the fields of a line) or `line`; None takes the field at the column's position.
    `value` may use `{text}` and the columns before it; a text that gives no value, and is not `missing`, is unparsable.
    `read_as` is the type that DuckDB's reader may give `{text}` at once: `value` must say the same of it. `finite` is
    what `value` comes to, for every finite number that is so read.
    `fault` is what an unparsable text is called by, by default the column's name.
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
    """A named reason to quarantine: `bad` is SQL over the columns; null counts as good.

    A link rule looks at other tables as well: it may use the tables declared before it, and calls its own row `r`.
    """

    name: str
    bad: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTable:
    """One published table.

    `stems` are file names less their suffix, in which `CLUSTER` may stand; `suffixes` are tried in order, `archives`
    may hold the file as a member. `header` None means headerless; a `*` in it stands for any further names. `fields`
    are the field counts a row may have (empty: as many as columns, or as names in the header). Of rows with equal
    `key` the first stays. `feeds` names the canonical table its rows end in. `passing` are the columns that only the
    key and the rules of the row itself look at: they are checked and not kept. `nulls` are missing for every number of
    the table, and common in its files. A file that is no plain lines has `records`: it writes those of the file to
    another (`pipelines.lake.line_rows`), whose columns the texts of `columns` then are, and returns how many there are;
    `counted_in` says whether their places are lines or rows, `logs` how the names of further files end that stand
    beside it and hold rows of it.
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
        """Return the names of the columns that good rows are loaded with."""
        return tuple(c.name for c in self.columns if c.name not in self.passing)

    def of(self, cluster: str) -> Self:
        """Return the table as it is published for one cluster."""
        return replace(self, stems=tuple(stem.replace(CLUSTER, cluster) for stem in self.stems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A warning for the manifest, given when the SQL `holds` is true of the good rows."""

    text: str
    holds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcut:
    """A simpler SELECT of a canonical table, for when no rows but those of `table` feed it, and none are to be folded.

    It gives the same rows, to the bit, wherever each `machine` of the table has one row for each `ts`.
    """

    table: str
    select: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One published trace: `clusters` finds the folder of each cluster, `outputs` are the canonical SELECTs.

    Every SELECT names the canonical columns it knows, less `trace` and `cluster`; the others become null.
    `split_by` names the column of an output, and of all tables that feed it, by which a large one is written in parts.
    `shortcuts` are SELECTs of outputs that do, and are faster, where rows allow it.
    `representative` says that clusters are alternatives, never to be added up: the one that stands for the trace.
    `declared` are inputs of the ingest beside the files; `cures` tells by rule what to do where nothing general holds.
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
    """Declare a whole number that fits 32 bits, however it is spelled (`10.0`)."""
    value = "try_cast({text} AS DOUBLE)"
    whole = f"CASE WHEN abs({value}) < 2147483648 AND {value} = floor({value}) THEN {value}::INTEGER END"
    return Column(name=name, text=of, value=whole, read_as="DOUBLE")


def seconds(name: str) -> Column:
    """Declare a Unix time in seconds, within what a timestamp can hold."""
    value = "try_cast({text} AS DOUBLE)"
    return Column(name=name, value=f"CASE WHEN abs({value}) < 1e10 THEN {value} END", read_as="DOUBLE")


def local_time(name: str, zone: str, *, of: str | None = None) -> Column:
    """Declare a naive local time of `zone`, in which no hour repeats while the trace runs."""
    return Column(name=name, text=of, value=f"timezone('{zone}', try_strptime({{text}}, '{LOCAL_TIME}'))")


def missing(*names: str, rule: str = "missing_key") -> Rule:
    """Quarantine rows that lack one of the named columns."""
    return Rule(name=rule, bad=" OR ".join(f'"{n}" IS NULL' for n in names))


def negative(*names: str, rule: str = "negative") -> Rule:
    """Quarantine rows in which one of the named columns is below zero."""
    return Rule(name=rule, bad=" OR ".join(f'"{n}" < 0' for n in names))


def beyond(names: Sequence[str], most: float, rule: str) -> Rule:
    """Quarantine rows in which one of the named columns is above what can be meant, and sums could not hold."""
    return Rule(name=rule, bad=f"greatest({', '.join(names)}) > {most:g}")


def unlisted(column: str, known: Mapping[str, object], rule: str = "unknown_status") -> Rule:
    """Quarantine rows whose column holds a value that no vocabulary lists; null is left to other rules."""
    listed = ", ".join(f"'{k}'" for k in known)
    return Rule(name=rule, bad=f'"{column}" NOT IN ({listed})')


def translated(expression: str, meanings: Mapping[str, object], otherwise: str = "NULL") -> str:
    """Return the SQL that maps a vendor's spellings to ours."""
    cases = " ".join(f"WHEN '{vendor}' THEN '{ours}'" for vendor, ours in meanings.items())
    return f"CASE {expression} {cases} ELSE {otherwise} END"


def one_cluster(name: str) -> Callable[[Path], dict[str, Path]]:
    """Return the finder of a trace that is one cluster in one folder."""
    return lambda folder: {name: folder}
