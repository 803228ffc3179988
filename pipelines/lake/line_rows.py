"""Rows read line by line, each line split into fields by a function: slow, and right for any bytes whatever.

Reading plain files by typed columns is `pipelines.lake.typed_rows`', which leaves to this file what it cannot read.
Called by `pipelines.lake.staging` and `pipelines.lake.typed_rows`.
"""

from pathlib import Path

from pipelines.lake.classification import classified, known_text
from pipelines.lake.sources.source import RawTable

# One column per line: DuckDB splits lines, and a line is split into fields by a function, so that a row with too many
# or too few fields is a row like any other. \1 and \2 occur in no text file.
LINES = (
    "columns = {'line': 'VARCHAR'}, auto_detect = false, header = false, delim = '\x01', quote = '', escape = '', "
    "nullstr = '\x02', strict_mode = false, ignore_errors = true"
)
JSON_OBJECTS = "format = 'array', maximum_object_size = 67108864"
NO_LINES = "(SELECT NULL::BIGINT AS row, NULL::VARCHAR AS line WHERE false)"


def numbered(table: RawTable, plain: Path, *, keep_rejects: bool = False) -> str:
    """Return the SQL that reads a file as numbered lines (of JSON: as numbered elements of its array)."""
    path = escaped(plain)
    if table.json_array:
        rows = f"(SELECT json AS line FROM read_json_objects('{path}', {JSON_OBJECTS}))"
    else:
        kept = f"store_rejects = true, rejects_table = '{table.name}_rejects', rejects_scan = '{table.name}_scan'"
        rejects = f", {kept}" if keep_rejects else ""
        rows = f"read_csv('{path}', skip = {header_lines(table)}, {LINES}{rejects})"
    return f"(SELECT row_number() OVER () AS row, line FROM {rows})"


def from_lines(table: RawTable, lines: str, names: int) -> str:
    """Return the SELECT that splits numbered lines and classifies them; `names` is how many names the header has."""
    fields = "" if table.json_array else ", string_split(line, ',') AS f"
    texts = [known_text(c, f"trim({c.text or f'f[{position}]'})") for position, c in enumerate(table.columns, start=1)]
    counts = ", ".join(str(n) for n in allowed_counts(table, names))
    column_count = [] if table.json_array else [f"WHEN len(f) NOT IN ({counts}) THEN 'column_count'"]
    return classified(table, f"(SELECT *{fields} FROM {lines})", texts, column_count)


def allowed_counts(table: RawTable, names: int) -> tuple[int, ...]:
    """Return the field counts that a row may have."""
    return table.fields or (names,)


def header_lines(table: RawTable) -> int:
    """Return how many lines stand before the first row."""
    return 0 if table.header is None else 1


def escaped(path: Path) -> str:
    """Return a path as it stands in a string of SQL."""
    return str(path).replace("'", "''")


def numbered_records(plain: Path) -> str:
    """Return the SQL of a file's records: `row`, `place`, `line` (as it stands), `fault`, and texts `c1`, `c2`, ..."""
    return f"(SELECT * RENAME (raw AS line) FROM read_parquet('{escaped(plain)}', hive_partitioning = false))"


def from_records(table: RawTable, records: str) -> str:
    """Return the SELECT that classifies records; what the reader could not split breaks the rule it says."""
    texts = [column.text or "NULL" for column in table.columns]
    return classified(table, records, texts, ["WHEN fault IS NOT NULL THEN fault"])
