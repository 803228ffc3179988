"""Read plain CSV with DuckDB alone: UTF-8 without quotes, of which every line is one record.

It gives the records that `text_records` gives, which reads any other CSV.
Called by `pipelines.lake.generic.declaration`.
"""

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipelines.lake.generic.conversions import literal
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.generic.records import COLUMN_COUNT, KEPT_CHARACTERS, NO_CHARACTER
from pipelines.lake.generic.text_records import csv_layout
from pipelines.lake.raw_rows import LINES, escaped
from pipelines.lake.sources.source import Records

SCAN_BYTES: Final = 1 << 16
"""Number of bytes scanned at a time. A line end is expected in each: Python's `csv` reads no field of more than 131 072
characters."""

NEVER: Final = (b"\r", b"\0", b"\1", b"\2")
EMPTY_LINE: Final = b"\n\n"


def plain_csv(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Records | None:
    """Return the SQL that reads the wanted columns of a plain CSV file; None if the file is not plain.

    Raises
    ------
    SourceError
        If the header lacks a wanted column, or has it twice.
    """
    if rows.encoding != "utf-8" or not rows.quote.isascii() or not _is_plain(path, rows):
        return None
    count, places = csv_layout(path, file, rows, wanted)
    header = int(rows.header)
    lines = f"read_csv('{escaped(path)}', skip = {header}, {LINES})"
    numbered = f"(SELECT row_number() OVER () AS row, line FROM {lines})"
    # A row at fault has no texts: the bytes of the lake's files depend on which columns have nulls.
    split = f"string_split(line, {literal(rows.delimiter)})"
    fields = f"CASE WHEN len({split}) = {count} THEN {split} END AS f"
    fault = f"CASE WHEN f IS NULL THEN '{COLUMN_COUNT}' END AS fault"
    texts = "".join(f", f[{place + 1}] AS c{nth}" for nth, place in enumerate(places, start=1))
    return Records(
        numbered=f"(SELECT row, row + {header} AS place, left(line, {KEPT_CHARACTERS}) AS line, {fault}{texts} "
        f"FROM (SELECT *, {fields} FROM {numbered}))",
        quick=f"(SELECT NULL::BIGINT AS row, {fault}{texts} FROM (SELECT {fields} FROM {lines}))",
    )


def _is_plain(path: Path, rows: RowsMapping) -> bool:
    """Return whether every line of a file with a row is one record of valid text, and none is empty or very long."""
    never = (*NEVER, rows.quote.encode()) if rows.quote else NEVER
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines, last = 0, b"\n"
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(SCAN_BYTES):
                if any(mark in chunk for mark in never) or EMPTY_LINE in last + chunk:
                    return False
                if len(chunk) == SCAN_BYTES and b"\n" not in chunk:
                    return False
                if (not chunk.isascii() or decoder.getstate()[0]) and NO_CHARACTER in decoder.decode(chunk):
                    return False
                if not lines and not rows.header and chunk.startswith(codecs.BOM_UTF8):
                    return False
                lines, last = lines + chunk.count(b"\n"), chunk[-1:]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return lines + (last != b"\n") > int(rows.header)
