"""The report as one HTML file: styles, charts with their scripts, tables and CSV downloads, without network access.

A content security policy allows only scripts with known hashes and no connection, so text of a trace cannot run as a
script.
"""

import io
import json
import math
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import altair as alt
import polars as pl

from pipelines.render import render
from pipelines.report.charts.panels import spaced
from pipelines.report.parts import Figure, Note, Part, Section, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

NULL: Final = "-"
_FORMULA: Final = r"^[=+\-@\t\r]"
"""Pattern of texts that spreadsheets treat as formulas, by their first character."""
_LONG: Final = ("file", "sha256")
"""Columns whose long cells may be broken at any character when the page is printed."""
MOST_COLUMNS: Final = 8
"""Maximum number of columns of a table printed in normal size; wider tables are printed smaller."""


def table(rows: pl.DataFrame, *, upright: bool) -> str:
    """Return the rows as an HTML table; with `upright`, each row becomes a column headed by the row's first cell."""
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
    """Return the rows as CSV with every digit; texts that a spreadsheet would run as formulas get a leading apostrophe.

    >>> csv_of(pl.DataFrame({"user": ["=1+1", "ann"], "x": [-1, 2]})).splitlines()
    ['user,x', "'=1+1,-1", 'ann,2']
    """
    stream = io.StringIO()
    texts = [name for name, dtype in rows.schema.items() if dtype == pl.String]
    render(rows.with_columns(pl.col(name).str.replace(_FORMULA, "'${0}") for name in texts), "csv", stream=stream)
    return stream.getvalue()


def download(rows: pl.DataFrame, name: str, label: str, *, of: str) -> str:
    """Return a link that saves the rows as `<name>.csv`, without network or script.

    `of` names what the rows describe, for screen readers.
    """
    data = b64encode(csv_of(rows).encode()).decode()
    return (
        f'<a class="download" aria-label="{escape(f"{label}: {of}")}" download="{escape(name)}.csv" '
        f'href="data:text/csv;charset=utf-8;base64,{data}">'
        f"{escape(label)}</a>"
    )


def shown(value: object, column: str = "") -> str:
    """Format a table cell: shares in percent, other fractions with four digits, integers with separated thousands.

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


ROWS_SHOWN: Final = 400
"""Maximum number of rows of a table on the page; its CSV download has all rows."""


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return the whole page; the same sections give the same bytes."""
    scripts = [_library(), _asset("drawing.js")]
    specs = {part.name: _spec(part.chart) for section in sections for part in section.parts if isinstance(part, Figure)}
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(_hashed(script) for script in scripts)}",
            "style-src 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    links = "".join(f'<a href="#{escape(each.name)}">{escape(each.title)}</a>' for each in sections)
    body = "\n".join(_section(each) for each in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_asset("page.css")}</style>
</head>
<body>
<header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p><nav aria-label="Sections">{links}</nav></header>
<noscript><p class="note">Charts need scripts, which are off in this browser. The tables are complete.</p></noscript>
<main>
{body}
</main>
<script type="application/json" id="charts">{_json(specs)}</script>
{"".join(f"<script>{script}</script>" for script in scripts)}
<details class="notices"><summary>Licences of the charting libraries</summary>
<pre>{escape(_asset("notices.txt"))}</pre></details>
</body>
</html>
"""


def _section(section: Section) -> str:
    """Render a section as HTML: figures side by side, then tables, then notes."""
    tables, notes = (_of(section.parts, kind) for kind in (Table, Note))
    drawn = [each for each in section.parts if isinstance(each, Figure)]
    figures, folded = ([each for each in drawn if each.folded == fold] for fold in (False, True))
    grid = _grid(figures)
    if folded:
        grid += f'<details class="fold"><summary>{escape(section.fold)}</summary>{_grid(folded)}</details>'
    intro = "".join(f"<p>{escape(each)}</p>" for each in section.intro.splitlines())
    said = f'<ul class="notes">{"".join(notes)}</ul>' if notes else ""
    return (
        f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>{intro}'
        f"{grid}{''.join(tables)}{said}</section>"
    )


def _grid(figures: Sequence[Part]) -> str:
    return f'<div class="figures">{"".join(map(_part, figures))}</div>' if figures else ""


def _of(parts: Sequence[Part], kind: type[Part]) -> list[str]:
    return [_part(part) for part in parts if isinstance(part, kind)]


def _part(part: Part) -> str:
    if isinstance(part, Figure):
        return (
            f'<figure><div class="chart" data-chart="{escape(part.name)}"></div>'
            f"<figcaption>{download(part.rows, part.name, 'data (CSV)', of=_title(part.chart))}</figcaption></figure>"
        )
    if isinstance(part, Table):
        more = f" The first {ROWS_SHOWN} of {part.rows.height} rows." if part.rows.height > ROWS_SHOWN else ""
        return (
            f'<div class="table" id="table-{escape(part.name)}"><h3>{escape(part.title)}</h3>'
            f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(part.title)}">'
            f"{table(part.rows.head(ROWS_SHOWN), upright=part.upright)}</div>"
            f"<p>{escape(part.said)}.{more} {download(part.rows, part.name, 'table (CSV)', of=part.title)}</p></div>"
        )
    return f"<li>{escape(part.text)}</li>"


def _title(chart: alt.TopLevelMixin) -> str:
    """Return a chart's title in one line."""
    lines = getattr(chart, "title", alt.Undefined)
    text = getattr(lines, "text", lines)
    return " ".join(text) if isinstance(text, list) else str(text)


def _spec(chart: alt.TopLevelMixin) -> "Mapping[str, object]":
    with alt.data_transformers.enable("default", max_rows=None):
        spec: dict[str, object] = chart.to_dict()
    del spec["$schema"]  # an external address, which the page must not contain
    return spec


def _library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    from vl_convert import javascript_bundle

    bundle = javascript_bundle()  # type: ignore[call-arg]  # the stub requires an argument that has a default
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _asset(name: str) -> str:
    return files("pipelines.report").joinpath(name).read_text(encoding="utf-8")


def _hashed(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def _json(value: object) -> str:
    """Return JSON escaped so that it cannot close its HTML element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
