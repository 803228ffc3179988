"""The canonical tables: the type, rule and meaning of each column. Units are in the column names; times are UTC.

No frame library is imported: `features.tables` builds frame schemas from these tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from features.vocabulary import Status, TaskType

__all__ = ["CANONICAL", "Kind"]

STATUSES = [str(s) for s in Status]
TASK_TYPES = [str(t) for t in TaskType]

Kind = Literal["VARCHAR", "DOUBLE", "INTEGER", "BIGINT", "BOOLEAN", "DATE", "TIMESTAMPTZ"]
"""Column types by their SQL names; `TIMESTAMPTZ` has a resolution of one microsecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a canonical table.

    `kind` is its type and `says` its meaning. `key` is true if it is part of the table's key. `least` is the minimum
    value. `one_of` lists the allowed texts; if the list is empty, any text is allowed.
    """

    kind: Kind
    says: str
    nullable: bool = True
    key: bool = False
    least: int | None = None
    one_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A canonical table: `says` tells what one row stands for, `columns` lists the columns in order."""

    says: str
    columns: Mapping[str, Column]

    @property
    def key(self) -> tuple[str, ...]:
        """Return the names of the columns that together identify a row."""
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
    "trace": _key("name of the trace, given at ingest"),
    "cluster": _key("cluster within the trace"),
}

JOBS: Final = Table(
    says="One row per schedulable unit: a PAI task, a Helios job, a Philly job. Requests are per instance.",
    columns={
        **_PLACE,
        "job_id": _key("id of the job in the trace; a PAI job has several tasks"),
        "role": _key("task within a PAI job (`worker`, `ps`), otherwise `job`"),
        "user": _text("submitting user, anonymised by the trace"),
        "vc": _text("virtual cluster to which it was submitted"),
        "group": _text("group of similar jobs: in PAI, those with the same scripts and inputs"),
        "workload": _text("raw tag of the kind of work in the trace"),
        "task_type": _text(f"kind of work: {', '.join(TASK_TYPES)}; `other` without a tag", TASK_TYPES, nullable=False),
        "gpu_type": _text("type of GPU on which it ran, if the trace has it"),
        "submit_ts": _time("time of submission", nullable=False),
        "start_ts": _time("time of the first start; for a PAI task, of its earliest instance"),
        "end_ts": _time("time of the end; null while it runs or waits"),
        "queue_s": _amount("wait until its start; null if the trace records no waits"),
        "run_s": _amount("run time, summed over all attempts"),
        "run_s_censored": Column(
            kind="BOOLEAN", says="true if `run_s` is a lower bound: running, timed out, clamped", nullable=False
        ),
        "status": _text(f"status at the end of the trace: {', '.join(STATUSES)}", STATUSES),
        "instances": _number("number of its instances, which run at the same time", 1),
        "req_cpu_cores": _amount("CPU cores requested, per instance"),
        "req_mem_gib": _amount("main memory requested in GiB, per instance"),
        "req_gpus": _amount("GPUs requested, per instance; may be a fraction"),
        "nodes": _number("number of machines it ran on", 0, nullable=True),
        "attempts": _number("number of starts", 0, nullable=True),
        "time_limit_s": _amount("maximum run time allowed"),
        "priority": _number("its priority, on the scale of the trace", None, nullable=True),
    },
)

USAGE: Final = Table(
    says="One row per measured unit: mean use of one instance, and the largest peak over its instances.",
    columns={
        **_PLACE,
        "job_id": _key("id of the job, as in `jobs`"),
        "role": _key("task within the job, as in `jobs`"),
        "used_cpu_cores": _amount("CPU cores used, mean over time and instances"),
        "used_gpus": _amount("busy GPUs, mean over time and instances"),
        "mem_avg_gib": _amount("main memory used in GiB, mean over time and instances"),
        "mem_max_gib": _amount("main memory used in GiB, largest peak over the instances"),
        "gpu_mem_avg_gib": _amount("GPU memory used in GiB, mean over time and instances"),
        "gpu_mem_max_gib": _amount("GPU memory used in GiB, largest peak over the instances"),
        "net_read_bytes_per_s": _amount("bytes per second received, mean over time and instances"),
        "net_write_bytes_per_s": _amount("bytes per second sent, mean over time and instances"),
        "instances_measured": _number("number of measured instances", 1),
        "coverage_frac": _amount("share of the run that its samples cover, of the column covered least; else null"),
    },
)

MACHINES: Final = Table(
    says="One row per machine.",
    columns={
        **_PLACE,
        "machine": _key("id of the machine in the trace"),
        "gpu_type": _text("type of its GPUs, if the trace has it"),
        "cpu_cores": _amount("number of CPU cores"),
        "mem_gib": _amount("main memory in GiB"),
        "gpus": _number("number of GPUs", 0),
        "gpu_mem_gib": _amount("memory of each of its GPUs, in GiB"),
    },
)

CAPACITY: Final = Table(
    says="One row per virtual cluster and date: the GPUs it owned that day.",
    columns={
        **_PLACE,
        "vc": _key("virtual cluster"),
        "date": _key("date, as written in the trace", "DATE"),
        "gpus": _number("number of GPUs it owned on that date", 0),
    },
)

MACHINE_USAGE: Final = Table(
    says="One row per machine and time: the busy fraction (0..1) of its CPU, memory and GPUs.",
    columns={
        **_PLACE,
        "machine": _key("id of the machine, as in `machines`"),
        "ts": _key("time of the sample; for a mean over an interval, its start", "TIMESTAMPTZ"),
        "cpu_frac": _amount("busy fraction of its CPU"),
        "mem_frac": _amount("fraction of its main memory in use"),
        "gpu_frac": _amount("busy fraction of its GPUs, mean over them"),
    },
)

ENVIRONMENT: Final = Table(
    says="One row per GPU and hour: power, temperature, clocks, energy and errors, as its exporter reports them.",
    columns={
        **_PLACE,
        "machine": _key("id of the machine, as in `machines`"),
        "device": _key("index of the GPU on its machine"),
        "ts": _key("start of the hour", "TIMESTAMPTZ"),
        "gpu_type": _text("model of the GPU, as its exporter names it"),
        "power_w": _amount("power in W, mean over the samples"),
        "power_max_w": _amount("power in W, largest sample"),
        "temp_c": _amount("temperature in degrees Celsius, mean over the samples"),
        "temp_max_c": _amount("temperature in degrees Celsius, largest sample"),
        "sm_clock_mhz": _amount("clock of the multiprocessors in MHz, mean over the samples"),
        "mem_clock_mhz": _amount("clock of the memory in MHz, mean over the samples"),
        "energy_j": _amount("energy in J drawn while it was sampled: by its energy counter, else by its power"),
        "xid_code": _number("largest XID error code reported; exporters repeat the last one", 0, nullable=True),
        "xid_changes": _number("how often the reported XID code changed in the hour", 0, nullable=True),
        "coverage_frac": _amount("share of the hour that the samples cover"),
    },
)

CANONICAL: Final = {
    "jobs": JOBS,
    "usage": USAGE,
    "machines": MACHINES,
    "capacity": CAPACITY,
    "machine_usage": MACHINE_USAGE,
    "environment": ENVIRONMENT,
}
"""The canonical tables by name."""
