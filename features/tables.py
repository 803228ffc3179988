"""The canonical tables, as frame schemas: one row per what, units in the names, UTC.

`validate` raises and `filter` splits off the bad rows; ingest writes exactly these columns.
Called by `pipelines` where frames cross a package border, and by the contract tests.
"""

import dataframely as dy
import polars as pl

from features.vocabulary import ONGOING, Status, TaskType

STATUSES = [str(s) for s in Status]
TASK_TYPES = [str(t) for t in TaskType]


def _timestamp(*, nullable: bool = True) -> dy.Datetime:
    return dy.Datetime(nullable=nullable, time_unit="us", time_zone="UTC")


class _Keyed(dy.Schema):
    trace = dy.String(primary_key=True)
    cluster = dy.String(primary_key=True)


class Jobs(_Keyed):
    """One row per schedulable unit: a PAI task, a Helios job, a Philly job. Requests are per instance."""

    job_id = dy.String(primary_key=True)
    role = dy.String(primary_key=True)
    user = dy.String(nullable=True)
    vc = dy.String(nullable=True)
    group = dy.String(nullable=True)
    workload = dy.String(nullable=True)
    task_type = dy.String(nullable=False, check=lambda c: c.is_in(TASK_TYPES))
    gpu_type = dy.String(nullable=True)
    submit_ts = dy.Datetime(nullable=False, time_unit="us", time_zone="UTC")
    start_ts = _timestamp()
    end_ts = _timestamp()
    queue_s = dy.Float64(nullable=True, min=0.0)
    run_s = dy.Float64(nullable=True, min=0.0)
    run_s_censored = dy.Bool(nullable=False)
    status = dy.String(nullable=True, check=lambda c: c.is_in(STATUSES))
    instances = dy.Int32(nullable=False, min=1)
    req_cpu_cores = dy.Float64(nullable=True, min=0.0)
    req_mem_gib = dy.Float64(nullable=True, min=0.0)
    req_gpus = dy.Float64(nullable=True, min=0.0)
    nodes = dy.Int32(nullable=True, min=0)
    attempts = dy.Int32(nullable=True, min=0)
    time_limit_s = dy.Float64(nullable=True, min=0.0)
    priority = dy.Int32(nullable=True)

    @dy.rule()
    def end_after_start(cls) -> pl.Expr:
        """Require that a unit does not end before it starts."""
        return pl.col("end_ts") >= pl.col("start_ts")


class Usage(_Keyed):
    """One row per measured unit: what one instance used (means), and the largest peak over its instances."""

    job_id = dy.String(primary_key=True)
    role = dy.String(primary_key=True)
    used_cpu_cores = dy.Float64(nullable=True, min=0.0)
    used_gpus = dy.Float64(nullable=True, min=0.0)
    mem_avg_gib = dy.Float64(nullable=True, min=0.0)
    mem_max_gib = dy.Float64(nullable=True, min=0.0)
    gpu_mem_avg_gib = dy.Float64(nullable=True, min=0.0)
    gpu_mem_max_gib = dy.Float64(nullable=True, min=0.0)
    net_read_bytes_per_s = dy.Float64(nullable=True, min=0.0)
    net_write_bytes_per_s = dy.Float64(nullable=True, min=0.0)
    instances_measured = dy.Int32(nullable=False, min=1)


class Machines(_Keyed):
    """One row per machine."""

    machine = dy.String(primary_key=True)
    gpu_type = dy.String(nullable=True)
    cpu_cores = dy.Float64(nullable=True, min=0.0)
    mem_gib = dy.Float64(nullable=True, min=0.0)
    gpus = dy.Int32(nullable=False, min=0)
    gpu_mem_gib = dy.Float64(nullable=True, min=0.0)


class Capacity(_Keyed):
    """One row per virtual cluster and date: the GPUs it owned that day."""

    vc = dy.String(primary_key=True)
    date = dy.Date(primary_key=True)
    gpus = dy.Int32(nullable=False, min=0)


class MachineUsage(_Keyed):
    """One row per machine and time: the busy fraction (0..1) of its CPU, memory and GPUs."""

    machine = dy.String(primary_key=True)
    ts = dy.Datetime(primary_key=True, time_unit="us", time_zone="UTC")
    cpu_frac = dy.Float64(nullable=True, min=0.0)
    mem_frac = dy.Float64(nullable=True, min=0.0)
    gpu_frac = dy.Float64(nullable=True, min=0.0)


TABLES: dict[str, type[dy.Schema]] = {
    "jobs": Jobs,
    "usage": Usage,
    "machines": Machines,
    "capacity": Capacity,
    "machine_usage": MachineUsage,
}


def has_ended() -> pl.Expr:
    """Return whether a job is over; one whose trace tells no state is over where it has an end.

    >>> frame = pl.DataFrame({"status": ["running", None, None, "failed"], "end_ts": [1, 2, None, 3]})
    >>> frame.select(has_ended()).to_series().to_list()
    [False, True, False, True]
    """
    ongoing = pl.col("status").is_in(sorted(ONGOING)).fill_null(value=False)
    return (pl.col("end_ts").is_not_null() & ~ongoing).alias("has_ended")
