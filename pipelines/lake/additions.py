"""Add measured rows to the tables of a trace that is already in the lake, without reading its files again."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import dataframely as dy
import duckdb
import polars as pl

from features.canonical import CANONICAL
from features.frames import frame_schema
from features.tables import TABLES
from pipelines.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Manifest, Output
from pipelines.lake.views import COLUMNS

__all__ = ["add_rows"]

SHOWN: Final = 200


def add_rows(lake: Lake, trace: str, cluster: str, fresh: Mapping[str, pl.DataFrame]) -> Manifest:
    """Add rows to canonical tables of one cluster in one commit; return the trace's new manifest.

    A fresh row replaces the values of the row with the same key that it does not leave null. The frames may leave out
    `trace`, `cluster` and columns that may be null. Adding the same rows again changes nothing.
    """
    with lake.writing():
        manifest = lake.manifest(trace)
        outputs = [each for each in manifest.outputs if not (each.table in fresh and each.cluster == cluster)]
        try:
            with lake.storage.staged(cluster) as stage:
                for table, rows in fresh.items():
                    merged = _merged(lake, table, trace, cluster, rows)
                    if merged.height:
                        outputs.append(_written(lake, stage, table, trace, cluster, merged))
            grown = replace(manifest, outputs=tuple(outputs))
            lake.commit(grown)
        except (OSError, duckdb.Error, pl.exceptions.PolarsError, dy.exc.ValidationError) as error:
            if lake.local:
                lake.sweep(trace)
            reason = " ".join(str(error).split())[:SHOWN]
            raise LakeError(f"rows were not added to {trace} in {lake.where} ({reason}); repeat the command") from error
    return grown


def _merged(lake: Lake, table: str, trace: str, cluster: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the table's rows of a cluster with the fresh rows laid over them, checked and sorted by key."""
    schema, key = frame_schema(COLUMNS[table]), CANONICAL[table].key
    placed = rows.with_columns(trace=pl.lit(trace), cluster=pl.lit(cluster))
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in schema.items() if name not in placed.columns]
    fresh = placed.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in schema.items())
    held = lake.table(table, trace, cluster).collect()
    merged = held.update(fresh, on=list(key), how="full", maintain_order=None).sort(key)
    return TABLES[table].validate(merged)


def _written(lake: Lake, stage: Path, table: str, trace: str, cluster: str, rows: pl.DataFrame) -> Output:
    staged = stage / f"{table}.parquet"
    rows.write_parquet(staged, compression="zstd")
    return lake.place(staged, table, trace, cluster, rows.height)
