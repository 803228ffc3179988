"""Rows as an HTML table and as the CSV that is downloaded from it: the same rows and columns, every digit in the CSV.

Texts are escaped; nothing is chosen here. Called by `pipelines.report.page`.
"""

import io
import math
from base64 import b64encode
from html import escape
from typing import Final

import polars as pl

from pipelines.render import render
from pipelines.report.charts.panels import spaced

NULL: Final = "-"
_FORMULA: Final = r"^[=+\-@\t\r]"
"""How texts begin that spreadsheets take for formulas."""
_LONG: Final = ("file", "sha256")
"""Columns whose cells may be broken anywhere on paper."""
MOST_COLUMNS: Final = 8
"""Columns beyond which a table is set smaller on paper."""


def table(rows: pl.DataFrame, *, upright: bool) -> str:
    """Return the rows as `<table>`; upright, each row is a column headed by its first cell."""
    columns = {name: [shown(value, name) for value in rows[name].to_list()] for name in rows.columns}
    if upright:
        heads, *names = rows.columns
        kinds = ["number"] * (rows.height + 1)
        body = [_row([name, *columns[name]], kinds) for name in names]
        return _table(["", *columns[heads]], kinds, body)
    kinds = [_kind(name, dtype) for name, dtype in rows.schema.items()]
    body = [_row(list(cells), kinds) for cells in zip(*columns.values(), strict=True)]
    return _table(rows.columns, kinds, body)


def csv_of(rows: pl.DataFrame) -> str:
    """Return the rows as CSV with every digit; a text that a spreadsheet would run as a formula is quoted as text.

    >>> csv_of(pl.DataFrame({"user": ["=1+1", "ann"], "x": [-1, 2]})).splitlines()
    ['user,x', "'=1+1,-1", 'ann,2']
    """
    stream = io.StringIO()
    texts = [name for name, dtype in rows.schema.items() if dtype == pl.String]
    render(rows.with_columns(pl.col(name).str.replace(_FORMULA, "'${0}") for name in texts), "csv", stream=stream)
    return stream.getvalue()


def download(rows: pl.DataFrame, name: str, label: str, *, of: str) -> str:
    """Return a link that saves the rows as `<name>.csv`, without a network and without a script; `of` says of what."""
    data = b64encode(csv_of(rows).encode()).decode()
    return (
        f'<a class="download" aria-label="{escape(f"{label}: {of}")}" download="{escape(name)}.csv" '
        f'href="data:text/csv;charset=utf-8;base64,{data}">'
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


def _kind(name: str, dtype: pl.DataType) -> str:
    return "number" if dtype.is_numeric() else "long" if name in _LONG else ""


def _table(names: list[str], kinds: list[str], body: list[str]) -> str:
    heads = (f'<th scope="col"{_class(kind)}>{escape(name)}</th>' for name, kind in zip(names, kinds, strict=True))
    wide = _class("wide" if len(names) > MOST_COLUMNS else "")
    return f"<table{wide}><thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _row(cells: list[str], kinds: list[str]) -> str:
    first, *rest = cells
    others = (f"<td{_class(kind)}>{escape(cell)}</td>" for cell, kind in zip(rest, kinds[1:], strict=True))
    return f'<tr><th scope="row">{escape(first)}</th>{"".join(others)}</tr>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
