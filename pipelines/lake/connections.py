"""DuckDB connections, whoever needs one: of bounded memory, without extensions, sealed; and what is said of bad files.

Which files are read, and the views over them, are `pipelines.lake.lake`'s.
Called by `pipelines.lake.lake`, and by `pipelines.lake.generic` for files of others.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from pipelines.errors import LakeError

MEMORY_MB: Final = 1000
"""What DuckDB may hold at most, beside what Python does."""


def configured(
    path: Path | None, *, read_only: bool = False, spill: Path | None = None, memory_mb: int | None = None
) -> duckdb.DuckDBPyConnection:
    """Connect to a database file, or to one in memory; times are shown in UTC."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_mb or MEMORY_MB}MB",
        "threads": min(4, os.cpu_count() or 1),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if spill is not None:
        config["temp_directory"] = str(spill / "spill")
    connection = duckdb.connect(str(path or ":memory:"), read_only=read_only, config=config)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def seal(connection: duckdb.DuckDBPyConnection) -> None:
    """Let the connection reach no file but those already allowed, for good."""
    for setting in ("python_enable_replacements", "allow_community_extensions", "enable_external_access"):
        connection.execute(f"SET {setting} = false")
    connection.execute("SET lock_configuration = true")


@contextmanager
def opened_sealed(path: Path, spill: Path, target: Path, *, database: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open somebody's file for reading (a DuckDB database, or another that is then named in a query).

    The connection reaches that file, writes `target` and spills to `spill`, and nothing else.
    """
    connection = configured(path if database else None, read_only=database, spill=spill)
    try:
        allowed = [str(target)] if database else [str(path), str(target)]
        connection.execute(f"SET allowed_paths = {sql_list(allowed)}")
        seal(connection)
        yield connection
    finally:
        connection.close()


def sql_list(values: Iterable[str]) -> str:
    """Return texts as a list in SQL.

    >>> sql_list(["a", "it's"])
    "['a', 'it''s']"
    """
    return "[" + ", ".join("'" + v.replace("'", "''") + "'" for v in values) + "]"


def unreadable(connection: duckdb.DuckDBPyConnection, files: list[str], error: duckdb.Error) -> LakeError:
    """Say which of a table's files cannot be read."""
    for file in files:
        if not Path(file).is_file():
            return missing(Path(file))
        try:
            connection.execute(f"FROM read_parquet({sql_list([file])}) LIMIT 0")
        except duckdb.Error as fault:
            said = str(fault).partition("\n")[0].replace(file, "the file")[:200]
            return damaged(Path(file), said)
    said = str(error).partition("\n")[0][:200]
    return LakeError(f"the lake's files cannot be read together ({said}); expected one schema. Ingest them again.")


def missing(path: Path) -> LakeError:
    """Return the error of a file that the manifest names and nobody finds."""
    return LakeError(f"{path} is missing; expected every file that the manifest names. Ingest the trace again.")


def damaged(path: Path, said: str) -> LakeError:
    """Return the error of a file that is not as the ingest wrote it."""
    return LakeError(
        f"{path} is damaged ({said}); expected the Parquet file of the ingest. Remove it, and ingest again."
    )
