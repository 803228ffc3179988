"""The canonical tables: their columns with types, rules and meanings; units are in the names, times are UTC.

No frame library is imported: `features.tables` makes frame schemas of these, `pipelines.lake.lake` types and views.
Called by both, and by `pipelines.lake.staging`, which writes exactly these columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from features.vocabulary import Status, TaskType

STATUSES = [str(s) for s in Status]
TASK_TYPES = [str(t) for t in TaskType]

Kind = Literal["VARCHAR", "DOUBLE", "INTEGER", "BIGINT", "BOOLEAN", "DATE", "TIMESTAMPTZ"]
"""Types by their names in SQL; times have microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its type, its meaning, and the rule for its values."""

    kind: Kind
    says: str
    nullable: bool = True
    key: bool = False
    least: int | None = None
    one_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: the meaning of a row, and the columns in order."""

    says: str
    columns: Mapping[str, Column]

    @property
    def key(self) -> tuple[str, ...]:
        """Return the names of the columns that identify a row."""
        return tuple(name for name, column in self.columns.items() if column.key)


def _key(says: str, kind: Kind = "VARCHAR") -> Column:
    return Column(kind=kind, says=says, nullable=False, key=True)


def _text(says: str, one_of: list[str] | None = None, *, nullable: bool = True) -> Column:
    return Column(kind="VARCHAR", says=says, nullable=nullable, one_of=tuple(one_of or ()))


def _time(says: str, *, nullable: bool = True) -> Column:
    return Column(kind="TIMESTAMPTZ", says=says, nullable=nullable)


def _amount(says: str) -> Column:
    return Column(kind="DOUBLE", says=says, least=0)


def _number(says: str, least: int | None, *, nullable: bool = False) -> Column:
    return Column(kind="INTEGER", says=says, nullable=nullable, least=least)


_PLACE: Final = {
    "trace": _key("the trace, as it was named at ingest"),
    "cluster": _key("the cluster within the trace"),
}

JOBS: Final = Table(
    says="One row per schedulable unit: a PAI task, a Helios job, a Philly job. Requests are per instance.",
    columns={
        **_PLACE,
        "job_id": _key("the job, as the trace names it; a PAI job is several tasks"),
        "role": _key("the task within a PAI job (`worker`, `ps`), else `job`"),
        "user": _text("who submitted it, as anonymised by the trace"),
        "vc": _text("the virtual cluster it was submitted to"),
        "group": _text("jobs of one group are alike: PAI's group of the same scripts and inputs"),
        "workload": _text("the raw tag of the kind of work"),
        "task_type": _text(
            f"the kind of work: {', '.join(TASK_TYPES)}; `other` where there is no tag", TASK_TYPES, nullable=False
        ),
        "gpu_type": _text("the type of GPU it ran on, where the trace says it"),
        "submit_ts": _time("when it was submitted", nullable=False),
        "start_ts": _time("when it first started; of a PAI task its earliest instance"),
        "end_ts": _time("when it ended; null while it runs or waits"),
        "queue_s": _amount("how long it waited for its start; null where a trace shows no wait at all"),
        "run_s": _amount("how long it ran, all attempts together"),
        "run_s_censored": Column(
            kind="BOOLEAN", says="whether `run_s` is a lower bound: running, timed out, clamped", nullable=False
        ),
        "status": _text(f"how it stands at the end of the trace: {', '.join(STATUSES)}", STATUSES),
        "instances": _number("how many instances it runs, all at once", 1),
        "req_cpu_cores": _amount("CPU cores requested, per instance"),
        "req_mem_gib": _amount("main memory requested in GiB, per instance"),
        "req_gpus": _amount("GPUs requested, per instance; may be a part of one"),
        "nodes": _number("how many machines it was spread over", 0, nullable=True),
        "attempts": _number("how often it was started", 0, nullable=True),
        "time_limit_s": _amount("the longest it may run"),
        "priority": _number("its priority, as the trace orders them", None, nullable=True),
    },
)

USAGE: Final = Table(
    says="One row per measured unit: what one instance used (means), and the largest peak over its instances.",
    columns={
        **_PLACE,
        "job_id": _key("the job, as in `jobs`"),
        "role": _key("the task within the job, as in `jobs`"),
        "used_cpu_cores": _amount("CPU cores used, mean over time and instances"),
        "used_gpus": _amount("GPUs kept busy, mean over time and instances"),
        "mem_avg_gib": _amount("main memory used in GiB, mean over time and instances"),
        "mem_max_gib": _amount("main memory used in GiB, largest peak over the instances"),
        "gpu_mem_avg_gib": _amount("GPU memory used in GiB, mean over time and instances"),
        "gpu_mem_max_gib": _amount("GPU memory used in GiB, largest peak over the instances"),
        "net_read_bytes_per_s": _amount("bytes per second received, mean over time and instances"),
        "net_write_bytes_per_s": _amount("bytes per second sent, mean over time and instances"),
        "instances_measured": _number("how many instances these figures are of", 1),
    },
)

MACHINES: Final = Table(
    says="One row per machine.",
    columns={
        **_PLACE,
        "machine": _key("the machine, as the trace names it"),
        "gpu_type": _text("the type of its GPUs, where the trace says it"),
        "cpu_cores": _amount("CPU cores it has"),
        "mem_gib": _amount("main memory it has, in GiB"),
        "gpus": _number("GPUs it has", 0),
        "gpu_mem_gib": _amount("memory of each of its GPUs, in GiB"),
    },
)

CAPACITY: Final = Table(
    says="One row per virtual cluster and date: the GPUs it owned that day.",
    columns={
        **_PLACE,
        "vc": _key("the virtual cluster"),
        "date": _key("the date, as the trace writes it", "DATE"),
        "gpus": _number("GPUs it owned on that date", 0),
    },
)

MACHINE_USAGE: Final = Table(
    says="One row per machine and time: the busy fraction (0..1) of its CPU, memory and GPUs.",
    columns={
        **_PLACE,
        "machine": _key("the machine, as in `machines`"),
        "ts": _key("when it was sampled; of a mean over a span, when the span began", "TIMESTAMPTZ"),
        "cpu_frac": _amount("busy fraction of its CPU"),
        "mem_frac": _amount("fraction of its main memory in use"),
        "gpu_frac": _amount("busy fraction of its GPUs, mean over them"),
    },
)

CANONICAL: Final = {
    "jobs": JOBS,
    "usage": USAGE,
    "machines": MACHINES,
    "capacity": CAPACITY,
    "machine_usage": MACHINE_USAGE,
}
"""The tables of a lake, by name."""
