"""The report as one HTML file: styles, charts with their scripts, tables and CSV downloads, without network access.

A content security policy allows only scripts with known hashes and no connection, so text of a trace cannot run as a
script. `page.html.j2` is the page; Jinja escapes every text in it.
"""

import io
import json
import math
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import altair as alt
import polars as pl
from jinja2 import Environment, StrictUndefined

from pipelines.render import render
from pipelines.report.panels import spaced
from pipelines.report.parts import Figure, Note, Section, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

NULL: Final = "-"
_LONG: Final = ("file", "sha256")
"""Columns whose long cells may be broken at any character when the page is printed."""
MOST_COLUMNS: Final = 8
"""Maximum number of columns of a table printed in normal size; wider tables are printed smaller."""
ROWS_SHOWN: Final = 400
"""Maximum number of rows of a table on the page; its CSV download has all rows."""


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return the whole page; the same sections give the same bytes."""
    scripts = [_library(), _asset("drawing.js")]
    specs = {part.name: _spec(part.chart) for section in sections for part in section.parts if isinstance(part, Figure)}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"csv_address": _csv_address, "grid": _grid, "heading": _title}
    return environment.from_string(_asset("page.html.j2")).render(
        title=title,
        subtitle=subtitle,
        sections=[_sorted(each) for each in sections],
        style=_asset("page.css"),
        specs=_json(specs),
        scripts=scripts,
        hashes=" ".join(_hashed(script) for script in scripts),
        notices=_asset("notices.txt"),
        rows_shown=ROWS_SHOWN,
    )


def _sorted(section: Section) -> "Mapping[str, object]":
    """Return the parts of a section by kind, in the order of the page: figures, tables, notes."""
    return {
        "name": section.name,
        "title": section.title,
        "intro": section.intro,
        "figures": [part for part in section.parts if isinstance(part, Figure)],
        "tables": [part for part in section.parts if isinstance(part, Table)],
        "notes": [part for part in section.parts if isinstance(part, Note)],
    }


def _grid(part: Table) -> "Mapping[str, object]":
    """Return the cells of a table; of an `upright` one, each row is a column headed by the row's first cell."""
    rows = part.rows.head(ROWS_SHOWN)
    columns = [[name, *(shown(value, name) for value in rows[name].to_list())] for name in rows.columns]
    kinds = [_kind(name, dtype) for name, dtype in rows.schema.items()]
    if part.upright:
        head, *body = [["", *columns[0][1:]], *columns[1:]]
        kinds = ["number"] * len(head)
    else:
        head, *body = [list(line) for line in zip(*columns, strict=True)]
    lines = [[{"text": text, "kind": kind} for text, kind in zip(line, kinds, strict=True)] for line in (head, *body)]
    return {"head": lines[0], "body": lines[1:], "wide": len(head) > MOST_COLUMNS}


def csv_of(rows: pl.DataFrame) -> str:
    """Return the rows as CSV with every digit; texts that a spreadsheet would run as formulas get a leading apostrophe.

    >>> csv_of(pl.DataFrame({"user": ["=1+1", "ann"], "x": [-1, 2]})).splitlines()
    ['user,x', "'=1+1,-1", 'ann,2']
    """
    stream = io.StringIO()
    render(rows, "csv", stream=stream)
    return stream.getvalue()


def _csv_address(rows: pl.DataFrame) -> str:
    """Return the rows as the address of a link that saves them without network or script."""
    return f"data:text/csv;charset=utf-8;base64,{b64encode(csv_of(rows).encode()).decode()}"


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
