"""A sample of the rows of a table of jobs, as texts by column: from a CSV file, or from a Parquet file."""

import csv
import gzip
import io
import re
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.errors import SourceError

MOST_BYTES: Final = 1 << 20
MOST_ROWS: Final = 2000
DELIMITERS: Final = ",;\t|"
JSON_LINES: Final = re.compile(r'\{\s*".*\}')
"""Pattern of a first line that is a JSON object as a whole."""

JSON_START: Final = re.compile(r'\s*(\{\s*"|\[\s*[\[{])')
PARQUET: Final = b"PAR1"

Sample = tuple[dict[str, object], dict[str, list[str]]]
"""The keys of a mapping's `[jobs]` that say how the file is read, and the texts of each column."""


def sampled(path: Path) -> Sample:
    """Return a sample of a file's rows."""
    try:
        with path.open("rb") as stream:
            head = stream.read(len(PARQUET))
    except OSError as error:
        raise _unreadable(path, error) from error
    return _of_parquet(path) if head == PARQUET else _of_text(path)


def _of_parquet(path: Path) -> Sample:
    try:
        table = pl.scan_parquet(path)
        plain = [name for name, kind in table.collect_schema().items() if not kind.is_nested() and kind != pl.Binary]
        rows = table.select(pl.col(plain).cast(pl.String)).head(MOST_ROWS).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise SourceError(f"{path}: cannot be read as Parquet ({str(error)[:200]})") from error
    if not rows.height:
        raise SourceError(f"{path}: found no rows; expected a table of jobs")
    texts = {name: ["" if each is None else each.strip() for each in rows[name].to_list()] for name in plain}
    return {"format": "parquet"}, texts


def _of_text(path: Path) -> Sample:
    text, encoding = _text(path)
    _check_no_json(path, text)
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    header, *rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row] or [[]]
    rows = rows[:: 1 + len(rows) // MOST_ROWS]
    names = [name.strip() for name in header]
    if not rows or len(set(names)) < len(names) or any(re.fullmatch(r"[\d.]*", name) for name in names):
        raise SourceError(
            f"{path}: found no header with a name for each column and rows below it; write the mapping by hand, with "
            "header = false and positions (docs/own-cluster.md)"
        )
    how: dict[str, object] = {"format": "csv"}
    how |= {"delimiter": delimiter} if delimiter != "," else {}
    how |= {"encoding": encoding} if encoding != "utf-8" else {}
    return how, {name: [row[i].strip() for row in rows if len(row) == len(names)] for i, name in enumerate(names)}


def _check_no_json(path: Path, text: str) -> None:
    """Raise SourceError with what to do about a text of JSON."""
    mapping = 'write a mapping with format = "jsonl" by hand (docs/own-cluster.md)'
    if JSON_LINES.fullmatch(text.lstrip().partition("\n")[0].rstrip()):
        raise SourceError(f"{path}: found JSON lines; init reads CSV and Parquet. For JSON lines, {mapping}")
    if JSON_START.match(text):
        raise SourceError(
            f"{path}: found a JSON document; init reads CSV and Parquet. Write one object per line, of an array with "
            f"jq -c '.[]', then {mapping}"
        )


def _text(path: Path) -> tuple[str, str]:
    """Return whole lines of a text file and its encoding; of a long file, lines of its begin, middle and end."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read(MOST_BYTES)
            parts = [data if len(data) < MOST_BYTES else data[: data.rfind(b"\n") + 1]]
            if path.suffix != ".gz" and len(data) == MOST_BYTES:
                size = path.stat().st_size
                for place in (size // 2, size - MOST_BYTES // 2):
                    stream.seek(max(place, MOST_BYTES))
                    part = stream.read(MOST_BYTES // 2)
                    parts.append(part[part.find(b"\n") + 1 : part.rfind(b"\n") + 1])
    except (OSError, EOFError) as error:
        raise _unreadable(path, error) from error
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data[: len(data) // 2 * 2].decode("utf-16", "replace"), "utf-16"
    whole = b"".join(parts)
    if b"\0" in whole:
        raise SourceError(f"{path}: found bytes that are no text; expected a CSV or Parquet file of jobs")
    try:
        return whole.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return whole.decode("latin-1"), "latin-1"


def _unreadable(path: Path, error: Exception) -> SourceError:
    reason = (error.strerror if isinstance(error, OSError) else None) or "damaged"
    return SourceError(f"{path}: cannot be read ({reason}); expected a CSV or Parquet file of jobs")
