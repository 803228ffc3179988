"""Choose a source's faster SELECT of a canonical table where the loaded rows allow it.

The sources declare both SELECTs.
"""

from typing import Final

import duckdb

from pipelines.lake.sources.source import Source

MINUTE_US: Final = 60_000_000
BITS_MOST: Final = 1 << 28
"""Maximum number of bits, one per machine and minute, in `one_row_a_minute`: 32 MiB. Philly needs a sixth."""


def select_of(work: duckdb.DuckDBPyConnection, source: Source, output: str) -> str:
    """Return the SELECT of a canonical table: the source's faster one (`Shortcut`) if the loaded rows allow it."""
    shortcut = source.shortcuts.get(output)
    if shortcut is None:
        return source.outputs[output]
    others = [t.name for t in source.tables if t.feeds == output and t.name != shortcut.table]
    if any(work.execute(f"SELECT EXISTS (FROM {name})").fetchone() == (True,) for name in others):
        return source.outputs[output]
    return shortcut.select if one_row_a_minute(work, shortcut.table) else source.outputs[output]


def one_row_a_minute(work: duckdb.DuckDBPyConnection, table: str) -> bool:
    """Return whether every `ts` is a whole minute and unique per `machine`; False if checking needs too much memory."""
    low, high, whole, machines = work.execute(
        f"""SELECT min(epoch_us(ts)) // {MINUTE_US}, max(epoch_us(ts)) // {MINUTE_US},
            bool_and(epoch_us(ts) % {MINUTE_US} = 0), count(DISTINCT machine) FROM {table}"""
    ).fetchone() or (None, None, None, 0)
    if not whole or (high - low + 1) * machines > BITS_MOST:
        return False
    minutes = f"bitstring_agg(epoch_us(ts) // {MINUTE_US}, {low}, {high})"
    each = f"SELECT bit_count({minutes}) = count(*) AS one FROM {table} GROUP BY machine"
    return work.execute(f"SELECT bool_and(one) FROM ({each})").fetchone() == (True,)
