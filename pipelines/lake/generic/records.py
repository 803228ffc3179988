"""Records: the common form of the rows of a user's CSV and Parquet files.

DuckDB reads Parquet, and UTF-8 text without quotes. Python's `csv` splits any other CSV in strict mode; it reports line
numbers and supports more encodings; its records are written to a Parquet file in batches.
"""

import csv
import mmap
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import SourceError
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.reading import (
    COLUMN_COUNT,
    KEPT_CHARACTERS,
    TOO_LONG,
    UNREADABLE,
    escaped,
    numbered_by_order,
    separated,
)
from pipelines.lake.sources.source import Records

BATCH_RECORDS: Final = 20_000
MOST_RECORD_CHARACTERS: Final = 1 << 20
"""Maximum number of characters in a row; a longer row is quarantined without being parsed."""
NO_CHARACTER: Final = "\ufffd"
"""The Unicode replacement character, which decoding gives for bytes that are not valid text."""

MOST_LINES: Final = 100
"""Maximum number of lines in a record; with more, a quote was probably not closed."""

NEVER_IN_PLAIN: Final = (b"\r", b"\0", b"\1", b"\2", b"\n\n", NO_CHARACTER.encode())


def records_of(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str], table: str, target: Path) -> Records:
    """Return the SQL that reads the wanted columns of a file as the texts w1, w2, ..., without header and empty lines.

    `file` is the file's name for messages, `target` a file that may be written.
    """
    if rows.format == "parquet":
        return _parquet_records(path, file, wanted)
    if not _is_plain(path, rows):
        return _written(_csv_records(path, file, rows, wanted), len(wanted), target)
    count, places = _layout(path, file, rows, wanted)
    texts = "".join(f", f[{place + 1}] AS w{nth}" for nth, place in enumerate(places, start=1))
    return separated(path, table, delimiter=rows.delimiter, skip=1, counts=(count,), texts=texts)


def _parquet_records(path: Path, file: str, wanted: Sequence[str]) -> Records:
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{file} cannot be read as Parquet: {str(error).partition(chr(10))[0][:300]}") from error
    for name in wanted:
        kind = schema.field(_require(file, name, schema.names)).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise SourceError(f"{file}: the column {name!r} is of type {kind}; expected a number, text or time")
    texts = {f"w{nth}": name.replace('"', '""') for nth, name in enumerate(wanted, start=1)}
    casts = ", ".join(f'CAST("{name}" AS VARCHAR) AS {text}' for text, name in texts.items())
    line = "concat_ws(', ', " + ", ".join(f"left(coalesce({text}, ''), 200)" for text in texts) + ")"
    whole = f"concat({', '.join(texts)})"
    fault = (
        f"CASE WHEN length({whole}) > {MOST_RECORD_CHARACTERS} THEN '{TOO_LONG}' "
        f"WHEN contains({whole}, chr(0)) OR contains({whole}, '{NO_CHARACTER}') THEN '{UNREADABLE}' END"
    )
    read = f"SELECT {casts} FROM read_parquet('{escaped(path)}', hive_partitioning = false)"
    found = f"(SELECT *, left({line}, {KEPT_CHARACTERS}) AS line, {fault} AS fault FROM ({read}))"
    return Records(rows=found, numbered=f"(SELECT *, nth + 1 AS place FROM {numbered_by_order(found)})")


class Record(NamedTuple):
    """A row: its line number, raw text, field texts, and the rule it breaks."""

    place: int
    raw: str
    texts: Sequence[str]
    fault: str | None = None


def _written(records: Iterable[Record], columns: int, target: Path) -> Records:
    """Write records to a Parquet file, and return the SQL that reads it."""
    names = ("line", "fault", *(f"w{i + 1}" for i in range(columns)))
    schema = pa.schema([("nth", pa.int64()), ("place", pa.int64()), *((name, pa.string()) for name in names)])
    left, rows = iter(records), 0
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        while batch := list(islice(left, BATCH_RECORDS)):
            writer.write_batch(_batch(batch, rows, columns, schema))
            rows += len(batch)
    found = f"read_parquet('{escaped(target)}', hive_partitioning = false)"
    return Records(rows=found, numbered=found)


def _batch(records: Sequence[Record], before: int, columns: int, schema: pa.Schema) -> pa.RecordBatch:
    empty: Sequence[str | None] = (None,) * columns
    texts = zip(*(empty if r.fault else r.texts for r in records), strict=True) if columns else ()
    arrays = [
        pa.array(range(before, before + len(records)), pa.int64()),
        pa.array([r.place for r in records], pa.int64()),
        pa.array([r.raw[:KEPT_CHARACTERS] for r in records], pa.string()),
        pa.array([r.fault for r in records], pa.string()),
        *(pa.array(each, pa.string()) for each in texts),
    ]
    return pa.record_batch(arrays, schema=schema)


def _require(file: str, name: str, names: Sequence[str]) -> str:
    """Return `name` if the file has a column of that name."""
    if name in names:
        return name
    held = ", ".join(repr(each[:60]) for each in names[:40])
    cure = "Is the delimiter right?" if len(names) == 1 else "Write it as the file does."
    raise SourceError(f"{file} lacks the column {name!r} that the mapping names; it has {held}. {cure}")


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


def _is_plain(path: Path, rows: RowsMapping) -> bool:
    """Return whether every line of a file is one record."""
    never = (*NEVER_IN_PLAIN, rows.quote.encode()) if rows.quote else NEVER_IN_PLAIN
    if rows.encoding != "utf-8" or not path.stat().st_size:
        return False
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return all(data.find(mark) < 0 for mark in never)


def _csv_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str]) -> Iterator[Record]:
    count, places = _layout(path, file, rows, wanted)
    for lines, fields, fault in islice(_fields(path, rows), 1, None):
        raw = "".join(line.text for line in lines).rstrip("\r\n")
        if fault is None and len(fields) != count:
            fault = COLUMN_COUNT
        texts = () if fault else [fields[place] for place in places]
        yield Record(lines[0].number, raw, texts, fault)


Split = tuple[list[Line], list[str], str | None]


def _layout(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str]) -> tuple[int, tuple[int, ...]]:
    """Return the number of fields of a file's header, and the places of the wanted columns."""
    _, fields, fault = next(_fields(path, rows), ([], [], UNREADABLE))
    if fault is not None:
        raise SourceError(f"{file} has no header that can be read; expected one: write it above the rows")
    names = [name.strip() for name in fields]
    twice = [name for name in wanted if names.count(name) > 1]
    if twice:
        raise SourceError(f"{file} has the column {twice[0]!r} twice; expected once. Rename one of them.")
    return len(names), tuple(names.index(_require(file, name, names)) for name in wanted)


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
