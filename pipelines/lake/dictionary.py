"""Generate `docs/data-dictionary.md`, every table and view of a lake: `python -m pipelines.lake.dictionary`."""

from pathlib import Path
from typing import Final

import duckdb

from features.canonical import CANONICAL
from features.vocabulary import GPU_MEM_GIB_OF_TYPE, TASK_TYPE_OF_WORKLOAD
from pipelines.lake import views

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
    with duckdb.connect() as connection:
        for name, kinds in views.COLUMNS.items():
            columns = ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
            connection.execute(f"CREATE TABLE {name} ({columns})")
        for creation in views.creations({}):
            connection.execute(creation)
        described = {name: connection.execute(f"DESCRIBE {name}").fetchall() for name in views.DESCRIBED}
    types = {name: {str(row[0]): str(row[1]) for row in rows} for name, rows in described.items()}
    sections = {name: _section(view, types[name]) for name, view in views.DESCRIBED.items()}
    tables = [text for name, text in sections.items() if name not in views.VIEWS]
    derived = [sections[name] for name in views.VIEWS]
    return "\n".join([_OPENING, "## Tables\n", *tables, "## Views\n", *derived, _vocabulary()])


def _section(view: views.View, kinds: dict[str, str]) -> str:
    """Describe a table or view; a table has rules for the values of its columns, apart from their types."""
    heads, rules = ["column", "type", "meaning"], {}
    if view.name not in views.VIEWS:
        heads.insert(2, "rule")
        rules = {name: _rule(view.name, name) for name in kinds}
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, kind in kinds.items():
        short = kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")
        cells = [f"`{name}`", short, *([rules[name]] if rules else []), view.columns[name]]
        lines.append(f"| {' | '.join(cells)} |")
    return f"### {view.name}\n\n{view.description}\n\n" + "\n".join(lines) + "\n"


def _rule(table: str, name: str) -> str:
    if table not in CANONICAL:
        return ""
    column = CANONICAL[table].columns[name]
    rules = ["key"] if column.key else [] if column.nullable else ["never null"]
    return ", ".join(rules if column.least is None else [*rules, f"at least {column.least:g}"])


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
