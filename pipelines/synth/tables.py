"""Build the tables of jobs, tasks, instances and sensors for one chunk of jobs."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pipelines.synth.calibration import Calibration
from pipelines.synth.machines import Park, metric_table
from pipelines.synth.population import Groups, Jobs
from pipelines.synth.published import published_frame
from pipelines.synth.random_numbers import Floats, Ints, Noise
from pipelines.synth.runtime import RUNNING, STATUS_NAMES, WAITING, Runs, Tasks, measured_share
from pipelines.synth.use import Scores, worker_use

_CPU_MACHINE_SHARE: Final = 0.3
"""Share of CPU-only workers that run on machines without GPUs; the others run on machines of type MISC."""

_STAGGER_S: Final = 3.0
"""Mean number of seconds by which another instance of a gang starts later than the gang's first instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The part of the trace that is kept in memory: arrays with one entry per job or task, without text columns."""

    calibration: Calibration
    noise: Noise
    park: Park
    groups: Groups
    jobs: Jobs
    runs: Runs
    tasks: Tasks
    scores: Scores


def chunk_tables(trace: Trace, first_job: int, last_job: int) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the rows of jobs `first_job` to `last_job` (exclusive), table by table."""
    jobs = np.arange(first_job, last_job)
    tasks = np.arange(*np.searchsorted(trace.tasks.job, [first_job, last_job]))
    ids = _JobIds.of(trace, jobs)
    yield "pai_job_table", _job_table(trace, ids, jobs, tasks)
    yield "pai_group_tag_table", _group_tag_table(trace, ids, jobs)
    yield "pai_task_table", _task_table(trace, ids, tasks)
    started = tasks[trace.tasks.status[tasks] != WAITING]
    task = np.repeat(started, trace.tasks.instances[started])
    within = np.arange(len(task)) - np.repeat(
        np.cumsum(trace.tasks.instances[started]) - trace.tasks.instances[started], trace.tasks.instances[started]
    )
    workers = _Workers.of(trace, task, within)
    yield "pai_instance_table", _instance_table(trace, ids, workers)
    measured = workers.kept(_measured(trace, workers))
    yield "pai_sensor_table", _sensor_table(trace, ids, measured)
    metric = trace.noise.uniform("metric", measured.index) < trace.calibration.use.metric_share
    watched = measured.kept(metric & ~np.isnan(measured.end_s))
    yield (
        "pai_machine_metric",
        metric_table(
            trace.calibration,
            trace.noise,
            trace.park,
            worker=watched.index,
            machine=watched.machine,
            start_s=watched.start_s,
            end_s=watched.end_s,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobIds:
    """Identifiers of a chunk's jobs; `first` is the index of the chunk's first job."""

    first: int
    job_name: pa.Array
    inst_id: pa.Array
    user: pa.Array

    @classmethod
    def of(cls, trace: Trace, jobs: Ints) -> "_JobIds":
        return cls(
            first=int(jobs[0]),
            job_name=trace.noise.digests("job", jobs, 24),
            inst_id=trace.noise.digests("run", jobs, 60),
            user=trace.noise.digests("user", trace.groups.user[trace.jobs.group[jobs]], 12),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workers:
    """One entry per instance: index in the whole trace, task, machine, start and end time (NaN: still running)."""

    index: Ints
    within: Ints
    task: Ints
    machine: Ints
    start_s: Ints
    end_s: Floats

    @classmethod
    def of(cls, trace: Trace, task: Ints, within: Ints) -> "_Workers":
        tasks = trace.tasks
        index = tasks.first_instance[task] + within
        start = tasks.start_s[task] + tasks.wait_s[task]
        lag = -_STAGGER_S * np.log(trace.noise.uniform("stagger", index))
        late = np.minimum(np.where(within > 0, lag, 0.0), tasks.run_s[task] / 4).astype(np.int64)
        end = np.where(tasks.status[task] == RUNNING, np.nan, start + tasks.run_s[task])
        return cls(
            index=index,
            within=within,
            task=task,
            machine=_machines(trace, index, task),
            start_s=start + late,
            end_s=end,
        )

    def kept(self, rows: npt.NDArray[np.bool_] | Ints) -> "_Workers":
        return _Workers(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


def _machines(trace: Trace, index: Ints, task: Ints) -> Ints:
    """Choose a machine of the task's GPU type for each instance, without checking free capacity."""
    gpu_type = trace.tasks.gpu_type[task]
    beside = np.where(trace.noise.uniform("machine kind", index) < _CPU_MACHINE_SHARE, "CPU", "MISC")
    kind = np.where(gpu_type == "", beside, gpu_type)
    drawn, machine = trace.noise.uniform("machine", index), np.empty(len(index), dtype=np.int64)
    for name, count in trace.park.count.items():
        mine = kind == name
        machine[mine] = trace.park.first[name] + (drawn[mine] * count).astype(np.int64)
    return machine


def _measured(trace: Trace, workers: _Workers) -> npt.NDArray[np.bool_]:
    """Choose the workers with sensor rows: the first of each measured task, and a share of the task's other workers."""
    share = measured_share(trace.calibration, trace.tasks.instances[workers.task])
    task = trace.noise.uniform("task measured", workers.task) >= trace.calibration.use.unmeasured_task
    chosen = trace.noise.uniform("measured", workers.index) < share
    return np.asarray(task & ((workers.within == 0) | chosen), dtype=np.bool_)


def _job_table(trace: Trace, ids: _JobIds, jobs: Ints, tasks: Ints) -> pl.DataFrame:
    status = trace.runs.status[jobs]
    ended = np.where(_unended(trace, tasks), -1, _task_end(trace, tasks))
    end = np.full(len(jobs), -1, dtype=np.int64)
    np.maximum.at(end, trace.tasks.job[tasks] - ids.first, ended)
    return published_frame(
        "pai_job_table",
        job_name=ids.job_name,
        inst_id=ids.inst_id,
        user=ids.user,
        status=STATUS_NAMES[status],
        start_time=trace.jobs.submit_s[jobs].astype(np.float64),
        end_time=np.where((status == RUNNING) | (status == WAITING), np.nan, end),
    )


def _group_tag_table(trace: Trace, ids: _JobIds, jobs: Ints) -> pl.DataFrame:
    group = trace.jobs.group[jobs]
    tags = np.array([c.tag for c in trace.calibration.classes])[trace.groups.klass[group]]
    return published_frame(
        "pai_group_tag_table",
        inst_id=ids.inst_id,
        user=ids.user,
        gpu_type_spec=np.full(len(jobs), ""),
        group=trace.noise.digests("group", group, 32),
        workload=tags,
    )


def _task_table(trace: Trace, ids: _JobIds, tasks: Ints) -> pl.DataFrame:
    all_tasks = trace.tasks
    return published_frame(
        "pai_task_table",
        job_name=ids.job_name.take(pa.array(all_tasks.job[tasks] - ids.first)),
        task_name=all_tasks.role[tasks],
        inst_num=all_tasks.instances[tasks].astype(np.float64),
        status=STATUS_NAMES[all_tasks.status[tasks]],
        start_time=all_tasks.start_s[tasks].astype(np.float64),
        end_time=np.where(_unended(trace, tasks), np.nan, _task_end(trace, tasks)),
        plan_cpu=all_tasks.plan_cpu[tasks],
        plan_mem=all_tasks.plan_mem[tasks],
        plan_gpu=all_tasks.plan_gpu[tasks],
        gpu_type=all_tasks.gpu_type[tasks],
    )


def _unended(trace: Trace, tasks: Ints) -> npt.NDArray[np.bool_]:
    status = trace.tasks.status[tasks]
    return np.asarray((status == RUNNING) | (status == WAITING), dtype=np.bool_)


def _task_end(trace: Trace, tasks: Ints) -> Ints:
    return trace.tasks.start_s[tasks] + trace.tasks.wait_s[tasks] + trace.tasks.run_s[tasks]


def _instance_table(trace: Trace, ids: _JobIds, workers: _Workers) -> pl.DataFrame:
    job = pa.array(trace.tasks.job[workers.task] - ids.first)
    return published_frame(
        "pai_instance_table",
        job_name=ids.job_name.take(job),
        task_name=trace.tasks.role[workers.task],
        inst_name=trace.noise.digests("instance", workers.index, 60),
        worker_name=trace.noise.digests("worker", workers.index, 60),
        inst_id=ids.inst_id.take(job),
        status=STATUS_NAMES[trace.tasks.status[workers.task]],
        start_time=workers.start_s.astype(np.float64),
        end_time=workers.end_s,
        machine=trace.park.name.take(pa.array(workers.machine)),
    )


def _sensor_table(trace: Trace, ids: _JobIds, measured: _Workers) -> pl.DataFrame:
    """Return one row per worker and GPU; workers without GPUs have one row with empty GPU columns."""
    plan_gpu = np.nan_to_num(trace.tasks.plan_gpu[measured.task])
    devices = np.clip(np.rint(plan_gpu / 100.0).astype(np.int64), 1, 8)
    row = np.repeat(np.arange(len(devices)), devices)
    device = np.arange(len(row)) - np.repeat(np.cumsum(devices) - devices, devices)
    rows = measured.kept(row)
    values = worker_use(trace.calibration, trace.noise, trace.scores, trace.tasks, rows.task, rows.index, device)
    job = pa.array(trace.tasks.job[rows.task] - ids.first)
    slots = np.maximum(trace.park.gpus[rows.machine], 1)
    slot = (trace.noise.below("slot", rows.index, slots) + device) % slots
    names = np.array(["", *(f"/dev/nvidia{k}" for k in range(8))])
    return published_frame(
        "pai_sensor_table",
        job_name=ids.job_name.take(job),
        task_name=trace.tasks.role[rows.task],
        worker_name=trace.noise.digests("worker", rows.index, 60),
        inst_id=ids.inst_id.take(job),
        machine=trace.park.name.take(pa.array(rows.machine)),
        gpu_name=names[np.where(np.isnan(trace.tasks.plan_gpu[rows.task]), 0, 1 + slot)],
        **{name: np.round(value, 6) for name, value in values.items()},
    )
