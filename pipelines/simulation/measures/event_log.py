"""The event log of a schedule as columns, sorted by time; on shared machines with what explains kills and slowdowns."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.job_metrics import instance_units
from scheduler_core.cluster import UNITS
from scheduler_core.gangs import WHOLE
from scheduler_core.types import RESOURCES, FloatArray

__all__ = ["explanations"]

EVENTS: Final = ("arrive", "never_fits", "start", "complete", "fail", "kill", "preempt", "interrupt")
"""Names of the events of a job."""

Column = npt.NDArray[Any]  # floats, integers or texts, depending on the column

_OF_ENDING: Final = np.array(["", "complete", "fail", "kill", "preempt", "interrupt"], dtype=object)
"""Names of events by code of `Ending`."""


def events(schedule: Schedule) -> dict[str, Column]:
    """Return the columns of the event log: time_s, event, serial, instances, resources, machines and perhaps devices.

    Simultaneous events are in this order: ends of runs, interruptions, arrivals (each with its `never_fits`),
    preemptions, starts. Runs with the same event are in the order of their starts, arrivals in the order of serials.
    cpu_cores, mem_gib and gpus are per instance: the request at arrivals, the allocation at other events.
    `machines` is text: `m0:2 m1:1` means two instances on m0 and one on m1; it is empty at arrivals. `devices` exists
    only if GPUs are shared by devices: `m0/0:0.5 m0/3:1` means half of m0's first GPU and all of its fourth.
    """
    workload = schedule.workload
    times_s, event, serial, run = _in_order(schedule)
    columns: dict[str, Column] = {
        "time_s": times_s,
        "event": event,
        "serial": serial,
        "instances": workload.instances[serial],
    }
    for at, (resource, unit) in enumerate(zip(RESOURCES, UNITS, strict=True)):
        requested = workload.request_units[:, at][serial]
        # Run -1 means that the event has no run.
        held = np.append(instance_units(schedule, at), 0)[run]
        columns[resource] = np.where(run >= 0, held, requested) / unit
    of_host = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    names = [machine.name for machine in schedule.machines]
    hosts = zip(schedule.hosts.tolist(), schedule.host_counts.tolist(), strict=True)
    columns["machines"] = _texts(schedule, of_host, (f"{names[host]}:{count}" for host, count in hosts))[run]
    if schedule.host_devices is not None:
        entry, device = schedule.host_devices.nonzero()
        milli = schedule.host_devices[entry, device].tolist()
        held_by = zip(schedule.hosts[entry].tolist(), device.tolist(), milli, strict=True)
        pieces = (f"{names[host]}/{number}:{amount / WHOLE:g}" for host, number, amount in held_by)
        columns["devices"] = _texts(schedule, of_host[entry], pieces)[run]
    return columns


def _in_order(schedule: Schedule) -> tuple[Column, Column, Column, Column]:
    """Return time, event name, job and run (-1 if the event has no run) of every event, in the order of the log."""
    own, interrupted, preempted = (
        np.flatnonzero(np.isin(schedule.ending, kinds))
        for kinds in ((Ending.COMPLETED, Ending.FAILED, Ending.KILLED), (Ending.INTERRUPTED,), (Ending.PREEMPTED,))
    )
    arrived = np.flatnonzero(schedule.workload.arrive_s <= schedule.end_s)
    # A job that does not fit the empty cluster has two events at its arrival.
    arrivals = np.repeat(arrived, 1 + schedule.never_fits[arrived].astype(np.int64))
    at_arrival = np.where(np.diff(arrivals, prepend=-1) == 0, "never_fits", "arrive").astype(object)
    ended, started = np.concatenate([own, interrupted]), np.arange(len(schedule.job))

    # Events are listed in the order of simultaneous events; a stable sort by time keeps that order.
    end_s, names, job = schedule.end_run_s, _OF_ENDING[schedule.ending], schedule.job
    times_s = np.concatenate([end_s[ended], schedule.workload.arrive_s[arrivals], end_s[preempted], schedule.start_s])
    order = np.argsort(times_s, kind="stable")
    starts = np.full(len(started), "start", dtype=object)
    event = np.concatenate([names[ended], at_arrival, names[preempted], starts])
    serial = np.concatenate([job[ended], arrivals, job[preempted], job])
    run = np.concatenate([ended, np.full(len(arrivals), -1), preempted, started])
    return times_s[order], event[order], serial[order], run[order]


def _texts(schedule: Schedule, of_run: Column, pieces: Iterable[str]) -> Column:
    """Join the pieces of each run (k,) by blanks; a last, empty text stands for events without a run."""
    joined: list[list[str]] = [[] for _ in range(len(schedule.job) + 1)]
    for run, piece in zip(of_run.tolist(), pieces, strict=True):
        joined[run].append(piece)
    texts = np.empty(len(joined), dtype=object)
    texts[:] = [" ".join(each) for each in joined]
    return texts


if TYPE_CHECKING:
    from pipelines.simulation.shared.run import SharedRun


MEMORY: Final = 1
"""Column of memory in `UNITS`."""


def explanations(run: "SharedRun", log: dict[str, Column]) -> dict[str, Column]:
    """Return columns for the events of a log: what each job lost to shortages, and why it was killed.

    `lost_cpu_s` and `lost_gpu_s` are the seconds that the event's job lost to shortages of CPU and of GPU compute until
    the end of the simulation. The other columns are of kills; at other events they are NaN, or an empty text.
    `short_of` is `memory of m0` or `memory of GPU m0/3`. Memory is in GiB, for GPUs in memories of one device: `used`
    by an instance of the killed job on all its devices, `reserved` for it, `used_by_all` instances there, `capacity`.
    """
    serial = log["serial"]
    columns: dict[str, Column] = {"lost_cpu_s": run.lost_s[serial, 0], "lost_gpu_s": run.lost_s[serial, 1]}
    kills = run.kills
    # A job is killed once at a time, so job and time identify a kill.
    at = {(job, at_s): row for row, (job, at_s) in enumerate(zip(kills["job"].tolist(), kills["at_s"], strict=True))}
    killed = np.flatnonzero(log["event"] == "kill")
    rows = [at[job, at_s] for job, at_s in zip(serial[killed].tolist(), log["time_s"][killed].tolist(), strict=True)]
    short_of = np.full(len(serial), "", dtype=object)
    short_of[killed] = [_place(run, row) for row in rows]
    columns["short_of"] = short_of
    for name in ("used", "reserved", "used_by_all"):
        columns[name] = np.full(len(serial), np.nan)
        columns[name][killed] = (kills[name] / _unit(run))[rows]
    columns["capacity"] = np.full(len(serial), np.nan)
    columns["capacity"][killed] = [_capacity(run, row) for row in rows]
    return columns


def _unit(run: "SharedRun") -> FloatArray:
    """Return the units per GiB of each kill, or per memory of one device."""
    return np.where(run.kills["device"] < 0, UNITS[MEMORY], UNITS[2])


def _place(run: "SharedRun", row: int) -> str:
    kill = run.kills[row]
    name = run.schedule.machines[int(kill["machine"])].name
    if kill["device"] < 0:
        return f"memory of {name}"
    return f"memory of GPU {name}/{kill['device']}" if run.by_device else f"memory of the GPUs of {name}"


def _capacity(run: "SharedRun", row: int) -> float:
    kill = run.kills[row]
    machine = run.schedule.machines[int(kill["machine"])]
    if kill["device"] < 0:
        return machine.mem_gib
    return 1.0 if run.by_device else float(machine.gpus)
