"""Fit the columns of a table to a width: transpose it, shorten long texts, then leave columns out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, chop_cells, set_cell_size

__all__ = ["GAP", "Column", "Layout", "fitted", "padded"]

GAP: Final = "  "
ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"
LEAST_CELL: Final = 24
"""Characters to which the longest cells are shortened before columns are left out; no number is that long."""

Column = Sequence[str]
"""A heading followed by the column's cells, padded to equal width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The table's columns that fit the width, and lines of text to print before and after the table.

    In a `turned` table each row of the grid is a column.
    """

    columns: Sequence[Column]
    turned: bool = False
    before: Sequence[str] = ()
    after: Sequence[str] = ()


def fitted(columns: Sequence[Column], width: int) -> Layout:
    """Fit a table to a terminal of `width` characters; `columns` are given most important first.

    A table that is too wide is transposed. If the transposed table is too wide as well, the longest cells are
    shortened. If that does not suffice, columns with the same value in all rows are printed once above the table, and
    the last of the other columns are left out.

    >>> fitted([["arm", "a  "], ["completed", "       12"], ["killed", "     3"]], 16).columns
    [['arm      ', 'completed', 'killed   '], [' a', '12', ' 3']]
    """
    if _width(columns) <= width:
        return Layout(columns=columns)
    turned = _turned(columns)
    if _width(turned) <= width:
        return Layout(columns=turned, turned=True)
    for each in (columns, turned):
        cell_width = _cell_width(each, width)
        if cell_width is not None:
            shorter = [_shortened(column, cell_width) for column in each]
            return Layout(columns=shorter, turned=each is turned, after=_left_out(width, shortened=True))
    return _narrowed(columns, width)


def _narrowed(columns: Sequence[Column], width: int) -> Layout:
    several = len(columns[0]) > len(("heading", "row"))
    same = [column for column in columns if several and len(set(column[1:])) == 1]
    whole = [column for column in columns if column not in same] or columns[:1]
    varied = [_shortened(column, min(LEAST_CELL, width)) for column in whole]
    count = next((each for each in range(len(varied), 1, -1) if _width(varied[:each]) <= width), 1)
    constant = ", ".join(f"{heading.strip()}: {cell.strip()}" for heading, cell, *_ in same)
    return Layout(
        columns=varied[:count],
        before=_wrapped(f"in all rows {constant}", width) if same else (),
        after=_left_out(width, columns=len(varied) - count, shortened=varied[:count] != whole[:count]),
    )


def _left_out(width: int, *, columns: int = 0, shortened: bool) -> list[str]:
    """Return the lines that state what a table leaves out."""
    parts = [f"columns not shown: {columns}"] if columns else []
    parts += [f"texts that end in {ELLIPSIS} are longer"] if shortened else []
    return _wrapped("; ".join([*parts, "--format json shows all"]), width) if parts else []


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap text at blanks to lines of `width` terminal columns."""
    lines: list[str] = []
    for part in (part for word in text.split() for part in chop_cells(word, width)):
        if lines and cell_len(lines[-1]) + 1 + cell_len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines


def _cell_width(columns: Sequence[Column], width: int) -> int | None:
    """Return the largest width of cells, from `LEAST_CELL` on, at which a table fits; None if there is none."""
    widths, gaps = [cell_len(column[0]) for column in columns], len(GAP) * (len(columns) - 1)
    for most in range(width, LEAST_CELL - 1, -1):
        if sum(min(each, most) for each in widths) + gaps <= width:
            return most
    return None


def _shortened(column: Column, most: int) -> Column:
    """Cut the cells of a column to a width; a cell that was cut ends in an ellipsis."""
    if cell_len(column[0]) <= most:
        return column
    cells = [cell.strip() for cell in column]
    cut = [each if cell_len(each) <= most else set_cell_size(each, most - 1).rstrip() + ELLIPSIS for each in cells]
    return padded(cut, to_the_right=False)


def _turned(columns: Sequence[Column]) -> list[Column]:
    """Transpose the table: the headings become the first column, left-aligned; cells are right-aligned."""
    headings, *rows = zip(*([cell.strip() for cell in column] for column in columns), strict=True)
    return [padded(headings, to_the_right=False), *(padded(row, to_the_right=True) for row in rows)]


def padded(cells: Sequence[str], *, to_the_right: bool) -> Column:
    """Pad cells to equal width."""
    # East Asian wide characters take two terminal columns.
    widths = [cell_len(cell) for cell in cells]
    gaps = [" " * (max(widths) - each) for each in widths]
    return [gap + cell if to_the_right else cell + gap for cell, gap in zip(cells, gaps, strict=True)]


def _width(columns: Sequence[Column]) -> int:
    return sum(cell_len(column[0]) for column in columns) + len(GAP) * (len(columns) - 1)
