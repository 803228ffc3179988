"""Rows that a reader has split already: a Parquet file of numbered records, their texts, and what is wrong with them.

What writes such files is a source's `records` (`pipelines.lake.generic`); plain lines are read by
`pipelines.lake.line_rows`. Called by `pipelines.lake.staging` and `pipelines.lake.checking`.
"""

from pathlib import Path

from pipelines.lake.classification import classified
from pipelines.lake.line_rows import escaped
from pipelines.lake.sources.source import RawTable


def numbered_records(plain: Path) -> str:
    """Return the SQL of a file's records: `row`, `place`, `line` (as it stands), `fault`, and texts `c1`, `c2`, ..."""
    return f"(SELECT * RENAME (raw AS line) FROM read_parquet('{escaped(plain)}', hive_partitioning = false))"


def from_records(table: RawTable, records: str) -> str:
    """Return the SELECT that classifies records; what the reader could not split breaks the rule it says."""
    texts = [column.text or "NULL" for column in table.columns]
    return classified(table, records, texts, ["WHEN fault IS NOT NULL THEN fault"])
