"""Definitions of the store's tables, and the version of their layout.

Used by the other modules of `modelserve.store`.
"""

from typing import Final

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

LAYOUT: Final = 4
"""Version of the table layout. `modelserve.store.migrations` changes an older one to it when the store is opened."""

METADATA: Final = MetaData()

_Counted = BigInteger().with_variant(Integer(), "sqlite")
"""Type of automatically increasing keys: BIGINT, but INTEGER in SQLite, which supports no other type for them."""


def _text(*names: str) -> list[Column[str]]:
    return [Column(name, Text, nullable=False) for name in names]


def _unsure_text(*names: str) -> list[Column[str | None]]:
    return [Column(name, Text, nullable=True) for name in names]


def _floats(*names: str) -> list[Column[float | None]]:
    return [Column(name, Float(53), nullable=True) for name in names]


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

FEEDBACK: Final = Table(
    "taut_feedback",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *_text("trace", "cluster", "job_id", "role", "task_type"),
    *_unsure_text("user", "group", "vc", "workload", "gpu_type", "answer_id"),
    Column("instances", Integer, nullable=False),
    Column("submit_us", BigInteger, nullable=False),
    Column("start_us", BigInteger, nullable=True),
    Column("end_us", BigInteger, nullable=False),
    Column("run_s", Float(53), nullable=False),
    *_text("outcome"),
    *_floats("req_cpu_cores", "req_mem_gib", "req_gpus"),
    *_floats("alloc_cpu_cores", "alloc_mem_gib", "alloc_gpus"),
    *_floats("used_cpu_cores", "used_gpus", "mem_max_gib", "gpu_mem_max_gib"),
    *_unsure_text("run_time_model", "usage_model", "challenger_model"),
    *_floats("p50_s", "p90_s", "challenger_p50_s", "challenger_p90_s"),
    *_floats("peak_cpu_cores", "peak_mem_gib", "peak_gpus", "peak_gpu_mem_gib"),
    *_unsure_text("forecasts"),
    Column("trust", Text, nullable=False, server_default="confirmed"),
    Column("digest", Text, nullable=False),
    Column("caller", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    UniqueConstraint("trace", "cluster", "job_id", "role", name="taut_feedback_identity"),
    Index("taut_feedback_of_type", "trace", "task_type", "seq"),
    Index("taut_feedback_of_run_time_model", "run_time_model", "seq"),
    Index("taut_feedback_of_usage_model", "usage_model", "seq"),
    Index("taut_feedback_of_challenger_model", "challenger_model", "seq"),
    Index("taut_feedback_of_user", "trace", "user"),
    Index("taut_feedback_of_group", "trace", "cluster", "group", "role", "seq"),
)
"""Finished jobs: the report of each, and its predictions by the models at the time of the report.

`cluster` is empty if the report named none; `trust` is explained in `modelserve.learning.trust`.
"""

ANSWERS: Final = Table(
    "taut_answers",
    METADATA,
    Column("n", _Counted, primary_key=True, autoincrement=True),
    Column("answer_id", Text, nullable=False, unique=True),
    Column("at", Float(53), nullable=False),
    *_text("kind", "caller", "trace", "models"),
    Column("weight", BigInteger, nullable=False),
    *[Column(name, LargeBinary, nullable=False) for name in ("context", "features", "response")],
    # Sizes are summed from this index, since summing them from the table would read the large columns too.
    Index("taut_answers_weight", "n", "weight", "at"),
    sqlite_autoincrement=True,
)
"""The answer log: each answer with its inputs; `weight` is the size of the record in bytes."""

MODES: Final = Table(
    "taut_modes",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *_text("trace", "cluster", "task_type", "group", "mode", "caller"),
    Column("at", Float(53), nullable=False),
)
"""Modes that were set. For each combination of trace, cluster, task type and group, the latest row is in force.

An empty cluster, task type or group means all; an empty mode means that the mode was unset.
"""

RESETS: Final = Table(
    "taut_resets",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *_text("trace", "cluster", "task_type", "caller"),
    Column("at", Float(53), nullable=False),
)
"""Released brakes: kills before the release no longer count. An empty cluster or task type means all."""

BRAKES: Final = Table(
    "taut_brakes",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *_text("trace", "cluster", "task_type", "why"),
    Column("at", Float(53), nullable=False),
)
"""Brakes: task types that are no longer shrunk, since their jobs were killed too often.

A brake holds until a later row in `RESETS`, even if the killed jobs are erased.
"""

ERASURES: Final = Table(
    "taut_erasures",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *_text("trace", "cluster", "user", "caller"),
    Column("before_us", BigInteger, nullable=False),
    Column("at", Float(53), nullable=False),
)
"""Erased users: their jobs submitted up to `before_us` are dropped. An empty cluster means all."""

COMPARISONS: Final = Table(
    "taut_comparisons",
    METADATA,
    Column("n", _Counted, primary_key=True, autoincrement=True),
    Column("answer_id", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    *_text("trace", "cluster", "job_id", "champion", "challenger"),
    *_floats("p50_s", "p90_s", "challenger_p50_s", "challenger_p90_s"),
    sqlite_autoincrement=True,
)
"""Shadow comparisons: predictions of a champion and its challenger for the same job."""
