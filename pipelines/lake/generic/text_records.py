"""Records from CSV files (any delimiter, quote and encoding) and from JSON lines (one object per line).

Python's `csv` splits CSV in strict mode; it reports line numbers and supports more encodings than DuckDB. In JSON, the
column name `a.b` means the key `a.b`, or the key `b` of the object `a`. Called by `pipelines.lake.generic.declaration`.
"""

import csv
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pipelines.errors import SourceError
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.generic.records import COLUMN_COUNT, UNREADABLE, Line, Record, lines_of, require, text_of

MOST_LINES: Final = 100
"""Maximum number of lines in a record; with more, a quote was probably not closed."""


class _Spoiled(Exception):
    """Raised for a line that is not valid text, and for a record of more than `MOST_LINES` lines."""


class _Feed:
    """Iterator over a file's lines for `csv.reader`; lines of a failed record can be put back and read again."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self._back: deque[Line] = deque()
        self.taken: list[Line] = []

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        line = self._back.popleft() if self._back else next(self._lines)
        self.taken.append(line)
        if line.fault is not None or len(self.taken) > MOST_LINES:
            raise _Spoiled
        return line.text

    def give_back_all_but_first(self) -> Line:
        """Put back all lines of the current record except the first; return the first."""
        first, *others = self.taken
        self._back.extendleft(reversed(others))
        return first


def csv_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
    """Yield the wanted columns of every row of a CSV file, without the header and empty lines.

    Raises
    ------
    SourceError
        If the header is unreadable, lacks a wanted column, or has a wanted column twice.
    """
    found = _fields(path, rows)
    count, places = _layout_of_header(found, file, wanted) if rows.header else (0, ())
    for lines, fields, fault in found:
        if not places:
            count, places = len(fields), _positions(file, len(fields), wanted)
        raw = "".join(line.text for line in lines).rstrip("\r\n")
        if fault is None and len(fields) != count:
            fault = COLUMN_COUNT
        texts = () if fault else [fields[place] for place in places]
        yield Record(lines[0].number, raw, texts, fault)


def csv_layout(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> tuple[int, tuple[int, ...]]:
    """Return the number of fields in the first record of a plain CSV file, and the places of the wanted ones, from 0.

    Raises
    ------
    SourceError
        If the header lacks a wanted column, or has it twice.
    """
    found = _fields(path, rows)
    if rows.header:
        return _layout_of_header(found, file, wanted)
    _, fields, _ = next(found)
    return len(fields), _positions(file, len(fields), wanted)


Split = tuple[list[Line], list[str], str | None]


def _layout_of_header(found: Iterator[Split], file: str, wanted: Sequence[str | int]) -> tuple[int, tuple[int, ...]]:
    first = next(found, None)
    if first is None or first[2] is not None:
        raise SourceError(f"{file} has no header that can be read; expected one, or header = false in the mapping")
    names = [name.strip() for name in first[1]]
    return len(names), _places(file, names, wanted)


def _fields(path: Path, rows: RowsMapping) -> Iterator[Split]:
    """Yield the lines, the fields and the fault (None: valid) of every CSV record, without empty lines."""
    feed = _Feed(lines_of(path, rows.encoding))
    quoting: dict[str, Any] = (
        {"quotechar": rows.quote} if rows.quote else {"quoting": csv.QUOTE_NONE}
    )  # arguments of `csv.reader`
    reader = csv.reader(feed, delimiter=rows.delimiter, strict=True, **quoting)
    while True:
        feed.taken = []
        try:
            fields = next(reader)
        except StopIteration:
            return
        except (csv.Error, _Spoiled):
            first = feed.give_back_all_but_first()
            yield [first], [], first.fault or UNREADABLE
            reader = csv.reader(feed, delimiter=rows.delimiter, strict=True, **quoting)
            continue
        if fields:
            yield feed.taken, fields, None


def _places(file: str, names: list[str], wanted: Sequence[str | int]) -> tuple[int, ...]:
    twice = [name for name in wanted if isinstance(name, str) and names.count(name) > 1]
    if twice:
        raise SourceError(f"{file} has the column {twice[0]!r} twice; expected once. Rename one of them.")
    return tuple(names.index(require(file, str(name), names)) for name in wanted)


def _positions(file: str, count: int, wanted: Sequence[str | int]) -> tuple[int, ...]:
    for position in wanted:
        if isinstance(position, int) and position > count:
            raise SourceError(f"{file} has {count} columns in its first line; the mapping names column {position}")
    return tuple(int(position) - 1 for position in wanted)


SEEN_NAMES = 40


def json_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
    """Yield the wanted columns of every line of a JSON-lines file, without empty lines.

    Raises
    ------
    SourceError
        If a wanted column does not occur in any line.
    """
    names = [str(name) for name in wanted]
    absent, seen, readable = set(names), dict[str, None](), False
    for line in lines_of(path, rows.encoding):
        raw = line.text.rstrip("\r\n")
        if not raw.strip():
            continue
        found = _object(raw) if line.fault is None else None
        if found is None:
            yield Record(line.number, raw, (), line.fault or UNREADABLE)
            continue
        readable = True
        if absent:
            absent -= {name for name in absent if _has(found, name)}
            seen |= dict.fromkeys(list(found)[: SEEN_NAMES - len(seen)])
        try:
            yield Record(line.number, raw, [text_of(_value(found, name)) for name in names])
        except ValueError:
            yield Record(line.number, raw, (), UNREADABLE)
    if readable and absent:
        held = ", ".join(repr(name[:60]) for name in seen)
        raise SourceError(f"{file} lacks the column {min(absent)!r} that the mapping names; its objects have {held}")


def _object(line: str) -> dict[str, object] | None:
    try:
        found = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _has(found: Mapping[str, object], name: str) -> bool:
    return _place(found, name) is not None


def _value(found: Mapping[str, object], name: str) -> object:
    place = _place(found, name)
    return place[0][place[1]] if place else None


def _place(found: Mapping[str, object], name: str) -> tuple[Mapping[str, object], str] | None:
    """Return the object with a column's value, and the key of the value in this object; None if there is none."""
    if name in found:
        return found, name
    outer, _, inner = name.partition(".")
    within = found.get(outer)
    return _place(within, inner) if inner and isinstance(within, dict) else None
