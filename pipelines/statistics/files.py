"""What was read: `files`, the published files of a trace with their size, checksum and rows.

From the trace's manifest, not its tables. Called through `pipelines.statistics`.
"""

from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.statistics.question import By, Split

_SCHEMA: Final = {
    "cluster": pl.String,
    "table": pl.String,
    "file": pl.String,
    "bytes": pl.Int64,
    "sha256": pl.String,
    "rows_in": pl.Int64,
    "rows_quarantined": pl.Int64,
}


def files(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return each published table of the trace: its file, bytes, SHA-256, and the rows read and quarantined.

    File, bytes and checksum are null where the publisher's table was not there.
    """
    Split(by, {})
    lake.table("jobs", trace, cluster)
    manifest = lake.manifest(trace)
    known = {each.file: each for each in manifest.inputs}
    return pl.DataFrame(
        [
            {
                "cluster": account.cluster,
                "table": account.table,
                "file": account.file,
                "bytes": known[account.file].bytes if account.file in known else None,
                "sha256": known[account.file].sha256 if account.file in known else None,
                "rows_in": account.rows_in,
                "rows_quarantined": account.rows_quarantined,
            }
            for account in manifest.accounts
            if cluster in (None, account.cluster)
        ],
        schema=_SCHEMA,
    ).sort("cluster", "table", "file", nulls_last=True)
