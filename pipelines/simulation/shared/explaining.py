"""Columns of an event log that explain kills and slowdowns on shared machines."""

from typing import TYPE_CHECKING, Final

import numpy as np

from pipelines.simulation.measures.event_log import Column
from scheduler_core.cluster import UNITS
from scheduler_core.types import FloatArray

if TYPE_CHECKING:
    from pipelines.simulation.shared.run import SharedRun

__all__ = ["explanations"]

MEMORY: Final = 1
"""Column of memory in `UNITS`."""


def explanations(run: "SharedRun", log: dict[str, Column]) -> dict[str, Column]:
    """Return columns for the events of a log: what each job lost to shortages, and why it was killed.

    `lost_cpu_s` and `lost_gpu_s` are the seconds that the event's job lost to shortages of CPU and of GPU compute until
    the end of the simulation. The other columns are of kills; at other events they are NaN, or an empty text.
    `short_of` is `memory of m0` or `memory of GPU m0/3`. `used`, `reserved`, `used_by_all` and `capacity` are the
    memory of an instance of the killed job on all its devices, its reservation, the sum over all instances there, and
    the capacity: in GiB, or for GPUs in memories of one device.
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
