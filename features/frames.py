"""Polars frames of the canonical tables: the types of their columns, and the rule for when a job has ended.

`features.canonical` describes the columns, and `features.tables` checks rows. Called by `pipelines.lake.lake` and by
the modules that separate ended jobs from running ones.
"""

from collections.abc import Mapping
from typing import Final

import polars as pl

from features.canonical import Kind
from features.vocabulary import ONGOING

__all__ = ["frame_schema", "has_ended"]

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
    """Return the polars types of columns, whose SQL types are given.

    >>> frame_schema({"job_id": "VARCHAR", "instances": "INTEGER"})
    Schema([('job_id', String), ('instances', Int32)])
    """
    return pl.Schema({column: TYPES[kind] for column, kind in columns.items()})


def has_ended() -> pl.Expr:
    """Return the expression of whether a job has ended: it has an end time, and its status is null or not ongoing.

    >>> frame = pl.DataFrame({"status": ["running", None, None, "failed"], "end_ts": [1, 2, None, 3]})
    >>> frame.select(has_ended()).to_series().to_list()
    [False, True, False, True]
    """
    ongoing = pl.col("status").is_in(sorted(ONGOING)).fill_null(value=False)
    return (pl.col("end_ts").is_not_null() & ~ongoing).alias("has_ended")
