"""What every run of a schedule draws in watts: its own work, and its part of what the machines draw idle.

No time and no grid is looked at here. Called by `accounting`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.holding import Uses, drawn_units, instance_units
from scheduler_core.cluster import UNITS, Machine
from scheduler_core.errors import BadInput
from scheduler_core.planning.power import Assumed, NodePower
from scheduler_core.types import BoolArray, FloatArray, IntArray

PARTS = ("cpu_busy", "gpu_busy", "cpu_idle", "gpu_idle")
"""What a run's draw is made of, in the order of the columns; the idle ones it only takes its part of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Watts of runs on machines (e entries, as `Schedule.hosts`).

    Attributes
    ----------
    run, machine
        The entry's run and machine.
    watts
        (e, 4), the columns as `PARTS`.
    cpu_known, gpu_known
        Of each run (k): its use of them was measured.
    """

    run: IntArray
    machine: IntArray
    watts: FloatArray
    cpu_known: BoolArray
    gpu_known: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The machines as columns (m): what they hold, and what they draw."""

    cores: FloatArray
    gpus: FloatArray
    cpu_idle_w: FloatArray
    cpu_full_w: FloatArray
    gpu_idle_w: FloatArray
    gpu_full_w: FloatArray

    @classmethod
    def of(cls, machines: Sequence[Machine], powers: Sequence[NodePower]) -> "Fleet":
        """Return machines and their powers as columns.

        Raises
        ------
        BadInput
            If there are not as many powers as machines.
        """
        if len(powers) != len(machines):
            raise BadInput(f"power: found figures of {len(powers)} machines, expected {len(machines)}, one a machine")
        return cls(
            cores=np.array([each.cpu_cores for each in machines], dtype=np.float64),
            gpus=np.array([each.gpus for each in machines], dtype=np.float64),
            cpu_idle_w=np.array([each.cpu_idle_w for each in powers], dtype=np.float64),
            cpu_full_w=np.array([each.cpu_full_w for each in powers], dtype=np.float64),
            gpu_idle_w=np.array([each.gpu_idle_w for each in powers], dtype=np.float64),
            gpu_full_w=np.array([each.gpu_full_w for each in powers], dtype=np.float64),
        )

    @property
    def idle_w(self) -> FloatArray:
        """Return what each machine draws idle."""
        return np.asarray(self.cpu_idle_w + self.gpus * self.gpu_idle_w, dtype=np.float64)


def draw(schedule: Schedule, uses: Uses, fleet: Fleet, assumed: Assumed) -> Draw:
    """Return what runs draw beyond idle, and their parts of the idle draw.

    A GPU draws idle + (full - idle) x use; the CPUs of a machine likewise, with the use of all cores (ours: linear). A
    run's part of the idle draw is that of the GPUs it holds, and of the CPUs in proportion to the cores it holds; where
    no job asks for cores, in proportion to the GPUs it holds (ours). What nobody holds is nobody's.
    """
    run = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    machine = np.asarray(schedule.hosts, dtype=np.int64)
    count = schedule.host_counts
    gpus, gpus_used, gpu_known = _held(schedule, uses, 2, assumed.gpu_frac)
    cores, cores_used, cpu_known = _held(schedule, uses, 0, assumed.cpu_frac)
    if schedule.workload.request_units[:, 0].any():
        part, busy = _over(cores[run], fleet.cores[machine]), _over(cores_used[run], fleet.cores[machine])
    else:
        part = _over(gpus[run], fleet.gpus[machine])
        busy = part * assumed.cpu_frac
        cpu_known = np.zeros_like(cpu_known)
    watts = np.column_stack(
        [
            count * busy * (fleet.cpu_full_w - fleet.cpu_idle_w)[machine],
            count * gpus_used[run] * (fleet.gpu_full_w - fleet.gpu_idle_w)[machine],
            count * part * fleet.cpu_idle_w[machine],
            count * gpus[run] * fleet.gpu_idle_w[machine],
        ]
    )
    return Draw(run=run, machine=machine, watts=watts, cpu_known=cpu_known, gpu_known=gpu_known)


def _held(
    schedule: Schedule, uses: Uses, resource: int, assumed_frac: float
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return what an instance of each run (k) holds and uses, and whether the use is known (or there is none)."""
    held = instance_units(schedule, resource) / UNITS[resource]
    instances = schedule.workload.instances[schedule.job]
    used = drawn_units(schedule, uses, resource) / instances / UNITS[resource]
    unknown = np.isnan(used)
    known: BoolArray = ~unknown | (held == 0.0)
    return held, np.where(unknown, assumed_frac * held, used), known


def _over(amounts: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(amounts, whole, out=np.zeros_like(amounts), where=whole > 0.0)
