"""Read and check files of measurements: columns, ranges of numbers, file size.

The tables are interpreted in `measured`, which calls this module.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.errors import SourceError

MOST_BYTES: Final = 64 * 2**20
"""Maximum size of a file; the largest published table has less than half a mebibyte."""


def found(folder: Path, name: str) -> Path:
    """Return the path of a file in the energy folder.

    Raises
    ------
    SourceError
        If the folder or the file is absent, or the file is larger than `MOST_BYTES`.
    """
    path = folder / name
    if not folder.is_dir():
        raise SourceError(
            f"no folder of energy data at {folder}; name it with --energy or TAUT_ENERGY (expected there: {name})"
        )
    if not path.is_file():
        raise SourceError(f"{folder} lacks {name}; expected the measured tables as they were published")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise SourceError(f"{name} has {size} bytes, expected at most {MOST_BYTES}; is it the published table?")
    return path


def table(folder: Path, name: str, columns: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """Read the given columns of a CSV file, and check that numbers are finite and above zero and names not empty.

    Raises
    ------
    SourceError
        If the file is absent or too large, lacks a column, or has an invalid value; the first such row is reported.
    """
    read = _text(found(folder, name), name)
    if missing := [column for column in columns if column not in read.columns]:
        raise SourceError(
            f"{name} lacks the columns {', '.join(missing)}; found {', '.join(map(_short, read.columns[:8]))}"
        )
    if read.is_empty():
        raise SourceError(f"{name} has no rows, expected measurements")
    frame = read.select(pl.col(column).str.strip_chars().cast(kind, strict=False) for column, kind in columns.items())
    check_rows(frame, name, read)
    return frame


def check_rows(frame: pl.DataFrame, name: str, read: pl.DataFrame) -> None:
    """Raise SourceError if a number is not finite and above zero, or a name is empty; `read` has the original text."""
    for column, kind in frame.schema.items():
        fine = pl.col(column).is_finite() & (pl.col(column) > 0) if kind.is_numeric() else pl.col(column) != ""
        bad = frame.select((~fine.fill_null(value=False)).arg_true()).to_series()
        if len(bad):
            at = int(bad[0])
            wanted = "a finite number above zero" if kind.is_numeric() else "a name"
            raise SourceError(
                f"{name}, row {at + 2}: {column} is {_short(read[column][at])!r}, expected {wanted} "
                f"({len(bad)} such rows); mend or leave out the rows"
            )


def wide(folder: Path, name: str, key: str) -> tuple[list[str], list[float], pl.DataFrame]:
    """Read a CSV file with names in the column `key`, and numbers in all other columns, whose headers are numbers too.

    Return the names, the headers as numbers, and a frame of the numbers.

    Raises
    ------
    SourceError
        In the cases of `table`, or if a header is not a number, or a name or header occurs twice.
    """
    read = _text(found(folder, name), name)
    heads = [column for column in read.columns if column != key]
    if key not in read.columns or not heads:
        raise SourceError(f"{name} lacks the column {key} or any beside it; found {', '.join(read.columns[:8])}")
    try:
        numbers = [float(head) for head in heads]
    except ValueError as error:
        raise SourceError(f"{name}: {error}; expected frequencies as the heads of columns") from error
    frame = table(folder, name, {key: pl.String, **dict.fromkeys(heads, pl.Float64)})
    rows = frame[key].to_list()
    for what, each in (("rows", rows), ("columns", numbers)):
        if twice := _twice(each):
            raise SourceError(
                f"{name} has {what} that come twice: {', '.join(map(str, twice[:5]))}; expected each once"
            )
    return rows, numbers, frame.select(heads)


def _text(path: Path, name: str) -> pl.DataFrame:
    try:
        return pl.read_csv(path, infer_schema=False, encoding="utf8")
    except (pl.exceptions.PolarsError, UnicodeDecodeError, OSError) as error:
        raise SourceError(f"{name} cannot be read as CSV: {str(error).splitlines()[0][:200]}") from error


def _twice(each: Sequence[object]) -> list[object]:
    return [value for at, value in enumerate(each) if value in each[:at]]


def _short(text: object) -> str:
    return str(text)[:40]
