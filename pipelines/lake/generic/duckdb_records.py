"""Records of Parquet files and of DuckDB databases, by DuckDB's own readers on a connection that reaches nothing else.

Other formats are read by the files beside it. Called by `pipelines.lake.generic.declaration`.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from pipelines.errors import QueryRefused, SourceError
from pipelines.lake.connections import opened_sealed
from pipelines.lake.generic.csv_records import require
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.generic.records import KEPT_CHARACTERS, MOST_RECORD_CHARACTERS, TOO_LONG, names_of
from pipelines.lake.raw_rows import escaped
from pipelines.lake.sql import refuse_all_but_select

NESTED = ("STRUCT", "MAP", "UNION", "BLOB", "BIT")


def duckdb_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int], target: Path) -> int:
    """Write the rows of a Parquet file, or of a query in a DuckDB file, as records; return how many.

    Raises
    ------
    SourceError
        If the file is damaged or of another format, lacks a wanted column, or the query is no plain SELECT.
    """
    database = rows.format == "duckdb"
    try:
        with (
            TemporaryDirectory(prefix="records-", dir=target.parent) as spill,
            opened_sealed(path, Path(spill), target, database=database) as connection,
        ):
            if database:
                refuse_all_but_select(connection, rows.query or "")
            found = f"({rows.query}\n)" if database else f"read_parquet('{escaped(path)}', hive_partitioning = false)"
            return _write(connection, found, file, wanted, target)
    except QueryRefused as error:
        raise SourceError(f"{file} with the mapping's query: {error}") from error
    except duckdb.Error as error:
        said = str(error).partition("\n")[0].replace(str(path), file)[:300]
        raise SourceError(f"{file} cannot be read as {rows.format}: {said}") from error


def _write(
    connection: duckdb.DuckDBPyConnection, found: str, file: str, wanted: Sequence[str | int], target: Path
) -> int:
    described = {str(row[0]): str(row[1]) for row in connection.execute(f"DESCRIBE SELECT * FROM {found}").fetchall()}
    for name in map(str, wanted):
        kind = described[require(file, name, list(described))]
        if kind.startswith(NESTED) or kind.endswith("]"):
            raise SourceError(f"{file}: the column {name!r} is of type {kind[:60]}; expected a number, text or time")
    quoted = ['"' + str(name).replace('"', '""') + '"' for name in wanted]
    texts = [f"CAST({name} AS VARCHAR) AS {text}" for name, text in zip(quoted, names_of(len(quoted)), strict=True)]
    names = names_of(len(quoted))
    length = " + ".join(f"coalesce(length({name}), 0)" for name in names)
    fault = f"CASE WHEN {length} > {MOST_RECORD_CHARACTERS} THEN '{TOO_LONG}' END"
    shown = ", ".join(f"coalesce({name}, '')" for name in names)
    raw = f"left(concat_ws(', ', {shown}), {KEPT_CHARACTERS})"
    kept = ", ".join(f"CASE WHEN {length} <= {MOST_RECORD_CHARACTERS} THEN {name} END AS {name}" for name in names)
    connection.execute(
        f"""COPY (SELECT row, row AS place, {raw} AS raw, {fault} AS fault, {kept}
            FROM (SELECT row_number() OVER () AS row, {", ".join(texts)} FROM {found}))
        TO '{escaped(target)}' (FORMAT parquet, COMPRESSION zstd)"""
    )
    [[rows]] = connection.execute(f"SELECT count(*) FROM read_parquet('{escaped(target)}')").fetchall()
    return int(rows)
