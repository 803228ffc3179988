"""Records of a CSV file: any delimiter, quote and encoding; quoted fields may hold line ends.

Python's reader splits them, in strict mode: it alone tells where in the file a record stands, and DuckDB's bundle knows
fewer encodings. Lines and their limits are `text_lines`'. Called by `pipelines.lake.generic.declaration`.
"""

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pipelines.errors import SourceError
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.generic.records import COLUMN_COUNT, UNREADABLE, Record
from pipelines.lake.generic.text_lines import Line, lines_of

MOST_LINES: Final = 100
"""More lines than any quoted field has: a quote is open that nobody closed."""


class _Spoiled(Exception):
    """A line that is no text, or a record that goes on for too many lines."""


class _Feed:
    """The lines of a file for `csv.reader`, which can be given back those of a record that came to nothing."""

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
        """Return the first line of the record; the others are read again."""
        first, *others = self.taken
        self._back.extendleft(reversed(others))
        return first


def csv_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
    """Yield a record of the wanted columns for every line that is not empty; a header is read and not yielded.

    Raises
    ------
    SourceError
        If the header lacks a wanted column, or has it twice.
    """
    found = _fields(path, rows)
    count, places = 0, tuple[int, ...]()
    if rows.header:
        first = next(found, None)
        if first is None or first[2] is not None:
            raise SourceError(f"{file} has no header that can be read; expected one, or header = false in the mapping")
        names = [name.strip() for name in first[1]]
        count, places = len(names), _places(file, names, wanted)
    for lines, fields, fault in found:
        if not places:
            count, places = len(fields), _positions(file, len(fields), wanted)
        raw = "".join(line.text for line in lines).rstrip("\r\n")
        if fault is None and len(fields) != count:
            fault = COLUMN_COUNT
        texts = () if fault else [fields[place] for place in places]
        yield Record(lines[0].number, raw, texts, fault)


def _fields(path: Path, rows: RowsMapping) -> Iterator[tuple[list[Line], list[str], str | None]]:
    """Yield the lines, the fields and the fault of every record that is not an empty line."""
    feed = _Feed(lines_of(path, rows.encoding))
    quoting: dict[str, Any] = (
        {"quotechar": rows.quote} if rows.quote else {"quoting": csv.QUOTE_NONE}
    )  # as csv takes it
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


def require(file: str, name: str, names: Sequence[str]) -> str:
    """Return a name that is among those of a file.

    Raises
    ------
    SourceError
        If it is not.
    """
    if name in names:
        return name
    held = ", ".join(repr(each[:60]) for each in names[:40])
    cure = "Is the delimiter right?" if len(names) == 1 else "Write it as the file does."
    raise SourceError(f"{file} lacks the column {name!r} that the mapping names; it has {held}. {cure}")
