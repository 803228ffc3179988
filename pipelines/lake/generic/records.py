"""Records: the common form of rows of any input format, in a Parquet file if DuckDB cannot read the format.

`text_records` and `table_records` read the input formats. Records are written in batches, so memory stays bounded.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import SourceError
from pipelines.lake.reading import KEPT_CHARACTERS, escaped
from pipelines.lake.sources.source import Records

BATCH_RECORDS: Final = 20_000
MOST_RECORDS: Final = 200_000_000
MOST_RECORD_CHARACTERS: Final = 1 << 20
"""Maximum number of characters in a row; a longer row is quarantined without being parsed."""

NO_CHARACTER: Final = "\ufffd"
"""The Unicode replacement character, which decoding gives for bytes that are not valid text."""


class Record(NamedTuple):
    """A row: place (line number in a text file, else row number), raw text, field texts, and the rule it breaks."""

    place: int
    raw: str
    texts: Sequence[str | None]
    fault: str | None = None


def names_of(columns: int) -> list[str]:
    """Return the names of the text columns.

    >>> names_of(2)
    ['w1', 'w2']
    """
    return [f"w{i + 1}" for i in range(columns)]


def written_records(found: Iterable[Record], columns: int, target: Path, what: str) -> Records:
    """Write records to a Parquet file, and return the SQL that reads it."""
    texts = [(name, pa.string()) for name in ("line", "fault", *names_of(columns))]
    schema, rows = pa.schema([("nth", pa.int64()), ("place", pa.int64()), *texts]), 0
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        records = iter(found)
        while batch := list(islice(records, BATCH_RECORDS)):
            writer.write_batch(_batch(batch, rows, columns, schema))
            rows += len(batch)
            if rows > MOST_RECORDS:  # for example from a query that never ends
                raise SourceError(f"{what} gives more than {MOST_RECORDS} rows; expected a table of jobs")
    return records_in(target)


def records_in(target: Path) -> Records:
    """Return the SQL that reads a Parquet file of records."""
    rows = f"read_parquet('{escaped(target)}', hive_partitioning = false)"
    return Records(rows=rows, numbered=rows)


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


def require(file: str, name: str, names: Sequence[str]) -> str:
    """Return `name` if the file has a column of that name."""
    if name in names:
        return name
    held = ", ".join(repr(each[:60]) for each in names[:40])
    cure = "Is the delimiter right?" if len(names) == 1 else "Write it as the file does."
    raise SourceError(f"{file} lacks the column {name!r} that the mapping names; it has {held}. {cure}")


def text_of(value: object) -> str | None:
    """Return a value as text; lists and objects become JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text.isascii():
        text.encode()  # raises on lone surrogates, which JSON can escape
    if "\0" in text:
        raise ValueError("a NUL character")
    return text
