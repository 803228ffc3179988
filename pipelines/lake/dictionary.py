"""Generate `docs/data-dictionary.md`, every table and view of a lake: `python -m pipelines.lake.dictionary`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import dataframely as dy
import duckdb

from features.tables import TABLES
from features.vocabulary import GPU_MEM_GIB_OF_TYPE, TASK_TYPE_OF_WORKLOAD
from pipelines.lake import views
from pipelines.lake.views import COLUMNS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "data-dictionary.md"

_OPENING: Final = """# Data dictionary

Generated from the schemas (`python -m pipelines.lake.dictionary`); `docs/queries.md` shows example queries.

A lake stores its tables as Parquet files. The file `taut.duckdb` next to them has a view of each table, so DuckDB's
shell, or any tool that reads DuckDB files, can query them: `duckdb data/lake/taut.duckdb`, or `taut sql`. It contains
the same descriptions as comments (`FROM duckdb_columns()`). Units are in the names: `_s` seconds, `_h` hours, `_gib`
GiB, `_cores` CPU cores, `_frac` a fraction from 0 to 1, `_ts` a time in UTC, `_local` a time in the trace's own time
zone. Null means that the trace does not contain the value.
"""


def page() -> str:
    """Return the Markdown text of the page."""
    tables = [_table_section(view) for name, view in views.DESCRIBED.items() if name not in views.VIEWS]
    types = _types_of_views()
    derived = [_view_section(view, types[name]) for name, view in views.VIEWS.items()]
    return "\n".join([_OPENING, "## Tables\n", *tables, "## Views\n", *derived, _vocabulary()])


def _table_section(view: views.View) -> str:
    schema = TABLES.get(view.name)
    rules = {name: _rule(column) for name, column in schema.columns().items()} if schema else {}
    rows = [(f"`{name}`", kind, rules.get(name, ""), view.columns[name]) for name, kind in COLUMNS[view.name].items()]
    return _section(view, ("column", "type", "rule", "meaning"), rows)


def _view_section(view: views.View, kinds: dict[str, str]) -> str:
    rows = [(f"`{name}`", kind, view.columns[name]) for name, kind in kinds.items()]
    return _section(view, ("column", "type", "meaning"), rows)


def _section(view: views.View, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    lines.insert(1, "|---" * len(heads) + "|")
    return f"### {view.name}\n\n{view.description}\n\n" + "\n".join(lines) + "\n"


def _rule(column: dy.Column) -> str:
    """Describe the constraints on a column's values, apart from its type."""
    rules = ["key"] if column.primary_key else [] if column.nullable else ["never null"]
    least = getattr(column, "min", None)
    return ", ".join(rules if least is None else [*rules, f"at least {least:g}"])


def _types_of_views() -> dict[str, dict[str, str]]:
    """Return the columns of each view with their types, which DuckDB derives from empty tables."""
    with duckdb.connect() as connection:
        for name, kinds in COLUMNS.items():
            columns = ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
            connection.execute(f"CREATE TABLE {name} ({columns})")
        for creation in views.creations({}):
            connection.execute(creation)
        return {
            name: {str(row[0]): _short(str(row[1])) for row in connection.execute(f"DESCRIBE {name}").fetchall()}
            for name in views.VIEWS
        }


def _short(kind: str) -> str:
    return "TIMESTAMPTZ" if kind == "TIMESTAMP WITH TIME ZONE" else kind


def _vocabulary() -> str:
    tags = "\n".join(f"| `{tag}` | `{kind}` |" for tag, kind in TASK_TYPE_OF_WORKLOAD.items())
    devices = "\n".join(f"| `{name}` | {gib:g} |" for name, gib in GPU_MEM_GIB_OF_TYPE.items())
    return (
        "## Vocabulary\n\nA raw tag (`workload`) and its task type (`task_type`); any other tag is `other`.\n\n"
        f"| workload | task_type |\n|---|---|\n{tags}\n\n"
        f"Memory of one GPU, by its type.\n\n| gpu_type | GiB |\n|---|---|\n{devices}\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
