"""Render flat rows as a table for reading, as JSON or as CSV; the same rows give the same bytes."""

import csv
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.cells import cell_len
from rich.style import Style

from pipelines.errors import BadUsage
from pipelines.render.fitting import GAP, Column, Layout, fitted, padded

if TYPE_CHECKING:
    import polars as pl

__all__ = ["printable", "render"]

Plain = None | bool | int | float | str
"""Types of a table cell after conversion by `_plain`."""

NULL = "-"
SEVERITY: Final = "severity"
STYLES: Final = {"raise": "bold magenta", "high": "red", "medium": "yellow"}
"""Styles of the rows of a table by the column `severity`."""
FORMULA_BEGINS: Final = ("=", "+", "-", "@", "\t", "\r")
_MAX_DECIMALS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Column names, and rows of cells in the order of these names."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Plain]]


def render(
    rows: "Sequence[Mapping[str, object]] | pl.DataFrame",
    format: str,  # noqa: A002 - named as the option
    *,
    stream: TextIO,
    kinds: bool = False,
) -> None:
    """Write rows to `stream` as `table`, `json` or `csv`.

    Columns are in order of first appearance; a row without a column has null there. Times are ISO 8601: in UTC with
    `Z` if they have a time zone, unchanged if they have none (local times); durations are in seconds. A table rounds
    numbers and prints null and NaN as `-`. JSON and CSV keep every digit; null, NaN and infinities are `null` in JSON
    and empty in CSV. A text in CSV that a spreadsheet would run as a formula gets a leading apostrophe. With
    `kinds` (rows of several kinds), a JSON row has only its own columns. `fitted` fits a table to the width of the
    terminal, or to COLUMNS if that is set. On a terminal, a column `severity` colours the rows; NO_COLOR prevents
    colours.

    >>> import sys
    >>> render([{"model": "xgboost", "mae_h": 1.23456}, {"model": "median", "mae_h": None}], "table", stream=sys.stdout)
    model    mae_h
    --------------
    xgboost  1.235
    median       -
    """
    if format not in FORMATS:
        raise BadUsage(f"found the format {format!r}, expected one of: {', '.join(FORMATS)}")
    if kinds and format == "json" and isinstance(rows, Sequence):
        _write_objects(({name: _plain(cell) for name, cell in row.items()} for row in rows), stream)
        return
    grid = _grid(rows)
    FORMATS[format](_inert(grid) if format == "csv" else grid, stream)


def _write_table(grid: _Grid, stream: TextIO) -> None:
    rows = list(grid.rows)
    columns = [_column(name, [row[index] for row in rows]) for index, name in enumerate(grid.columns)]
    if not columns:
        return
    width = _width_of(stream)
    layout = Layout(columns=columns) if width is None else fitted(columns, width)
    lines = list(zip(*layout.columns, strict=True))
    rule = "-" * cell_len(GAP.join(lines[0])) if lines else ""
    table = [GAP.join(line).rstrip() for line in (*lines[:1], (rule,), *lines[1:])] if lines else []
    if SEVERITY in grid.columns and stream.isatty() and not layout.turned and not os.environ.get("NO_COLOR"):
        severities = [row[grid.columns.index(SEVERITY)] for row in rows]
        styles = [Style.parse(STYLES.get(str(severity), "")) for severity in severities]
        table = [*table[:2], *(style.render(line) for style, line in zip(styles, table[2:], strict=True))]
    for text in (*layout.before, *table, *layout.after):
        stream.write(f"{text}\n")


def _width_of(stream: TextIO) -> int | None:
    """Return the width to fit a table to: COLUMNS, else the terminal's width; None for a file or pipe."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return shutil.get_terminal_size().columns if stream.isatty() else None


def _column(name: str, values: Sequence[Plain]) -> Column:
    """Return a column's heading and cells, padded to equal width: numbers right-aligned, texts left-aligned."""
    decimals = _decimals([value for value in values if isinstance(value, float) and math.isfinite(value)])
    texts = [printable(name), *(_text(value, decimals) for value in values)]
    return padded(texts, to_the_right=_is_numeric(values))


def _write_json(grid: _Grid, stream: TextIO) -> None:
    _write_objects((dict(zip(grid.columns, row, strict=True)) for row in grid.rows), stream)


def _write_objects(rows: Iterable[Mapping[str, Plain]], stream: TextIO) -> None:
    lead = "["
    for row in rows:
        flat = {name: _finite(cell) for name, cell in row.items()}
        stream.write(f"{lead}\n  {json.dumps(flat, ensure_ascii=False, allow_nan=False)}")
        lead = ","
    stream.write("[]\n" if lead == "[" else "\n]\n")


def _write_csv(grid: _Grid, stream: TextIO) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    # The default writer does not quote a lone carriage return, which CSV readers treat as the end of a row.
    quoting = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    rows = ([str(cell).lower() if isinstance(cell, bool) else _finite(cell) for cell in row] for row in grid.rows)
    header: list[list[Plain]] = [list(grid.columns)] if grid.columns else []
    for row in chain(header, rows):
        (quoting if any("\r" in str(cell) for cell in row) else writer).writerow(row)


def _inert(grid: _Grid) -> _Grid:
    """Put an apostrophe before every text that a spreadsheet would take as a formula; numbers stay as they are."""

    def safe(cell: Plain) -> Plain:
        return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_BEGINS) else cell

    return _Grid(columns=[str(safe(name)) for name in grid.columns], rows=([safe(c) for c in row] for row in grid.rows))


FORMATS: Mapping[str, Callable[[_Grid, TextIO], None]] = {
    "table": _write_table,
    "json": _write_json,
    "csv": _write_csv,
}


def _grid(rows: "Sequence[Mapping[str, object]] | pl.DataFrame") -> _Grid:
    if isinstance(rows, Sequence):
        columns = list(dict.fromkeys(name for row in rows for name in row))
        return _Grid(columns=columns, rows=([_plain(row.get(name)) for name in columns] for row in rows))
    return _Grid(columns=rows.columns, rows=([_plain(cell) for cell in row] for row in rows.iter_rows()))


def _plain(value: Any) -> Plain:  # whatever a row may hold
    """Return a value as a JSON scalar: times as ISO 8601, durations in seconds, lists and mappings as JSON text."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return json.dumps({str(key): _finite(_plain(each)) for key, each in value.items()}, ensure_ascii=False)
    if isinstance(value, Sequence):
        return json.dumps([_finite(_plain(each)) for each in value], ensure_ascii=False)
    if hasattr(value, "item"):  # a numpy scalar
        return _plain(value.item())
    return str(value)


def _finite(cell: Plain) -> Plain:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _is_numeric(values: Sequence[Plain]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def _decimals(numbers: Sequence[float]) -> int:
    """Return the number of decimals of a column: its largest number gets four digits, without trailing zeros."""
    largest = max(map(abs, numbers), default=0.0)
    digits_before = 1 + math.floor(math.log10(largest)) if largest >= 1 else 0
    most = min(_MAX_DECIMALS, max(1, _MAX_DECIMALS - digits_before))
    shown = [f"{number:.{most}f}" for number in numbers]
    return max((len(text.rstrip("0").partition(".")[2]) for text in shown), default=0)


def _text(value: Plain, decimals: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value):
        rounded = f"{value:z.{decimals}f}"
        # A small number that is not zero must not print as zero.
        return f"{value:.2g}" if value and not float(rounded) else rounded
    return printable(str(value))


def printable(text: str) -> str:
    """Escape unprintable characters, which could move the terminal's cursor or break the row."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
