"""Definitions of the store's tables, and the version of their layout."""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

LAYOUT: Final = 6
"""Version of the table layout; a store of another layout is refused."""

METADATA: Final = MetaData()

_Counted = BigInteger().with_variant(Integer(), "sqlite")
"""Type of automatically increasing keys: BIGINT, but INTEGER in SQLite, which supports no other type for them."""


def _columns(kind: Any, names: str, *, nullable: bool = True) -> list[Column[Any]]:  # an SQL type, and values of it
    return [Column(name, kind, nullable=nullable) for name in names.split()]


STORE: Final = Table(
    "taut_store",
    METADATA,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("layout", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
)
"""A table with one row: the layout, and the number (`seq`) of the latest change.

A transaction takes its change numbers while it locks this row. So changes become visible in the order of their numbers,
and a reader that asks for numbers above the last one it saw misses none.
"""

CHANGES: Final = Table(
    "taut_changes",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *_columns(Text, "kind trace cluster caller", nullable=False),
    Column("at", Float(53), nullable=False),
    *_columns(Text, "task_type user group mode why"),
    Column("before_us", BigInteger),
    *_columns(Text, "job_id role vc workload gpu_type answer_id outcome digest"),
    Column("instances", Integer),
    *_columns(BigInteger, "submit_us start_us end_us"),
    *_columns(Float(53), "run_s req_cpu_cores req_mem_gib req_gpus alloc_cpu_cores alloc_mem_gib alloc_gpus"),
    *_columns(Float(53), "used_cpu_cores used_gpus mem_max_gib gpu_mem_max_gib"),
    *_columns(Text, "run_time_model usage_model challenger_model forecasts"),
    *_columns(Float(53), "p50_s p90_s challenger_p50_s challenger_p90_s"),
    *_columns(Float(53), "peak_cpu_cores peak_mem_gib peak_gpus peak_gpu_mem_gib"),
    UniqueConstraint("trace", "cluster", "job_id", "role", "caller", "kind", "outcome", name="taut_changes_report"),
    Index("taut_changes_of_kind", "kind", "seq"),
    Index("taut_changes_of_type", "trace", "task_type", "seq"),
    Index("taut_changes_of_run_time_model", "run_time_model", "seq"),
    Index("taut_changes_of_usage_model", "usage_model", "seq"),
    Index("taut_changes_of_challenger_model", "challenger_model", "seq"),
    Index("taut_changes_of_user", "trace", "user"),
)
"""All changes that workers learn from, one row each; `modelserve.store.changes` has the columns of each kind.

A report is one row, whose kind is how far it counts; a reporter has one of a job, and one more if that says that the
job was killed for memory. An empty cluster means that none was named.
"""

ANSWERS: Final = Table(
    "taut_answers",
    METADATA,
    Column("n", _Counted, primary_key=True, autoincrement=True),
    Column("answer_id", Text, nullable=False, unique=True),
    Column("at", Float(53), nullable=False),
    *_columns(Text, "kind caller trace models", nullable=False),
    Column("weight", BigInteger, nullable=False),
    *_columns(LargeBinary, "context features response", nullable=False),
    # Sizes are summed from this index, since summing them from the table would read the large columns too.
    Index("taut_answers_weight", "n", "weight", "at"),
    sqlite_autoincrement=True,
)
"""The answer log: each answer with its inputs; `weight` is the size of the record in bytes."""

COMPARISONS: Final = Table(
    "taut_comparisons",
    METADATA,
    Column("n", _Counted, primary_key=True, autoincrement=True),
    *_columns(Text, "answer_id trace cluster job_id champion challenger", nullable=False),
    Column("at", Float(53), nullable=False),
    *_columns(Float(53), "p50_s p90_s challenger_p50_s challenger_p90_s"),
    sqlite_autoincrement=True,
)
"""Shadow comparisons: predictions of a champion and its challenger for the same job."""
