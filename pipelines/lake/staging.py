"""Load one cluster, the unit of work of an ingest: load rows, quarantine bad ones, place the tables in the lake.

Rules compare the tables of a cluster, and keys within a whole file, so a smaller unit would need a second pass. Readers
see no rows before `pipelines.lake.ingest` commits the manifest.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb

from features.canonical import CANONICAL
from pipelines.errors import SourceError
from pipelines.lake.lake import Lake, configured
from pipelines.lake.manifest import Account, Output
from pipelines.lake.reading import (
    COLUMN_COUNT,
    DUPLICATE,
    KEPT_CHARACTERS,
    SEPARATOR,
    TOO_LONG,
    UNREADABLE,
    Problem,
    classified,
    escaped,
    json_array,
    lenient,
    loaded,
    no_rows,
    problems_of,
    separated,
)
from pipelines.lake.sources.archive import Cluster, Published, check_header, count_rows, ends_with, published_tables
from pipelines.lake.sources.source import RawTable, Records, Source
from pipelines.lake.views import COLUMNS, QUARANTINE

PART_ROWS: Final = 3_000_000
"""Number of rows that an ingest can aggregate and sort within its memory limit; larger tables are written in parts."""

MINUTE_US: Final = 60_000_000
BITS_MOST: Final = 1 << 28
"""Maximum number of bits, one per machine and minute, in `one_row_a_minute`: 32 MiB. Philly needs a sixth."""

UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
NOT_ITS_FORMAT = (
    duckdb.InvalidInputException,
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    UnicodeDecodeError,  # raised if DuckDB's error message quotes bytes of the file that are not valid text
)

Work = duckdb.DuckDBPyConnection
"""The database into which a cluster is loaded."""
Progress = Callable[[str, int, int], None]
"""Receives the current step, the bytes of the cluster's files that are read, and the bytes of all its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The result of loading one cluster: row counts per table, written files, and warnings."""

    accounts: list[Account]
    outputs: list[Output]
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The data that the clusters of one ingest share; `say` is None in other processes, which report no progress.

    A dry run collects problems in `problems`, also those found before loading fails.
    """

    lake: Path
    source: Source
    trace: str
    folder: Path
    threads: int | None = None
    say: Progress | None = None
    problems: list[Problem] | None = None


def load_cluster(loading: Loading, cluster: Cluster) -> Built:
    """Load a cluster's files and place its tables; repeating it changes nothing."""
    lake, source, say = Lake(loading.lake), loading.source, loading.say or (lambda *_: None)
    outputs = []
    with lake.storage.staged(cluster.name) as stage:
        published = published_tables(source, cluster, loading.folder, stage)
        total = sum(one.size for one in published)
        warnings = [f"no {one.table.name} table: its columns are empty or null" for one in published if not one.plain]
        with (
            TemporaryDirectory(dir=stage) as scratch,
            closing(configured(Path(scratch, "work.duckdb"), spill=Path(scratch), threads=loading.threads)) as work,
        ):
            try:
                accounts = load(work, source, cluster.name, published, stage, say)
            finally:
                if loading.problems is not None:
                    loading.problems.extend(problems_of(work, source, cluster.name, published))
            warnings += [r.text for r in source.remarks if _fetched(work, f"SELECT {r.holds}")]
            selects = {output: select_of(work, source, output) for output in source.outputs}
            selects[QUARANTINE] = f"SELECT * FROM {QUARANTINE}"
            for table, select in selects.items():
                say(f"writing {table} of {cluster.name}", total, total)
                for part in parts(work, source, table):
                    target = stage / f"{table}.parquet"
                    rows = write(work, select, part, table, loading.trace, cluster.name, target)
                    if rows:
                        outputs.append(lake.place(target, table, loading.trace, cluster.name, rows))
    return Built(accounts=accounts, outputs=outputs, warnings=[f"{cluster.name}: {text}" for text in warnings])


def load(
    work: Work,
    source: Source,
    cluster: str,
    published: list[Published],
    stage: Path,
    say: Progress = lambda *_: None,
) -> list[Account]:
    """Load every table of a cluster into `work`: good rows become views, bad rows go to the table `quarantine`.

    There `nth` is the place of a row in the loaded table, and `place` its line or row number in the file.
    """
    for macro in source.macros:
        work.execute(macro)
    kinds = {name: kind for name, kind in COLUMNS[QUARANTINE].items() if name not in ("trace", "cluster")}
    columns = ", ".join(f'"{name}" {kind}' for name, kind in (kinds | {"nth": "BIGINT", "place": "BIGINT"}).items())
    work.execute(f"CREATE TABLE {QUARANTINE} ({columns})")
    accounts, done, total = [], 0, sum(one.size for one in published)
    for one in published:
        say(f"reading {one.table.name} of {cluster}", done, total)
        try:
            accounts.append(_load_table(work, cluster, one, stage))
        except NOT_ITS_FORMAT as error:
            raise SourceError(f"{one.file} is not in its published format: {_first_line(error)}") from error
        done += one.size
    return accounts


def select_of(work: Work, source: Source, output: str) -> str:
    """Return the SELECT of a canonical table: the source's faster one (`Shortcut`) if the loaded rows allow it."""
    shortcut = source.shortcuts.get(output)
    if shortcut is None:
        return source.outputs[output]
    others = [t.name for t in source.tables if t.feeds == output and t.name != shortcut.table]
    if any(_fetched(work, f"SELECT EXISTS (FROM {name})") for name in others):
        return source.outputs[output]
    return shortcut.select if one_row_a_minute(work, shortcut.table) else source.outputs[output]


def one_row_a_minute(work: Work, table: str) -> bool:
    """Return whether every `ts` is a whole minute and unique per `machine`; False if checking needs too much memory."""
    low, high, whole, machines = work.execute(
        f"""SELECT min(epoch_us(ts)) // {MINUTE_US}, max(epoch_us(ts)) // {MINUTE_US},
            bool_and(epoch_us(ts) % {MINUTE_US} = 0), count(DISTINCT machine) FROM {table}"""
    ).fetchone() or (None, None, None, 0)
    if not whole or (high - low + 1) * machines > BITS_MOST:
        return False
    minutes = f"bitstring_agg(epoch_us(ts) // {MINUTE_US}, {low}, {high})"
    each = f"SELECT bit_count({minutes}) = count(*) AS one FROM {table} GROUP BY machine"
    return _fetched(work, f"SELECT bool_and(one) FROM ({each})") is True


def parts(work: Work, source: Source, output: str) -> list[str]:
    """Return SQL conditions that split a canonical table into parts to be written, ranges of `Source.split_by`.

    A small table is one part; the same rows give the same parts.
    """
    column = source.split_by.get(output)
    if column is None:
        return ["true"]
    feeding = " UNION ALL ".join(f'SELECT "{column}" FROM {t.name}' for t in source.tables if t.feeds == output)
    held = f"SELECT {column}, count(*) FROM ({feeding}) GROUP BY ALL ORDER BY ALL"
    bounds: list[str] = []
    rows = 0
    for value, count in work.execute(held).fetchall():
        if rows and rows + count > PART_ROWS:
            bounds.append("'" + value.replace("'", "''") + "'")
            rows = 0
        rows += count
    if not bounds:
        return ["true"]
    between = [f'"{column}" >= {low} AND "{column}" < {high}' for low, high in pairwise(bounds)]
    return [f'"{column}" < {bounds[0]}', *between, f'"{column}" >= {bounds[-1]}']


def write(work: Work, select: str, part: str, table: str, trace: str, cluster: str, target: Path) -> int:
    """Write the rows of a canonical table that satisfy `part` to Parquet, sorted; return their number.

    The same rows give the same file: the order is total and does not depend on the number of threads.
    """
    types = COLUMNS[table]
    known = {name for name, *_ in work.execute(f"DESCRIBE {select}").fetchall()}
    constants = {"trace": f"'{trace}'", "cluster": f"'{cluster}'"}
    casts = ", ".join(f'CAST("{name}" AS {types[name]}) AS "{name}"' for name in types if name in known)
    order = ", ".join(f'"{name}"' for name in _order_of(table) if name in known)
    ordered = f"SELECT {casts} FROM ({select}) WHERE {part} ORDER BY {order}"
    # Constant columns are added after the sort.
    columns = ", ".join(
        f'"{name}"' if name in known else f'CAST({constants.get(name, "NULL")} AS {kind}) AS "{name}"'
        for name, kind in types.items()
    )
    copied = f"SELECT {columns} FROM ({ordered})"
    work.execute(f"COPY ({copied}) TO '{escaped(target)}' (FORMAT parquet, COMPRESSION zstd)")
    return int(_fetched(work, f"SELECT count(*) FROM read_parquet('{escaped(target)}')") or 0)


def _load_table(work: Work, cluster: str, one: Published, stage: Path) -> Account:
    table = one.table
    names = list[str]()
    rows_in: int | None = 0
    if one.plain is None:
        work.execute(f"CREATE TABLE {table.name}_all AS {loaded(table, no_rows(table))}")
    else:
        if table.records is None and not table.json_array:
            names = check_header(one, one.plain)
        rows_in = _load_rows(work, one, one.plain, records_of(one, one.plain, names, stage))
    work.execute(f"CREATE TABLE {table.name}_header AS SELECT ?::VARCHAR[] AS names", [names])
    kept = ", ".join(f'"{name}"' for name in table.kept)
    work.execute(f"CREATE VIEW {table.name} AS SELECT {kept} FROM {table.name}_all WHERE rule IS NULL")
    account = _account(work, cluster, one, rows_in)
    if table.required and not account.rows_in:
        raise SourceError(f"{one.file} holds no rows; expected the {table.name} table. Fetch the file again.")
    return account


def records_of(one: Published, plain: Path, names: list[str], stage: Path) -> Records:
    """Return the SQL that reads a table's file; `names` are the column names in its header, if it has one."""
    table = one.table
    if table.records is not None:
        return table.records(plain, stage / f"{table.name}.records", one.file or "")
    if table.json_array:
        # DuckDB would accept a file that is cut between two jobs.
        if plain.stat().st_size and not ends_with(plain, b"]"):
            raise SourceError(f"{one.file} is truncated: it does not end its JSON array with ']'. Fetch it again.")
        return json_array(plain)
    with plain.open("rb") as stream:
        if stream.read(2) in UTF_16_MARKS:  # DuckDB would drop the first line
            raise SourceError(f"{one.file} begins as UTF-16 text; expected UTF-8. Export or fetch it again.")
    counts, header = table.fields or (len(names),), int(table.header is not None)
    return separated(plain, table.name, delimiter=",", skip=header, counts=counts, least=len(table.columns))


def _load_rows(work: Work, one: Published, plain: Path, records: Records) -> int | None:
    """Load a file's rows and quarantine bad ones; return their number, counted without DuckDB if the format allows."""
    table = one.table
    try:
        try:
            work.execute(f"CREATE TABLE {table.name}_all AS {loaded(table, records.rows)}")
        except duckdb.InvalidInputException:
            if not records.rejects:
                raise
            records = lenient(records)
            work.execute(f"CREATE TABLE {table.name}_all AS {loaded(table, records.rows)}")
    except (duckdb.OutOfMemoryException, duckdb.InterruptException):
        raise
    except duckdb.Error as error:
        if table.records is None:
            raise
        reason = _first_line(error).replace(str(plain), str(one.file))
        raise SourceError(f"{one.file} cannot be read: {reason}") from error
    one.records = records
    _apply_late_rules(work, table, records)
    _quarantine(work, one, records)
    return max(0, count_rows(plain) - records.header_lines) if records.rejects and table.records is None else None


def _apply_late_rules(work: Work, table: RawTable, records: Records) -> None:
    """Mark rows that repeat an earlier row's key, then rows that break rules about other tables, with all of these.

    Rows that already broke a rule are not compared with other rows and tables, because they are not kept.
    """
    name = table.name
    doubtful = f"SELECT key_hash FROM {name}_all WHERE rule IS NULL GROUP BY key_hash HAVING count(*) > 1"
    if table.key and _fetched(work, f"SELECT EXISTS ({doubtful})"):
        rows = f"SELECT rowid AS nth FROM {name}_all WHERE rule IS NULL AND key_hash IN ({doubtful})"
        work.execute(f"CREATE TEMP TABLE doubtful AS {rows}")
        read = classified(table, f"(SELECT * FROM {records.numbered} SEMI JOIN doubtful USING (nth))")
        key = ", ".join(f'"{column}"' for column in table.key)
        repeated = f"SELECT nth FROM {read} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY nth) > 1"
        work.execute(f"UPDATE {name}_all SET rule = '{DUPLICATE}' WHERE rowid IN ({repeated})")
        work.execute("DROP TABLE doubtful")
    if table.links:
        broken = " UNION ALL ".join(
            f"""SELECT {nth} AS nth, '{link.name}' AS rule, r.rowid AS place FROM {name}_all r
            WHERE rule IS NULL AND ({link.bad})"""
            for nth, link in enumerate(table.links)
        )
        marks = f"SELECT place, string_agg(rule, '{SEPARATOR}' ORDER BY nth) AS rule FROM ({broken}) GROUP BY place"
        work.execute(f"UPDATE {name}_all SET rule = marks.rule FROM ({marks}) AS marks WHERE {name}_all.rowid = place")


def _quarantine(work: Work, one: Published, records: Records) -> None:
    """Copy the raw text of every bad row to the quarantine; the file is read again only if it has bad rows."""
    name = one.table.name
    gaps = "SELECT 0 AS first, 0 AS lines WHERE false"
    if records.rejects:
        lines = f"SELECT line, any_value(csv_line) AS raw, min(error_type) AS why FROM {name}_rejects GROUP BY line"
        work.execute(
            f"""INSERT INTO {QUARANTINE} SELECT ?, ?, CASE why WHEN 'TOO MANY COLUMNS' THEN '{COLUMN_COUNT}'
            WHEN 'LINE SIZE OVER MAXIMUM' THEN '{TOO_LONG}' ELSE '{UNREADABLE}' END,
            line - {records.header_lines}, left(raw, {KEPT_CHARACTERS}), NULL, line FROM ({lines})""",
            [name, one.file],
        )
        # The n-th rejected line, if it is row r of the file, comes before the loaded rows from number r - n on.
        gaps = f"""SELECT first, max(lines) AS lines FROM
            (SELECT row - row_number() OVER (ORDER BY row) AS first, row_number() OVER (ORDER BY row) AS lines
            FROM {QUARANTINE} WHERE "table" = '{name}') GROUP BY first"""
    bad = f"SELECT rowid AS nth, rule FROM {name}_all WHERE rule IS NOT NULL"
    if _fetched(work, f"SELECT EXISTS ({bad})"):
        work.execute(
            f"""INSERT INTO {QUARANTINE}
            SELECT ?, ?, rule, nth + 1 + coalesce(lines, 0), line, nth, place + coalesce(lines, 0)
            FROM ({bad}) AS bad JOIN {records.numbered} AS read USING (nth)
            ASOF LEFT JOIN ({gaps}) AS gaps ON bad.nth >= gaps.first""",
            [name, one.file],
        )


def _account(work: Work, cluster: str, one: Published, rows_in: int | None) -> Account:
    name = one.table.name
    rows_good = _fetched(work, f"SELECT count(*) FROM {name}")
    rows_bad = _fetched(work, f"SELECT count(*) FROM {QUARANTINE} WHERE \"table\" = '{name}'")
    broken = work.execute(
        f"""SELECT one, count(*) FROM
        (SELECT unnest(string_split(rule, '{SEPARATOR}')) AS one FROM {QUARANTINE} WHERE "table" = '{name}')
        GROUP BY one ORDER BY one"""
    ).fetchall()
    return Account(
        cluster=cluster,
        table=name,
        file=one.file,
        feeds=one.table.feeds,
        rows_in=rows_good + rows_bad if rows_in is None else rows_in,
        rows_good=rows_good,
        rows_quarantined=rows_bad,
        quarantined=dict(broken),
    ).close()


def _fetched(work: Work, query: str) -> Any:  # Any: the type of the column
    """Return the first value that a query gives."""
    [value, *_] = work.execute(query).fetchone() or (None,)
    return value


def _order_of(table: str) -> list[str]:
    if table == QUARANTINE:
        return ["table", "row", "rule", "raw"]
    key = [c for c in CANONICAL[table].key if c not in ("trace", "cluster")]
    return ["submit_ts", *key] if table == "jobs" else key


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300]
