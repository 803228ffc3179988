"""Records: what a reader makes of a row of any table, and the Parquet file of texts that staging takes them from.

Reading formats is the files' beside it. Memory stays bounded: records are written in batches as they come.
Called by the readers and `pipelines.lake.generic.declaration`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import SourceError

BATCH_RECORDS: Final = 20_000
MOST_RECORDS: Final = 200_000_000
MOST_RECORD_CHARACTERS: Final = 1 << 20
"""A job's row of a mebibyte is none: it is quarantined unread."""
KEPT_CHARACTERS: Final = 2_000
"""How much of a record is kept to be shown in quarantine."""

UNREADABLE: Final = "unreadable_line"
COLUMN_COUNT: Final = "column_count"
TOO_LONG: Final = "too_long"


class Record(NamedTuple):
    """A row as it stands at `place` (its line in a text, else its number), its texts, or the rule that it breaks."""

    place: int
    raw: str
    texts: Sequence[str | None]
    fault: str | None = None


def schema_of(columns: int) -> pa.Schema:
    """Return the columns of a file of records: number, place, raw text, fault, and the texts `c1`, `c2`, ..."""
    numbers = [("row", pa.int64()), ("place", pa.int64())]
    texts = [(name, pa.string()) for name in ("raw", "fault", *names_of(columns))]
    return pa.schema(numbers + texts)


def names_of(columns: int) -> list[str]:
    """Return the names of the texts.

    >>> names_of(2)
    ['c1', 'c2']
    """
    return [f"c{i + 1}" for i in range(columns)]


def write_records(records: Iterable[Record], columns: int, target: Path, what: str) -> int:
    """Write records, numbered from 1, to a Parquet file; return how many.

    Raises
    ------
    SourceError
        If there are more than any table of jobs has: a query without an end.
    """
    schema, rows, batch = schema_of(columns), 0, list[Record]()
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for record in records:
            batch.append(record)
            if len(batch) == BATCH_RECORDS:
                writer.write_batch(_batch(batch, rows, columns, schema))
                rows += len(batch)
                batch.clear()
                if rows > MOST_RECORDS:
                    raise SourceError(f"{what} gives more than {MOST_RECORDS} rows; expected a table of jobs")
        if batch:
            writer.write_batch(_batch(batch, rows, columns, schema))
    return rows + len(batch)


def fetched_records(plain: Path, target: Path) -> int:
    """Take over a file of records that was written before; return how many it holds."""
    target.symlink_to(plain.absolute())  # a hard link would change the time of the file, and ingest would refuse it
    return int(pq.ParquetFile(target).metadata.num_rows)


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
