"""Build the event log of a schedule as columns, sorted by time."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.job_metrics import instance_units
from scheduler_core.cluster import UNITS
from scheduler_core.devices import WHOLE
from scheduler_core.types import RESOURCES, FloatArray, IntArray

EVENTS: Final = ("arrive", "never_fits", "start", "complete", "fail", "kill", "preempt", "interrupt")
"""Names of the events of a job."""

_OF_ENDING: Final = {
    Ending.COMPLETED: "complete",
    Ending.FAILED: "fail",
    Ending.KILLED: "kill",
    Ending.PREEMPTED: "preempt",
    Ending.INTERRUPTED: "interrupt",
}
_OWN_ENDS: Final = (Ending.COMPLETED, Ending.FAILED, Ending.KILLED)

Column = npt.NDArray[Any]  # floats, integers or texts, depending on the column


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
    columns["machines"] = np.append(_hosts_text(schedule), np.array([""], dtype=object))[run]
    if schedule.host_devices is not None:
        texts = _devices_text(schedule, schedule.host_devices)
        columns["devices"] = np.append(texts, np.array([""], dtype=object))[run]
    return columns


def _in_order(schedule: Schedule) -> tuple[FloatArray, Column, IntArray, IntArray]:
    """Return time, event name, job and run (-1 if the event has no run) of every event, in the order of the log."""
    ending = schedule.ending
    own, interrupted, preempted = (
        np.flatnonzero(np.isin(ending, kinds)) for kinds in (_OWN_ENDS, (Ending.INTERRUPTED,), (Ending.PREEMPTED,))
    )
    arrived = np.flatnonzero(schedule.workload.arrive_s <= schedule.end_s)
    # A job that does not fit the empty cluster has two events at its arrival.
    serials = np.repeat(arrived, 1 + schedule.never_fits[arrived].astype(np.int64))
    never_fits = np.diff(serials, prepend=-1) == 0
    starts = np.arange(len(schedule.job))

    # Events are listed in the order of simultaneous events; a stable sort by time keeps that order.
    end_s, start_s, arrive_s = schedule.end_run_s, schedule.start_s, schedule.workload.arrive_s
    times_s = np.concatenate([end_s[own], end_s[interrupted], arrive_s[serials], end_s[preempted], start_s])
    order = np.argsort(times_s, kind="stable")
    run = np.concatenate([own, interrupted, np.full(len(serials), -1), preempted, starts])
    job = schedule.job
    serial = np.concatenate([job[own], job[interrupted], serials, job[preempted], job])
    code = np.concatenate(
        [
            _codes(ending[own]),
            _codes(ending[interrupted]),
            np.where(never_fits, EVENTS.index("never_fits"), EVENTS.index("arrive")).astype(np.int8),
            _codes(ending[preempted]),
            np.full(len(starts), EVENTS.index("start"), dtype=np.int8),
        ]
    )
    return times_s[order], np.array(EVENTS, dtype=object)[code[order]], serial[order], run[order]


def _codes(ending: Column) -> npt.NDArray[np.int8]:
    table = np.zeros(len(Ending), dtype=np.int8)
    for each, name in _OF_ENDING.items():
        table[each] = EVENTS.index(name)
    return np.asarray(table[ending], dtype=np.int8)


def _hosts_text(schedule: Schedule) -> Column:
    """Return the text in the column `machines` for each run (k,)."""
    hosts, counts, offsets = schedule.hosts, schedule.host_counts, schedule.host_offsets
    base = int(counts.max(initial=0)) + 1
    pairs, which = np.unique(np.asarray(hosts, dtype=np.int64) * base + counts, return_inverse=True)
    pieces = [f"{schedule.machines[pair // base].name}:{pair % base}" for pair in pairs.tolist()]
    piece = np.array(pieces, dtype=object)[which]
    begins, width = offsets[:-1], np.diff(offsets)
    texts = np.full(len(width), "", dtype=object)
    texts[width == 1] = piece[begins[width == 1]]
    for run in np.flatnonzero(width > 1).tolist():
        texts[run] = " ".join(piece[begins[run] : offsets[run + 1]])
    return texts


def _devices_text(schedule: Schedule, host_devices: IntArray) -> Column:
    """Return the text in the column `devices` for each run (k,)."""
    run_of_host = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    pieces: list[list[str]] = [[] for _ in schedule.job]
    for at, device in zip(*(axis.tolist() for axis in host_devices.nonzero()), strict=True):
        name, milli = schedule.machines[int(schedule.hosts[at])].name, int(host_devices[at, device])
        pieces[int(run_of_host[at])].append(f"{name}/{device}:{milli / WHOLE:g}")
    texts = np.empty(len(pieces), dtype=object)
    texts[:] = [" ".join(each) for each in pieces]
    return texts
