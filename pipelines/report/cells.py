"""Rows as an HTML table and as the CSV that is downloaded from it: the same rows and columns, every digit in the CSV.

Texts are escaped; nothing is chosen here. Called by `pipelines.report.page`.
"""

import io
import math
from base64 import b64encode
from html import escape
from typing import Final

import polars as pl

from pipelines.charts.panels import spaced
from pipelines.render import render

NULL: Final = "-"


def table(rows: pl.DataFrame, *, upright: bool) -> str:
    """Return the rows as `<table>`; upright, each row is a column headed by its first cell."""
    columns = {name: [shown(value, name) for value in rows[name].to_list()] for name in rows.columns}
    if upright:
        heads, *names = rows.columns
        body = [_row([name, *columns[name]], [True] * (rows.height + 1)) for name in names]
        return _table(["", *columns[heads]], [True] * (rows.height + 1), body)
    numbers = [rows.schema[name].is_numeric() for name in rows.columns]
    body = [_row(list(cells), numbers) for cells in zip(*columns.values(), strict=True)]
    return _table(rows.columns, numbers, body)


def csv_of(rows: pl.DataFrame) -> str:
    """Return the rows as CSV with every digit."""
    stream = io.StringIO()
    render(rows, "csv", stream=stream)
    return stream.getvalue()


def download(rows: pl.DataFrame, name: str, label: str) -> str:
    """Return a link that saves the rows as `<name>.csv`, without a network and without a script."""
    data = b64encode(csv_of(rows).encode()).decode()
    return (
        f'<a class="download" download="{escape(name)}.csv" href="data:text/csv;charset=utf-8;base64,{data}">'
        f"{escape(label)}</a>"
    )


def shown(value: object, column: str = "") -> str:
    """Write one value for reading: shares in percent, four digits of other fractions, thousands apart.

    >>> [shown(each) for each in (None, 0.123456, 999.96, True)]
    ['-', '0.1235', '1000', 'yes']
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NULL
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return spaced(value)
    if isinstance(value, float):
        if column.endswith("_share"):
            return f"{100 * value:.1f}\N{NO-BREAK SPACE}%"
        return spaced(value) if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def _table(names: list[str], numbers: list[bool], body: list[str]) -> str:
    heads = (f'<th scope="col"{_side(number)}>{escape(name)}</th>' for name, number in zip(names, numbers, strict=True))
    return f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _row(cells: list[str], numbers: list[bool]) -> str:
    first, *rest = cells
    others = (f"<td{_side(number)}>{escape(cell)}</td>" for cell, number in zip(rest, numbers[1:], strict=True))
    return f'<tr><th scope="row">{escape(first)}</th>{"".join(others)}</tr>'


def _side(number: bool) -> str:
    return ' class="number"' if number else ""
