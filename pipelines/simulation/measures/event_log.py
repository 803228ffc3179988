"""The event log of a schedule as columns, sorted by time."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.job_metrics import instance_units
from scheduler_core.cluster import UNITS
from scheduler_core.gangs import WHOLE
from scheduler_core.types import RESOURCES

EVENTS: Final = ("arrive", "never_fits", "start", "complete", "fail", "kill", "preempt")
"""Names of the events of a job."""

Column = npt.NDArray[Any]  # floats, integers or texts, depending on the column

_OF_ENDING: Final = np.array(["", "complete", "fail", "kill", "preempt"], dtype=object)
"""Names of events by code of `Ending`."""


def events(schedule: Schedule) -> dict[str, Column]:
    """Return the columns of the event log: time_s, event, serial, instances, resources, machines and perhaps devices.

    Simultaneous events are in this order: ends of runs, arrivals (each with its `never_fits`),
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
    ended, preempted = (
        np.flatnonzero(np.isin(schedule.ending, kinds))
        for kinds in ((Ending.COMPLETED, Ending.FAILED, Ending.KILLED), (Ending.PREEMPTED,))
    )
    arrived = np.flatnonzero(schedule.workload.arrive_s <= schedule.end_s)
    # A job that does not fit the empty cluster has two events at its arrival.
    arrivals = np.repeat(arrived, 1 + schedule.never_fits[arrived].astype(np.int64))
    at_arrival = np.where(np.diff(arrivals, prepend=-1) == 0, "never_fits", "arrive").astype(object)
    started = np.arange(len(schedule.job))

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
