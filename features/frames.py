"""Polars frames of the canonical tables: the types of their columns, and rules for ends and for needed memory."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from features.canonical import Kind
from features.vocabulary import ONGOING, Status

__all__ = ["frame_schema", "has_ended", "needed_mem_gib"]

TYPES: Final[Mapping[Kind, pl.DataType]] = {
    "VARCHAR": pl.String(),
    "DOUBLE": pl.Float64(),
    "INTEGER": pl.Int32(),
    "BIGINT": pl.Int64(),
    "BOOLEAN": pl.Boolean(),
    "DATE": pl.Date(),
    "TIMESTAMPTZ": pl.Datetime("us", "UTC"),
}


def frame_schema(columns: Mapping[str, Kind]) -> pl.Schema:
    """Return the polars types of columns, whose SQL types are given."""
    return pl.Schema({column: TYPES[kind] for column, kind in columns.items()})


def has_ended() -> pl.Expr:
    """Return the expression of whether a job has ended: it has an end time, and its status is null or not ongoing."""
    ongoing = pl.col("status").is_in(sorted(ONGOING)).fill_null(value=False)
    return (pl.col("end_ts").is_not_null() & ~ongoing).alias("has_ended")


def needed_mem_gib() -> pl.Expr:
    """Return the expression of the memory that a job needed in GiB: its measured peak, null if not measured.

    A job that was killed for memory needed at least its request, whatever its measured peak.
    """
    killed = (pl.col("status") == Status.OOM).fill_null(value=False)
    return (
        pl.when(killed)
        .then(pl.max_horizontal("mem_max_gib", "req_mem_gib"))
        .otherwise("mem_max_gib")
        .alias("mem_max_gib")
    )
