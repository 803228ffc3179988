"""The canonical tables, as frame schemas: one row per what, units in the names, UTC, and what each column means.

`validate` raises and `filter` splits off the bad rows; ingest writes exactly these columns.
Called by `pipelines` where frames cross a package border or are documented, and by the contract tests.
"""

import dataframely as dy
import polars as pl

from features.vocabulary import ONGOING, Status, TaskType

STATUSES = [str(s) for s in Status]
TASK_TYPES = [str(t) for t in TaskType]


def _timestamp(description: str, *, nullable: bool = True, primary_key: bool = False) -> dy.Datetime:
    return dy.Datetime(
        nullable=nullable, primary_key=primary_key, time_unit="us", time_zone="UTC", description=description
    )


def _at_least_zero(description: str) -> dy.Float64:
    return dy.Float64(nullable=True, min=0.0, description=description)


def _told(description: str) -> dy.String:
    return dy.String(nullable=True, description=description)


class _Keyed(dy.Schema):
    trace = dy.String(primary_key=True, description="the trace, as it was named at ingest")
    cluster = dy.String(primary_key=True, description="the cluster within the trace")


class Jobs(_Keyed):
    """One row per schedulable unit: a PAI task, a Helios job, a Philly job. Requests are per instance."""

    job_id = dy.String(primary_key=True, description="the job, as the trace names it; a PAI job is several tasks")
    role = dy.String(primary_key=True, description="the task within a PAI job (`worker`, `ps`), else `job`")
    user = _told("who submitted it, as anonymised by the trace")
    vc = _told("the virtual cluster it was submitted to")
    group = _told("jobs of one group are alike: PAI's group of the same scripts and inputs")
    workload = _told("the raw tag of the kind of work")
    task_type = dy.String(
        nullable=False,
        check=lambda c: c.is_in(TASK_TYPES),
        description=f"the kind of work: {', '.join(TASK_TYPES)}; `other` where there is no tag",
    )
    gpu_type = _told("the type of GPU it ran on, where the trace says it")
    submit_ts = _timestamp("when it was submitted", nullable=False)
    start_ts = _timestamp("when it first started; of a PAI task its earliest instance")
    end_ts = _timestamp("when it ended; null while it runs or waits")
    queue_s = _at_least_zero("how long it waited for its start; null where a trace shows no wait at all")
    run_s = _at_least_zero("how long it ran, all attempts together")
    run_s_censored = dy.Bool(
        nullable=False, description="whether `run_s` is a lower bound: running, timed out, clamped"
    )
    status = dy.String(
        nullable=True,
        check=lambda c: c.is_in(STATUSES),
        description=f"how it stands at the end of the trace: {', '.join(STATUSES)}",
    )
    instances = dy.Int32(nullable=False, min=1, description="how many instances it runs, all at once")
    req_cpu_cores = _at_least_zero("CPU cores requested, per instance")
    req_mem_gib = _at_least_zero("main memory requested in GiB, per instance")
    req_gpus = _at_least_zero("GPUs requested, per instance; may be a part of one")
    nodes = dy.Int32(nullable=True, min=0, description="how many machines it was spread over")
    attempts = dy.Int32(nullable=True, min=0, description="how often it was started")
    time_limit_s = _at_least_zero("the longest it may run")
    priority = dy.Int32(nullable=True, description="its priority, as the trace orders them")

    @dy.rule()
    def end_after_start(cls) -> pl.Expr:
        """Require that a unit does not end before it starts."""
        return pl.col("end_ts") >= pl.col("start_ts")


class Usage(_Keyed):
    """One row per measured unit: what one instance used (means), and the largest peak over its instances."""

    job_id = dy.String(primary_key=True, description="the job, as in `jobs`")
    role = dy.String(primary_key=True, description="the task within the job, as in `jobs`")
    used_cpu_cores = _at_least_zero("CPU cores used, mean over time and instances")
    used_gpus = _at_least_zero("GPUs kept busy, mean over time and instances")
    mem_avg_gib = _at_least_zero("main memory used in GiB, mean over time and instances")
    mem_max_gib = _at_least_zero("main memory used in GiB, largest peak over the instances")
    gpu_mem_avg_gib = _at_least_zero("GPU memory used in GiB, mean over time and instances")
    gpu_mem_max_gib = _at_least_zero("GPU memory used in GiB, largest peak over the instances")
    net_read_bytes_per_s = _at_least_zero("bytes per second received, mean over time and instances")
    net_write_bytes_per_s = _at_least_zero("bytes per second sent, mean over time and instances")
    instances_measured = dy.Int32(nullable=False, min=1, description="how many instances these figures are of")


class Machines(_Keyed):
    """One row per machine."""

    machine = dy.String(primary_key=True, description="the machine, as the trace names it")
    gpu_type = _told("the type of its GPUs, where the trace says it")
    cpu_cores = _at_least_zero("CPU cores it has")
    mem_gib = _at_least_zero("main memory it has, in GiB")
    gpus = dy.Int32(nullable=False, min=0, description="GPUs it has")
    gpu_mem_gib = _at_least_zero("memory of each of its GPUs, in GiB")


class Capacity(_Keyed):
    """One row per virtual cluster and date: the GPUs it owned that day."""

    vc = dy.String(primary_key=True, description="the virtual cluster")
    date = dy.Date(primary_key=True, description="the date, as the trace writes it")
    gpus = dy.Int32(nullable=False, min=0, description="GPUs it owned on that date")


class MachineUsage(_Keyed):
    """One row per machine and time: the busy fraction (0..1) of its CPU, memory and GPUs."""

    machine = dy.String(primary_key=True, description="the machine, as in `machines`")
    ts = _timestamp("when it was sampled; of a mean over a span, when the span began", nullable=False, primary_key=True)
    cpu_frac = _at_least_zero("busy fraction of its CPU")
    mem_frac = _at_least_zero("fraction of its main memory in use")
    gpu_frac = _at_least_zero("busy fraction of its GPUs, mean over them")


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
