"""SQL that reads a file's rows as texts, converts them to values, and finds which rules of its table each row breaks.

`problems_of` describes the broken rules for a dry run: where, the values at fault, and advice.

Text files without quotes and JSON arrays are read here; `pipelines.lake.generic` reads the other formats.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import duckdb

from pipelines.lake.sources.archive import Published
from pipelines.lake.sources.source import COMPUTED, Column, RawTable, Records, Source
from pipelines.lake.views import QUARANTINE

COLUMN_COUNT: Final = "column_count"
UNREADABLE: Final = "unreadable_line"
TOO_LONG: Final = "too_long"
DUPLICATE: Final = "duplicate_key"
SEPARATOR: Final = ", "
"""Text between the names of the rules that one row breaks."""
MOST_LINE_BYTES: Final = 2_000_000
KEPT_CHARACTERS: Final = 2_000
"""Number of characters of a text row that the quarantine keeps."""

UNQUOTED: Final = (
    "auto_detect = false, header = false, quote = '', escape = '', nullstr = '\x02', null_padding = true, "
    f"max_line_size = {MOST_LINE_BYTES}"
)
"""Options of DuckDB's CSV reader for text without quotes: an empty field is an empty text, an absent field is null."""

JSON_OBJECTS: Final = "format = 'array', maximum_object_size = 67108864"
STRICT: Final = "strict_mode = true"
MOST_LISTED: Final = 4
"""Maximum number of constants of an IN that DuckDB compares; it joins with longer lists, which is slower."""
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'")


def separated(
    path: Path, table: str, *, delimiter: str, skip: int, counts: Collection[int], least: int = 0, texts: str = ""
) -> Records:
    """Return the SQL of the fields `c1`, `c2`, ... of a text file without quotes, and of `f`, the list of them.

    Lines that DuckDB rejects (not UTF-8, too long, or with far too many fields) go to `<table>_rejects`. `skip` is the
    number of header lines. Rows whose number of fields is not in `counts` have a `fault`. The result has at least
    `least` columns; `texts` is the SQL of further ones, each after a comma.
    """
    names = [f"c{n}" for n in range(1, max(*counts, least) + 2)]
    kinds = ", ".join(f"'{name}': 'VARCHAR'" for name in names)
    # Absent fields are at the end, so exactly n fields exist if the n-th exists and the next does not.
    whole = " OR ".join(f"c{n} IS NOT NULL AND c{n + 1} IS NULL" for n in counts)
    fault = f"CASE WHEN NOT ({whole}) THEN '{COLUMN_COUNT}' END AS fault"
    # Rows at fault have no fields: the bytes of the lake's files depend on which columns have nulls.
    fields = f"CASE WHEN {whole} THEN [{', '.join(names[: max(counts)])}] END AS f"
    mark = delimiter.replace("'", "''")
    options = f"skip = {skip}, delim = '{mark}', columns = {{{kinds}}}, {UNQUOTED}, {STRICT}"
    rejects = f"store_rejects = true, rejects_table = '{table}_rejects', rejects_scan = '{table}_scan'"
    columns = f"*, {fields}, {fault}{texts}"
    # DuckDB rejects a line only for the columns that it reads, so every reading asks for all of them.
    every = f"WHERE hash({', '.join(names)}) IS NOT NULL"
    read = f"read_csv('{escaped(path)}', {options}"
    # DuckDB needs one thread to number rows, so rows are numbered only where they are read again.
    line = f"left(concat_ws('{mark}', {', '.join(names)}), {KEPT_CHARACTERS})"
    return Records(
        rows=f"(SELECT {columns} FROM {read}, {rejects}) {every})",
        numbered=f"(SELECT {columns}, nth + 1 + {skip} AS place, {line} AS line"
        f" FROM {numbered_by_order(f'{read}, ignore_errors = true) {every}')})",
        header_lines=skip,
        rejects=True,
    )


def lenient(records: Records) -> Records:
    """Return the SQL for a file with several kinds of line ends, of which DuckDB cuts off fields far too many."""
    rows, numbered = (sql.replace(STRICT, "strict_mode = false") for sql in (records.rows, records.numbered))
    return replace(records, rows=rows, numbered=numbered)


def no_rows(table: RawTable) -> str:
    """Return the SQL of no rows, for a table without a file."""
    fields = ", ".join(f"NULL::VARCHAR AS c{n}" for n in range(1, len(table.columns) + 1))
    return f"(SELECT NULL::VARCHAR AS line, NULL::VARCHAR[] AS f, NULL::VARCHAR AS fault, {fields} WHERE false)"


def json_array(path: Path) -> Records:
    """Return the SQL of the elements of a JSON array."""
    objects = f"(SELECT json AS line, NULL::VARCHAR AS fault FROM read_json_objects('{escaped(path)}', {JSON_OBJECTS}))"
    return Records(rows=objects, numbered=f"(SELECT *, nth + 1 AS place FROM {numbered_by_order(objects)})")


def numbered_by_order(rows: str) -> str:
    """Return the SQL of rows with `nth`, their number from 0."""
    return f"(SELECT row_number() OVER () - 1 AS nth, * FROM {rows})"


def escaped(path: Path) -> str:
    """Return a path escaped for an SQL string."""
    return str(path).replace("'", "''")


def parsed(table: RawTable, rows: str) -> str:
    """Return the SELECT that adds to each row the text (`t1`, `t2`, ...) and the value of each column."""
    columns = list(enumerate(table.columns, start=1))
    texts = ", ".join(f"{_text(column, n)} AS t{n}" for n, column in columns)
    # A separate SELECT, so that each text is cast once.
    numbers = "".join(f", try_cast(t{n} AS DOUBLE) AS d{n}" for n, column in columns if "{number}" in column.value)
    values = ", ".join(
        f'{column.value.replace("{text}", f"t{n}").replace("{number}", f"d{n}")} AS "{column.name}"'
        for n, column in columns
    )
    return f"(SELECT *, {values} FROM (SELECT *{numbers} FROM (SELECT *, {texts} FROM {rows})))"


def classified(table: RawTable, rows: str) -> str:
    """Return the SELECT that adds to each row its column values and the rules that it breaks (`rule`, null: none)."""
    return f"(SELECT *, {broken_rules(table)} AS rule FROM {parsed(table, rows)})"


def loaded(table: RawTable, rows: str) -> str:
    """Return the SELECT of the stored columns: kept columns, hash of the key, broken rules."""
    kept = ", ".join(f'"{name}"' for name in table.kept)
    # Rows with equal hashes are compared by their keys later, since different keys can have equal hashes.
    key = ", ".join(f'"{name}"' for name in table.key)
    return f"SELECT {kept}, {f'hash({key}) AS key_hash, ' if key else ''}rule FROM {classified(table, rows)}"


def _text(column: Column, place: int) -> str:
    """Return the SQL of a column's text, null if it is one of the column's missing-value texts."""
    if column.text is not None and not column.missing:
        return column.text
    text = f"trim({column.text or f'c{place}'})"
    missing = " OR ".join(f"{text} = '{each}'" for each in column.missing)
    if len(column.missing) <= MOST_LISTED:
        listed = ", ".join(f"'{each}'" for each in column.missing)
        missing = f"{text} IN ({listed})"
    return f"CASE WHEN NOT ({missing}) THEN {text} END"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """SQL that is true for a row at fault, and the columns at fault then."""

    sql: str
    columns: tuple[str, ...]


def faults_of(table: RawTable) -> dict[str, list[Fault]]:
    """Return the faults that break each rule of a table, by rule name; several rules may have one name."""
    found: dict[str, list[Fault]] = {}
    for column, unread in _unread(table).items():
        end = next(c.fault or c.name for c in table.columns if c.name == column)
        found.setdefault(f"unparsable_{end}", []).append(Fault(sql=unread, columns=(column,)))
    for rule in table.rules:
        for sql in rule.parts or (rule.bad,):
            found.setdefault(rule.name, []).append(Fault(sql=sql, columns=_columns_in(sql, table)))
    for link in table.links:
        own = tuple(dict.fromkeys(re.findall(r"\br\.(\w+)", link.bad)))
        found.setdefault(link.name, []).append(Fault(sql="true", columns=own))
    if table.key:
        found[DUPLICATE] = [Fault(sql="true", columns=table.key)]
    return found


def broken_rules(table: RawTable) -> str:
    """Return an SQL expression: the `fault` of a row, else the names of all rules that it breaks, or null.

    A rule is skipped if a column that it reads could not be parsed: an invalid time breaks only `unparsable_...`, not
    also the rule for a missing time. Rules about other rows and tables come later (`staging`).
    """
    unread, late = _unread(table), {DUPLICATE, *(link.name for link in table.links)}
    named = []
    for name, faults in faults_of(table).items():
        if name not in late:
            held = " OR ".join(_if_read(fault, table, unread) for fault in faults)
            named.append(f"CASE WHEN {held} THEN '{name}' END")
    # Most rows are good: the names are made only where this plain condition holds.
    bad = " OR ".join(f"({sql})" for sql in (*unread.values(), *(rule.bad for rule in table.rules)))
    names = f"WHEN {bad} THEN concat_ws('{SEPARATOR}', {', '.join(named)})" if named else ""
    return f"CASE WHEN fault IS NOT NULL THEN fault {names} END"


def values_at_fault(table: RawTable, rule: str) -> str | None:
    """Return the SQL of the columns at fault of a rule with their texts (`end_time = 10`); None if there are none."""
    faults, shown = faults_of(table).get(rule, []), []
    for position, column in enumerate(table.columns, start=1):
        held = [f"({fault.sql})" for fault in faults if column.name in fault.columns]
        if held:
            text = f'CAST("{column.name}" AS VARCHAR)' if column.text == COMPUTED else f"CAST(t{position} AS VARCHAR)"
            said = f"'{column.name} ' || coalesce('= ' || {text}, 'is missing')"
            shown.append(f"CASE WHEN {' OR '.join(held)} THEN {said} END")
    return f"concat_ws('{SEPARATOR}', {', '.join(shown)})" if shown else None


def _unread(table: RawTable) -> dict[str, str]:
    """Return the SQL that is true where a column's text cannot be read, for each column with such texts."""
    return {
        column.name: f't{position} IS NOT NULL AND "{column.name}" IS NULL'
        for position, column in enumerate(table.columns, start=1)
        if column.value != "{text}" and column.text != COMPUTED
    }


def _if_read(fault: Fault, table: RawTable, unread: dict[str, str]) -> str:
    """Return the SQL of a fault that holds only if all columns that it reads, also through computed ones, were read."""
    if fault.sql in unread.values():
        return f"({fault.sql})"
    read = list(fault.columns)
    computed = {column.name: column for column in table.columns if column.text == COMPUTED}
    for name in read:  # the list grows by the columns from which computed columns are derived
        if name in computed:
            read += [other for other in _columns_in(computed[name].value, table) if other not in read]
    return " AND ".join([f"({fault.sql})", *(f"NOT ({unread[name]})" for name in read if name in unread)])


def _columns_in(sql: str, table: RawTable) -> tuple[str, ...]:
    words = set(re.findall(r"\w+", _QUOTED.sub("", sql)))
    return tuple(column.name for column in table.columns if column.name in words)


_DEFAULT_CURE: Final = "the row contradicts itself: correct it, or leave it in quarantine"
_ORDER: Final = (
    "are the columns swapped, or in different time zones? In the hour that a clock change repeats, "
    "use times with an offset, or epoch seconds"
)
CURES: Final[dict[str, str]] = {
    "capacity_beyond_measure": "no machine is that large: is the unit right?",
    "column_count": "the row has more or fewer fields than its header: fetch or export the file again",
    "duplicate_key": "an earlier row has the same key and was kept: leave one row per key",
    "duration_contradicts_times": "the duration differs from end - start: correct one of them",
    "end_before_start": f"the end is before the start: {_ORDER}",
    "free_above_total": "free memory exceeds total memory: are the columns swapped?",
    "missing_key": "a key column is empty: fill it in",
    "negative": "the number is negative: correct it",
    "negative_capacity": "the capacity is negative: correct it",
    "negative_request": "the request is negative: correct it",
    "negative_time": "the time span is negative: are start and end swapped?",
    "negative_use": "the use is negative: correct it",
    "no_capacity": "the machine's sizes are missing: fill them in",
    "no_gpu_count": "the machine's number of GPUs is missing: fill it in, 0 for none",
    "no_instances": "fewer than one instance: leave it empty if it is unknown",
    "no_job": "the job table has no job with this id: is one of the files older?",
    "no_request": "the pod's request is missing: fill it in, 0 for none",
    "no_submit_time": "the submission time is missing: fill it in",
    "no_task": "the task table has no task with this name: is one of the files older?",
    "request_beyond_measure": "no job requests that much: is the unit right?",
    "share_contradicts_gpus": "a fraction of a GPU needs num_gpu = 1: correct either number",
    "start_before_submit": f"the start is before the submission: {_ORDER}",
    "start_outside_task": "the instance starts while its task does not run: is one of the files older?",
    "time_beyond_measure": "longer than three centuries: is the unit right?",
    "too_long": "the line is longer than 2 MB: fetch or export the file again",
    "total_contradicts_sum": "the total is not the sum of its parts: correct one of them",
    "unknown_status": "the status is not in the list of known ones: correct it",
    "unparsable_attempt_time": "an attempt's time cannot be read: expected YYYY-MM-DD HH:MM:SS",
    "unreadable_line": "the line is not UTF-8 text: fetch or export the file again",
    "use_beyond_measure": "no device is that busy: is the unit right?",
}
UNPARSABLE: Final = "unparsable_"


def cure_of(source: Source, rule: str) -> str:
    """Return advice on how to correct rows that break a rule of a source."""
    cure = source.cures.get(rule) or CURES.get(rule)
    if cure is None and rule.startswith(UNPARSABLE):
        return f"{rule.removeprefix(UNPARSABLE)} is not in the expected format: correct it, or leave it empty"
    return cure or _DEFAULT_CURE


SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A rule that rows of a file break: the number of these rows, the places of the first, and advice.

    `found` are the values at fault in the first of these rows, or the row's text if the row as a whole is at fault.
    """

    cluster: str
    file: str
    table: str
    rule: str
    rows: int
    first: str
    found: str
    cure: str


SHOWN: Final = 3
"""Number of rows of which a problem gives the places."""


def problems_of(
    work: duckdb.DuckDBPyConnection, source: Source, cluster: str, published: list[Published]
) -> Iterator[Problem]:
    """Yield the problems of the tables that were loaded into `work`, the most frequent of each table first."""
    for one in published:
        for rule, rows, places, nth, raw in work.execute(
            f"""SELECT one, count(*), min(place, {SHOWN}), arg_min(nth, row), arg_min(raw, row) FROM
            (SELECT *, unnest(string_split(rule, '{SEPARATOR}')) AS one FROM {QUARANTINE} WHERE "table" = ?)
            GROUP BY one ORDER BY count(*) DESC, one""",
            [one.table.name],
        ).fetchall():
            word = "row" if one.table.json_array else one.table.counted_in
            values = values_at_fault(one.table, rule)
            found = raw
            if values is not None and nth is not None and one.records is not None:
                row = f"(SELECT * FROM {one.records.numbered} WHERE nth = {nth})"
                [[found]] = work.execute(f"SELECT {values} FROM {parsed(one.table, row)}").fetchall()
            yield Problem(
                cluster=cluster,
                file=one.file or "",
                table=one.table.name,
                rule=rule,
                rows=rows,
                first=f"{word} {', '.join(map(str, places))}",
                found=(found or "")[:SHOWN_CHARACTERS],
                cure=cure_of(source, rule),
            )
