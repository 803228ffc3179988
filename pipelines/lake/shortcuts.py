"""Choosing the SELECT that makes a canonical table: a source's shortcut, where the loaded rows allow it, or the whole.

The SELECTs are the sources' declarations; nothing is written here. Called by `pipelines.lake.ingest`.
"""

from typing import Final

import duckdb

from pipelines.lake.sources.source import Source

MINUTE_US: Final = 60_000_000
BITS_MOST: Final = 1 << 28
"""Minutes of all machines that are marked, one bit each: 32 MiB; Philly's are a sixth of that."""


def select_of(work: duckdb.DuckDBPyConnection, source: Source, output: str) -> str:
    """Return the SELECT of a canonical table over the rows loaded in `work`."""
    shortcut = source.shortcuts.get(output)
    if shortcut is None:
        return source.outputs[output]
    others = [t.name for t in source.tables if t.feeds == output and t.name != shortcut.table]
    if any(work.execute(f"SELECT EXISTS (FROM {name})").fetchone() == (True,) for name in others):
        return source.outputs[output]
    return shortcut.select if one_row_a_minute(work, shortcut.table) else source.outputs[output]


def one_row_a_minute(work: duckdb.DuckDBPyConnection, table: str) -> bool:
    """Tell whether every `ts` is a whole minute that its `machine` has one row of, if that is cheaply known."""
    low, high, whole, machines = work.execute(
        f"""SELECT min(epoch_us(ts)) // {MINUTE_US}, max(epoch_us(ts)) // {MINUTE_US},
            bool_and(epoch_us(ts) % {MINUTE_US} = 0), count(DISTINCT machine) FROM {table}"""
    ).fetchone() or (None, None, None, 0)
    if not whole or (high - low + 1) * machines > BITS_MOST:
        return False
    minutes = f"bitstring_agg(epoch_us(ts) // {MINUTE_US}, {low}, {high})"
    each = f"SELECT bit_count({minutes}) = count(*) AS one FROM {table} GROUP BY machine"
    return work.execute(f"SELECT bool_and(one) FROM ({each})").fetchone() == (True,)
