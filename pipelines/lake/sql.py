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
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import duckdb
import polars as pl
import pyarrow as pa

from pipelines.errors import QueryRefused
from pipelines.lake.lake import Lake
from pipelines.lake.query_limits import CURE, MB, QueryLimits, spill_folder

__all__ = ["query"]

BATCH_ROWS: Final = 10_000

TABLE_FUNCTIONS: Final = frozenset({"range", "generate_series", "unnest", "repeat", "json_each", "json_tree"})
"""The allowed table functions; all others read files or change the database."""


@contextmanager
def query(
    lake: Lake,
    text: str,
    *,
    memory_mb: int = 1500,
    time_s: float = 60.0,
    spill_mb: int = 1000,
    tabular: bool = False,
) -> Iterator[pl.DataFrame]:
    """Run one SELECT and yield its rows; render them in the block, which is part of the limits (`QueryLimits`).

    Raises
    ------
    QueryRefused
        If the text is not one SELECT, accesses anything outside the lake, exceeds a limit, or DuckDB cannot run it.
    LakeError
        If there is no lake.
    """
    limits = QueryLimits(memory_mb=memory_mb, time_s=time_s, spill_mb=spill_mb, tabular=tabular)
    stopped: list[str] = []
    with spill_folder() as spill, closing(lake.connect_sealed(spill, memory_mb=limits.buffer_mb)) as connection:

        def stop(reason: str) -> None:
            stopped.append(reason)
            connection.interrupt()

        try:
            refuse_all_but_select(connection, text)
            pa.array([0])  # Arrow reserves 1 GiB of addresses at its first use, which must not count as the query's
            with limits.applied(spill, stop) as phase:
                rows = _plain(pl.DataFrame(_fetched(connection, text, limits, stopped)))
                phase.begin_rendering()
                yield rows
        except (duckdb.InterruptException, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt) and not stopped:
                raise
            raise QueryRefused(f"the query {stopped[0] if stopped else 'was interrupted'}") from error
        except (duckdb.OutOfMemoryException, MemoryError, pa.ArrowMemoryError) as error:
            raise QueryRefused(
                f"the query needs more than {limits.memory_mb} MB of memory; {CURE} --memory-mb"
            ) from error
        except duckdb.PermissionException as error:
            raise QueryRefused(f"the query accesses something outside the lake: {_first_line(error)}") from error
        except pl.exceptions.PolarsError as error:
            raise QueryRefused(
                f"a column of a type that cannot be printed ({_first_line(error)}); cast it to VARCHAR"
            ) from error
        except duckdb.Error as error:
            raise QueryRefused(f"DuckDB cannot run the query: {_with_hint(error)}") from error


def _fetched(
    connection: duckdb.DuckDBPyConnection, text: str, limits: QueryLimits, stopped: Sequence[str]
) -> "pa.Table":
    """Return the rows of a query, fetched in batches so that their size and the time are limited.

    Raises
    ------
    QueryRefused
        The result is larger than the limit.
    duckdb.InterruptException
        The query was stopped, for the reason in `stopped`.
    """
    reader = connection.sql(text).to_arrow_reader(BATCH_ROWS)
    batches, size = [], 0
    for batch in reader:
        batches.append(batch)
        size += batch.nbytes
        if size > limits.result_mb * MB:
            raise QueryRefused(f"the result is larger than {limits.result_mb} MB; {CURE} --memory-mb")
        if stopped:
            raise duckdb.InterruptException(stopped[0])
    return pa.Table.from_batches(batches, schema=reader.schema)


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
