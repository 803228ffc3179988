"""Records from CSV files (any delimiter, quote and encoding) and from JSON lines (one object per line).

DuckDB reads UTF-8 text without quotes. Python's `csv` splits any other CSV in strict mode; it reports line numbers and
supports more encodings. In JSON, the column name `a.b` means the key `a.b`, or the key `b` of the object `a`.
"""

import csv
import json
import mmap
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipelines.errors import SourceError
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.generic.records import (
    MOST_RECORD_CHARACTERS,
    NO_CHARACTER,
    Record,
    require,
    text_of,
    written_records,
)
from pipelines.lake.reading import COLUMN_COUNT, TOO_LONG, UNREADABLE, separated
from pipelines.lake.sources.source import Records

MOST_LINES: Final = 100
"""Maximum number of lines in a record; with more, a quote was probably not closed."""

NEVER_IN_PLAIN: Final = (b"\r", b"\0", b"\1", b"\2", b"\n\n", NO_CHARACTER.encode())


class Line(NamedTuple):
    """A line's text including its line end, its number from 1, and the rule that it breaks, if any."""

    number: int
    text: str
    fault: str | None = None


def lines_of(path: Path, encoding: str) -> Iterator[Line]:
    """Yield the lines of a file, without a byte order mark."""
    with path.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding, errors="replace", newline="") as stream:
        number = 1
        while text := stream.readline(MOST_RECORD_CHARACTERS):
            fault = None
            if len(text) == MOST_RECORD_CHARACTERS and text[-1] not in "\r\n":
                fault = TOO_LONG
                while (rest := stream.readline(MOST_RECORD_CHARACTERS)) and rest[-1] not in "\r\n":
                    pass
            elif "\0" in text or (not text.isascii() and not _is_text(text)):
                fault = UNREADABLE
            if fault is not None:
                text = text.replace("\0", NO_CHARACTER).encode("utf-8", "replace").decode()
            yield Line(number, text, fault)
            number += 1


def _is_text(text: str) -> bool:
    return NO_CHARACTER not in text and not any("\ud800" <= each <= "\udfff" for each in text)


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


def text_records(
    path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int], table: str, target: Path
) -> Records:
    """Return the SQL that reads the wanted columns of a CSV or JSON-lines file, without the header and empty lines."""
    if rows.format == "jsonl":
        return written_records(_json_records(path, file, rows, wanted), len(wanted), target, file)
    if not _is_plain(path, rows):
        return written_records(_csv_records(path, file, rows, wanted), len(wanted), target, file)
    count, places = _layout(_fields(path, rows), file, rows, wanted)
    texts = "".join(f", f[{place + 1}] AS w{nth}" for nth, place in enumerate(places, start=1))
    return separated(path, table, delimiter=rows.delimiter, skip=int(rows.header), counts=(count,), texts=texts)


def _is_plain(path: Path, rows: RowsMapping) -> bool:
    """Return whether every line of a file is one record."""
    never = (*NEVER_IN_PLAIN, rows.quote.encode()) if rows.quote else NEVER_IN_PLAIN
    if rows.encoding != "utf-8" or not path.stat().st_size:
        return False
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return all(data.find(mark) < 0 for mark in never)


def _csv_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
    count, places = _layout(_fields(path, rows), file, rows, wanted)
    for lines, fields, fault in islice(_fields(path, rows), int(rows.header), None):
        raw = "".join(line.text for line in lines).rstrip("\r\n")
        if fault is None and len(fields) != count:
            fault = COLUMN_COUNT
        texts = () if fault else [fields[place] for place in places]
        yield Record(lines[0].number, raw, texts, fault)


Split = tuple[list[Line], list[str], str | None]


def _layout(
    records: Iterator[Split], file: str, rows: RowsMapping, wanted: Sequence[str | int]
) -> tuple[int, tuple[int, ...]]:
    """Return the number of fields of a file's first record, and the places of the wanted columns."""
    lines, fields, fault = next(records, ([], [], UNREADABLE))
    if not rows.header:
        short = [position for position in wanted if isinstance(position, int) and position > len(fields)]
        if short and lines:
            raise SourceError(
                f"{file} has {len(fields)} columns in its first line; the mapping names column {short[0]}"
            )
        return len(fields), tuple(int(position) - 1 for position in wanted)
    if fault is not None:
        raise SourceError(f"{file} has no header that can be read; expected one, or header = false in the mapping")
    names = [name.strip() for name in fields]
    twice = [name for name in wanted if isinstance(name, str) and names.count(name) > 1]
    if twice:
        raise SourceError(f"{file} has the column {twice[0]!r} twice; expected once. Rename one of them.")
    return len(names), tuple(names.index(require(file, str(name), names)) for name in wanted)


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


SEEN_NAMES = 40


def _json_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
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
            absent -= {name for name in absent if _place(found, name) is not None}
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
