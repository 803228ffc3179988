"""Records: the common form of rows of any input format, in a Parquet file if DuckDB cannot read the format; text lines.

`text_records` and `table_records` read the input formats. Records are written in batches, so memory stays bounded.
Called by `text_records`, `table_records`, `declaration` and `opening`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import SourceError
from pipelines.lake.raw_rows import escaped
from pipelines.lake.sources.source import Records

BATCH_RECORDS: Final = 20_000
MOST_RECORDS: Final = 200_000_000
MOST_RECORD_CHARACTERS: Final = 1 << 20
"""Maximum number of characters in a row; a longer row is quarantined without being parsed."""
KEPT_CHARACTERS: Final = 2_000
"""Number of characters of a record's raw text that the quarantine keeps."""

UNREADABLE: Final = "unreadable_line"
COLUMN_COUNT: Final = "column_count"
TOO_LONG: Final = "too_long"


class Record(NamedTuple):
    """A row: place (line number in a text file, else row number), raw text, field texts, and the rule it breaks."""

    place: int
    raw: str
    texts: Sequence[str | None]
    fault: str | None = None


def schema_of(columns: int) -> pa.Schema:
    """Return the schema of a file of records: row number, place, raw text, fault, and the texts `c1`, `c2`, ..."""
    numbers = [("row", pa.int64()), ("place", pa.int64())]
    texts = [(name, pa.string()) for name in ("raw", "fault", *names_of(columns))]
    return pa.schema(numbers + texts)


def names_of(columns: int) -> list[str]:
    """Return the names of the text columns.

    >>> names_of(2)
    ['c1', 'c2']
    """
    return [f"c{i + 1}" for i in range(columns)]


def write_records(found: Iterable[Record], columns: int, target: Path, what: str) -> None:
    """Write records, numbered from 1, to a Parquet file.

    Raises
    ------
    SourceError
        If there are more than `MOST_RECORDS`, for example from a query that never ends.
    """
    schema, rows, batch = schema_of(columns), 0, list[Record]()
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for record in found:
            batch.append(record)
            if len(batch) == BATCH_RECORDS:
                writer.write_batch(_batch(batch, rows, columns, schema))
                rows += len(batch)
                batch.clear()
                if rows > MOST_RECORDS:
                    raise SourceError(f"{what} gives more than {MOST_RECORDS} rows; expected a table of jobs")
        if batch:
            writer.write_batch(_batch(batch, rows, columns, schema))


def written_records(target: Path) -> Records:
    """Return the SQL that reads a Parquet file of records."""
    return Records(
        numbered=f"(SELECT * RENAME (raw AS line) FROM read_parquet('{escaped(target)}', hive_partitioning = false))"
    )


def _batch(records: list[Record], before: int, columns: int, schema: pa.Schema) -> pa.RecordBatch:
    empty: Sequence[str | None] = (None,) * columns
    texts = zip(*(empty if r.fault else r.texts for r in records), strict=True) if columns else ()
    arrays = [
        pa.array(range(before + 1, before + 1 + len(records)), pa.int64()),
        pa.array([r.place for r in records], pa.int64()),
        pa.array([r.raw[:KEPT_CHARACTERS] for r in records], pa.string()),
        pa.array([r.fault for r in records], pa.string()),
        *(pa.array(each, pa.string()) for each in texts),
    ]
    return pa.record_batch(arrays, schema=schema)


NO_CHARACTER: Final = "\ufffd"
"""The Unicode replacement character, which decoding gives for bytes that are not valid text."""


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
                _skip_line(stream)
            elif "\0" in text or (not text.isascii() and not _is_text(text)):
                fault = UNREADABLE
            yield Line(number, text if fault is None else _cleaned(text), fault)
            number += 1


def _skip_line(stream: TextIO) -> None:
    while (rest := stream.readline(MOST_RECORD_CHARACTERS)) and rest[-1] not in "\r\n":
        pass


def _is_text(text: str) -> bool:
    return NO_CHARACTER not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def _cleaned(text: str) -> str:
    return text[:MOST_RECORD_CHARACTERS].replace("\0", NO_CHARACTER).encode("utf-8", "replace").decode()


def require(file: str, name: str, names: Sequence[str]) -> str:
    """Return `name` if the file has a column of that name.

    Raises
    ------
    SourceError
        If no column has that name.
    """
    if name in names:
        return name
    held = ", ".join(repr(each[:60]) for each in names[:40])
    cure = "Is the delimiter right?" if len(names) == 1 else "Write it as the file does."
    raise SourceError(f"{file} lacks the column {name!r} that the mapping names; it has {held}. {cure}")


def text_of(value: object) -> str | None:
    """Return a value as text; lists and objects become JSON.

    Raises
    ------
    ValueError
        If it contains a NUL or a lone surrogate.
    """
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text.isascii():
        text.encode()  # raises on lone surrogates, which JSON can escape
    if "\0" in text:
        raise ValueError("a NUL character")
    return text
