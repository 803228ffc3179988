"""DuckDB connections with a memory limit and no extensions; errors for missing or damaged files."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from pipelines.errors import LakeError

MEMORY_MB: Final = 1000
"""Memory limit of DuckDB in MB; the memory of Python itself is not included."""


MOST_THREADS: Final = 4


def configured(
    path: Path | None,
    *,
    read_only: bool = False,
    spill: Path | None = None,
    memory_mb: int | None = None,
    threads: int | None = None,
) -> duckdb.DuckDBPyConnection:
    """Connect to a DuckDB file, or to a database in memory if `path` is None; set its time zone to UTC."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_mb or MEMORY_MB}MB",
        "threads": min(MOST_THREADS, threads or os.cpu_count() or 1),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if spill is not None:
        config["temp_directory"] = str(spill / "spill")
    connection = duckdb.connect(str(path or ":memory:"), read_only=read_only, config=config)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")  # DuckDB would print it on stdout, among the rows
    return connection


def seal(connection: duckdb.DuckDBPyConnection) -> None:
    """Deny the connection access to all files except those already allowed; this cannot be undone."""
    for setting in ("python_enable_replacements", "allow_community_extensions", "enable_external_access"):
        connection.execute(f"SET {setting} = false")
    connection.execute("SET lock_configuration = true")


@contextmanager
def opened_sealed(path: Path, spill: Path, *, database: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a user's file on a sealed connection, which can read this file and write to `spill`, nothing else.

    It is a DuckDB database, opened read-only, or a file that a query will name.
    """
    connection = configured(path if database else None, read_only=database, spill=spill)
    try:
        connection.execute(f"SET allowed_paths = {sql_list([] if database else [str(path)])}")
        seal(connection)
        yield connection
    finally:
        connection.close()


def sql_list(values: Iterable[str]) -> str:
    """Return the SQL of a list of texts."""
    return "[" + ", ".join("'" + v.replace("'", "''") + "'" for v in values) + "]"


def unreadable(connection: duckdb.DuckDBPyConnection, files: list[str], error: duckdb.Error) -> LakeError:
    """Return an error that names the first of `files` that cannot be read."""
    for file in files:
        if not Path(file).is_file():
            return missing(Path(file))
        try:
            connection.execute(f"FROM read_parquet({sql_list([file])}) LIMIT 0")
        except duckdb.Error as fault:
            return damaged(Path(file), str(fault).partition("\n")[0].replace(file, "the file")[:200])
    reason = str(error).partition("\n")[0][:200]
    return LakeError(f"the lake's files cannot be read together ({reason}); expected one schema. Ingest them again.")


def missing(path: Path) -> LakeError:
    """Return the error for a file that the manifest names but that does not exist."""
    return LakeError(f"{path} is missing; expected every file that the manifest names. Ingest the trace again.")


def damaged(path: Path, reason: str) -> LakeError:
    """Return the error for a table file that is no longer as the ingest wrote it."""
    return LakeError(
        f"{path} is damaged ({reason}); expected the Parquet file of the ingest. Remove it, and ingest again."
    )
