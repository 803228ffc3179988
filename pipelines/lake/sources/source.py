"""Types that declare a source: its files, raw columns, rules that quarantine rows, and canonical SELECTs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Final, Self

from pipelines.lake.manifest import Input

__all__ = ["MOST_ASKED", "Source"]

NULL_TEXTS: Final = ("", "NA", "None", "NULL", "null", "nan")
"""Texts that mean a missing number or time in at least one published trace."""

COMPUTED: Final = "NULL"
"""SQL text of a column that is not in the file; its value is computed from the columns before it."""

MOST_ASKED: Final = 1e8
"""Maximum of cores, GPUs or GiB in one request or machine; larger numbers are taken for unit errors."""
MOST_INSTANCES: Final = 1e6
MOST_SPAN_S: Final = 1e10
"""Maximum time span in seconds, about three centuries."""

LOCAL_TIME: Final = "%Y-%m-%d %H:%M:%S"

CLUSTER: Final = "{cluster}"
"""Placeholder of the cluster's name in a file stem, for sources with several clusters in one folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One raw column: the SQL of its text, and the SQL that converts the text to a value.

    `text` may use `f` (the list of a line's fields) or `line`; None means the field at the column's position.
    `value` may use `{text}`, `{number}` (the text as DOUBLE or null) and earlier columns. A text whose value
    is null is unparsable unless it is in `missing`.
    `fault` is the end of the rule name `unparsable_<fault>`; by default it is the column's name.
    """

    name: str
    value: str
    text: str | None = None
    missing: tuple[str, ...] = NULL_TEXTS
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A named reason to quarantine a row: `bad` is SQL over the columns; null counts as good.

    `parts` are conditions of which `bad` is the disjunction: only the columns of those that hold are at fault. Without
    them, all columns in `bad` are. A rule in `RawTable.links` may also use tables declared earlier; its SQL calls the
    row `r`.
    """

    name: str
    bad: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """SQL that reads a file's rows in one common form, whatever the file's format.

    `rows` gives `fault` (the rule that the row as a whole breaks) and what the columns' `text` uses, in the file's
    order. `numbered` gives the same with `nth` (from 0), `place` (line or row number in the file) and `line` (raw
    text). `rejects` says whether `rows` leaves lines that it cannot read to the table `<table>_rejects`.
    """

    rows: str
    numbered: str
    header_lines: int = 0
    rejects: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTable:
    """One table of a published trace: its files, columns and rules.

    `stems` are file names without suffix; `suffixes` are tried in this order, then the tar archives `archives`. `feeds`
    is the canonical table to which the rows contribute. `header` names the columns in the first line (`*`: any number,
    None: no header), `fields` the allowed numbers of fields in a row (empty: as in the header). Of rows with
    equal values of `key`, all but the first are quarantined. `links` are rules that also use other tables. `passing`
    columns are used by the key and the rules only, and dropped after loading. `records` makes a file of another format
    readable: its arguments are the file, a file that it may write, and the first one's name for messages.
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
    records: Callable[[Path, Path, str], Records] | None = None
    counted_in: str = "line"

    @property
    def kept(self) -> tuple[str, ...]:
        """Return the names of the columns that are kept for good rows."""
        return tuple(c.name for c in self.columns if c.name not in self.passing)

    def of(self, cluster: str) -> Self:
        """Return a copy with `CLUSTER` in its file stems replaced by the cluster's name."""
        return replace(self, stems=tuple(stem.replace(CLUSTER, cluster) for stem in self.stems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A warning that is written to the manifest if the SQL condition `holds` is true of the good rows."""

    text: str
    holds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcut:
    """A faster SELECT of a canonical table, for the case that only `table` has rows and none must be aggregated.

    The SELECT gives exactly the same rows if `table` has at most one row per `machine` and `ts`.
    """

    table: str
    select: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The declaration of one trace: how to find its clusters, its raw tables, and the canonical tables to write.

    `clusters` returns the folder of each cluster by name. `outputs` maps a canonical table to its SELECT, which names
    the columns it fills, without `trace` and `cluster`. `split_by` maps an output to the column by which it is written
    in parts if large. `zone` is the time zone of the trace's local hours and days. `representative` names the cluster
    that represents the trace if clusters are alternatives, which are never added up. `declared` lists inputs without
    rows (a mapping file). `cures` maps a rule to advice that replaces the general one.
    """

    name: str
    clusters: Callable[[Path], dict[str, Path]]
    tables: tuple[RawTable, ...]
    outputs: Mapping[str, str]
    macros: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = field(default=())
    split_by: Mapping[str, str] = field(default_factory=dict)
    shortcuts: Mapping[str, Shortcut] = field(default_factory=dict)
    zone: str = "UTC"
    representative: str | None = None
    declared: tuple[Input, ...] = ()
    cures: Mapping[str, str] = field(default_factory=dict)


def columns(table: str) -> tuple[Column, ...]:
    """Declare columns, each by its name and kind: `text`, `number`, `count` or `seconds`."""
    kinds = {"text": text, "number": number, "count": count, "seconds": seconds}
    pairs = (each.split() for each in table.split(","))
    return tuple(kinds[kind](name) for name, kind in pairs)


def text(name: str, *, of: str | None = None) -> Column:
    """Declare a text column in which only the empty text means a missing value."""
    return Column(name=name, text=of, value="{text}", missing=("",))


def number(name: str, *, of: str | None = None) -> Column:
    """Declare a column of finite numbers."""
    return Column(name=name, text=of, value="CASE WHEN isfinite({number}) THEN {number} END")


def count(name: str, *, of: str | None = None) -> Column:
    """Declare a column of 32-bit whole numbers, which may be written as `10.0`."""
    whole = "CASE WHEN abs({number}) < 2147483648 AND {number} = floor({number}) THEN {number}::INTEGER END"
    return Column(name=name, text=of, value=whole)


def seconds(name: str) -> Column:
    """Declare a column of Unix times in seconds; times outside the range of a timestamp are unparsable."""
    return Column(name=name, value="CASE WHEN abs({number}) < 1e10 THEN {number} END")


def local_time(name: str, zone: str, *, of: str | None = None) -> Column:
    """Declare a column of local times in `zone` without UTC offset.

    The trace must not contain the end of daylight saving time, when an hour occurs twice.
    """
    return Column(name=name, text=of, value=f"timezone('{zone}', try_strptime({{text}}, '{LOCAL_TIME}'))")


def missing(*names: str, rule: str = "missing_key") -> Rule:
    """Quarantine rows that lack one of the named columns."""
    return _any_of(rule, [f'"{n}" IS NULL' for n in names])


def negative(*names: str, rule: str = "negative") -> Rule:
    """Quarantine rows in which one of the named columns is below zero."""
    return _any_of(rule, [f'"{n}" < 0' for n in names])


def _any_of(rule: str, parts: Sequence[str]) -> Rule:
    return Rule(name=rule, bad=" OR ".join(parts), parts=tuple(parts))


def beyond(names: Sequence[str], most: float, rule: str) -> Rule:
    """Quarantine rows in which one of the named columns exceeds `most`; without such bounds, sums could overflow."""
    parts = tuple(f"{name} > {most:g}" for name in names)
    return Rule(name=rule, bad=f"greatest({', '.join(names)}) > {most:g}", parts=parts)


def unlisted(column: str, known: Mapping[str, object], rule: str = "unknown_status") -> Rule:
    """Quarantine rows whose value of `column` is not in `known`; null passes this rule."""
    listed = ", ".join(f"'{k}'" for k in known)
    return Rule(name=rule, bad=f'"{column}" NOT IN ({listed})')


def translated(expression: str, meanings: Mapping[str, object], otherwise: str = "NULL") -> str:
    """Return the SQL that replaces a source's values by canonical values, as `meanings` maps them."""
    cases = " ".join(f"WHEN '{vendor}' THEN '{ours}'" for vendor, ours in meanings.items())
    return f"CASE {expression} {cases} ELSE {otherwise} END"


def clusters_by_file(
    name: str, *, below: Sequence[str] = ("",), suffixes: Sequence[str] = ("",)
) -> Callable[[Path], dict[str, Path]]:
    """Return the function `Source.clusters` of a trace with a file for each cluster.

    `name` is the path of a file, without suffix, below the folder or one of its folders `below`; it contains `CLUSTER`
    once. Of several files of a cluster, the first in the order of `below` and `suffixes` counts.
    """
    before, after = name.split(CLUSTER)

    def clusters(folder: Path) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for place in (folder / part for part in below):
            for end in (after + suffix for suffix in suffixes):
                for path in place.glob(f"{escape(before)}*{escape(end)}"):
                    cluster = path.relative_to(place).as_posix().removeprefix(before).removesuffix(end)
                    if path.is_file() and not cluster.startswith("."):
                        found.setdefault(cluster, place)
        return dict(sorted(found.items()))

    return clusters


def one_cluster(name: str) -> Callable[[Path], dict[str, Path]]:
    """Return the function `Source.clusters` of a trace whose only cluster has this name."""
    return lambda folder: {name: folder}
