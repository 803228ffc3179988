"""Run a user's SELECT on the lake's tables and views, on a connection without access to other files.

`pipelines.lake.lake` creates the views and opens the connection; `pipelines.render` prints the rows.
Called by `taut sql`, and by `pipelines.lake.generic` for the queries of mappings.

Notes
-----
Two measures protect files and the database. The text must be one SELECT whose table functions only generate rows. The
connection is sealed: it can read only the lake's Parquet files and can neither load extensions, change settings nor use
the network.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb
import polars as pl

from pipelines.errors import QueryRefused
from pipelines.lake.lake import Lake

__all__ = ["query"]

TABLE_FUNCTIONS: Final = frozenset({"range", "generate_series", "unnest", "repeat", "json_each", "json_tree"})
"""The allowed table functions; all others read files or change the database."""


def query(lake: Lake, text: str) -> pl.DataFrame:
    """Run one SELECT on the lake's tables (`jobs`, `usage`, ..., `quarantine`) and views; return its rows.

    Raises
    ------
    QueryRefused
        If the text is not one SELECT, accesses anything outside the lake, or DuckDB cannot run it.
    LakeError
        If there is no lake.
    """
    with tempfile.TemporaryDirectory(prefix="taut-sql-") as spill:
        connection = lake.connect_sealed(Path(spill))
        try:
            refuse_all_but_select(connection, text)
            return _plain(pl.DataFrame(connection.sql(text).to_arrow_table()))
        except duckdb.PermissionException as error:
            raise QueryRefused(f"the query accesses something outside the lake: {_first_line(error)}") from error
        except pl.exceptions.PolarsError as error:
            raise QueryRefused(
                f"a column of a type that cannot be printed ({_first_line(error)}); cast it to VARCHAR"
            ) from error
        except duckdb.Error as error:
            raise QueryRefused(f"DuckDB cannot run the query: {_with_hint(error)}") from error
        finally:
            connection.close()


def refuse_all_but_select(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Check that the text is one SELECT that calls only the table functions in `TABLE_FUNCTIONS`.

    Raises
    ------
    QueryRefused
        If the text holds several statements or another kind of statement, or calls another table function.
    """
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise QueryRefused(f"{len(statements)} statements; expected one SELECT")
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        raise QueryRefused(f"a {kind.name} statement; expected one SELECT (the lake is for reading)")
    [[serialized]] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
    tree = json.loads(serialized)
    if tree["error"]:
        raise QueryRefused("a statement that DuckDB cannot parse into a tree; expected one plain SELECT")
    foreign = sorted(set(_table_functions(tree)) - TABLE_FUNCTIONS)
    if foreign:
        allowed = ", ".join(sorted(TABLE_FUNCTIONS))
        raise QueryRefused(f"the table function {foreign[0]!r}; expected the lake's tables, or {allowed}")


def _plain(rows: pl.DataFrame) -> pl.DataFrame:
    """Replace decimals by integers or floats; DuckDB returns sums of integers as decimals of 38 digits."""
    wide = {name: dtype for name, dtype in rows.schema.items() if isinstance(dtype, pl.Decimal)}
    narrow = {name: pl.Float64() if dtype.scale else pl.Int64() for name, dtype in wide.items()}
    return rows.with_columns(pl.col(name).cast(dtype) for name, dtype in narrow.items())


def _table_functions(node: object) -> Iterator[str]:
    """Yield the name of every table function in a statement's syntax tree."""
    if isinstance(node, list):
        for item in node:
            yield from _table_functions(item)
    elif isinstance(node, dict):
        function = node.get("function")
        if node.get("type") == "TABLE_FUNCTION" and isinstance(function, dict):
            yield str(function.get("function_name", "")).lower()
        for item in node.values():
            yield from _table_functions(item)


def _with_hint(error: Exception) -> str:
    """Return DuckDB's message and its suggestion in one line, without the excerpt of the query."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())[:500]


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].split(". Hint:", 1)[0][:300]
