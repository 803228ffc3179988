"""A table on a terminal: laid out so that no row of it is broken, whatever it has to leave out.

Cells are texts here; what they say and how wide they are is `render`'s matter. Called by `render`.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

GAP: Final = "  "

Column = Sequence[str]
"""A heading and its cells, all of one width on screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Columns that fit, and what is said before and after them, in lines."""

    columns: Sequence[Column]
    before: Sequence[str] = ()
    after: Sequence[str] = ()


def fitted(columns: Sequence[Column], width: int) -> Layout:
    """Lay columns out for a screen `width` wide; they come in the order of their importance.

    As they are where they fit; turned over where the rows then fit side by side; else what is the same in all rows is
    said once, and of the rest the last columns are left out.

    Examples
    --------
    >>> fitted([["arm", "a  "], ["completed", "       12"], ["killed", "     3"]], 16).columns
    [['arm      ', 'completed', 'killed   '], [' a', '12', ' 3']]
    """
    if _width(columns) <= width:
        return Layout(columns=columns)
    turned = _turned(columns)
    if _width(turned) <= width:
        return Layout(columns=turned)
    several = len(columns[0]) > len(("heading", "row"))
    same = [column for column in columns if several and len(set(column[1:])) == 1]
    varied = [column for column in columns if column not in same] or columns[:1]
    count = next((each for each in range(len(varied), 1, -1) if _width(varied[:each]) <= width), 1)
    said = ", ".join(f"{heading.strip()}: {cell.strip()}" for heading, cell, *_ in same)
    more = f"columns not shown: {len(varied) - count}; --format json shows all"
    return Layout(
        columns=varied[:count],
        before=textwrap.wrap(f"in all rows {said}", width) if same else (),
        after=textwrap.wrap(more, width) if len(varied) > count else (),
    )


def _turned(columns: Sequence[Column]) -> list[Column]:
    """Turn rows into columns: headings to the left, cells to the right."""
    headings, *rows = zip(*([cell.strip() for cell in column] for column in columns), strict=True)
    return [_padded(headings, to_the_right=False), *(_padded(row, to_the_right=True) for row in rows)]


def _padded(cells: Sequence[str], *, to_the_right: bool) -> Column:
    # Wide characters take two places.
    widths = [cell_len(cell) for cell in cells]
    gaps = [" " * (max(widths) - each) for each in widths]
    return [gap + cell if to_the_right else cell + gap for cell, gap in zip(cells, gaps, strict=True)]


def _width(columns: Sequence[Column]) -> int:
    return sum(cell_len(column[0]) for column in columns) + len(GAP) * (len(columns) - 1)
