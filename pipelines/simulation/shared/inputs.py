"""Inputs of a simulation of shared machines, and its settings: what jobs use, how capacity is reserved for them.

Imports no compiled code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from features.vocabulary import TaskType
from pipelines.errors import BadUsage
from pipelines.simulation.engine.slowdown import PoolJob
from pipelines.simulation.shared.variation import VARIATIONS, Variation
from pipelines.simulation.workloads import Gangs
from scheduler_core.cluster import UNITS
from scheduler_core.errors import BadInput
from scheduler_core.queueing import Discipline
from scheduler_core.reserve import ReservePolicy
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["SHARED", "Load", "Reserving", "SharedSettings", "check_discipline", "load_of"]

POLICIES: Final = ("fifo", "sjf", "srtf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The recorded use of n jobs, per instance: mean CPU and GPU compute, and peak memory and GPU memory.

    `compute` (n, 2) is in milli-cores and milli-GPUs. `memory` (n, 2) is in MiB, and in thousandths of one device's
    memory. `language` (n,) marks jobs that train language models, whose runs start slowly.
    """

    compute: FloatArray
    memory: FloatArray
    language: BoolArray

    def picked(self, rows: IntArray) -> "Load":
        """Return the use of these jobs."""
        return Load(compute=self.compute[rows], memory=self.memory[rows], language=self.language[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserving:
    """How capacity is reserved: by fixed sizes, or by the measured use of each running job.

    Attributes
    ----------
    policy
        How running jobs are measured; None keeps the sizes `Workload.granted_units` of the start.
    overcommit
        Factors of the capacity of CPU, memory and GPUs that the scheduler sees.
    prior
        Reserved mean and standard deviation of CPU, and of GPU compute, of a job that starts (n, 4), per instance, in
        the units of `Load.compute`; None reserves the granted units.
    """

    policy: ReservePolicy | None = None
    overcommit: tuple[float, float, float] = (1.0, 1.0, 1.0)
    prior: FloatArray | None = field(default=None, repr=False, compare=False)

    @property
    def z(self) -> float:
        """Return the number of standard deviations that stay free; 0 for fixed sizes."""
        return 0.0 if self.policy is None else self.policy.z

    def picked(self, rows: IntArray) -> "Reserving":
        """Return the same way of reserving with the priors of these jobs."""
        return self if self.prior is None else replace(self, prior=self.prior[rows])


def load_of(jobs: Sequence[PoolJob], gangs: Gangs) -> Load:
    """Return the recorded use of the jobs of a pool, in the order of `gangs`."""
    measured = [entry.measured for entry in jobs]
    compute = np.array([[each.cpu_cores, each.gpus] for each in measured]) * np.array([UNITS[0], UNITS[2]])
    memory = np.array(
        [[each.mem_gib * UNITS[1], each.gpu_mem_gib / each.device_mem_gib * UNITS[2]] for each in measured]
    )
    pieces = gangs.pieces[:, None]
    return Load(
        compute=compute / pieces,
        memory=memory / pieces,
        language=np.array([entry.job.task_type == TaskType.NLP for entry in jobs]),
    )


def check_discipline(discipline: Discipline) -> None:
    """Raise BadInput for a discipline that only the other engines support."""
    faults = (
        (f"policy {discipline.policy}", f"one of {', '.join(POLICIES)}", discipline.policy not in POLICIES),
        (f"placement {discipline.placement}", "best_fit", discipline.placement != "best_fit"),
        (
            f"preemption (the default of {discipline.policy})",
            "none (preempt=False)",
            discipline.policy in POLICIES and discipline.preempts() and discipline.preempt is None,
        ),
        ("preemption", "none", bool(discipline.preempt)),
        ("backfill", "none", discipline.backfill != "none"),
        ("a limit of overtaking", "none", discipline.overtakes is not None),
        ("aging", "none", discipline.aging != 0.0),
        ("matching of GPU types", "none", discipline.match_gpu_type),
    )
    if found := [f"found {what}, expected {allowed}" for what, allowed, wrong in faults if wrong]:
        raise BadInput(f"shared machines: {'; '.join(found)}")


SHARED: Final = "shared"
"""Name of the slowdown model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSettings:
    """Settings of the slowdown model `shared`: `policy` of the arms that reclaim, and the name of a variation."""

    policy: ReservePolicy = field(default_factory=ReservePolicy)
    variation: str = "default"

    def __post_init__(self) -> None:
        if self.variation not in VARIATIONS:
            raise BadUsage(f"variation: found {self.variation!r}, expected one of {', '.join(VARIATIONS)}")

    @property
    def varies(self) -> Variation:
        """Return how use varies."""
        return VARIATIONS[self.variation]

    def check(self, discipline: Discipline, *, energy: bool) -> None:
        """Raise BadUsage if only the other slowdown models support the rest of the settings."""
        why = ""
        try:
            check_discipline(discipline)
        except BadInput as error:
            why = str(error)
        why = "found energy accounts, which need fixed allocations" if energy else why
        if why:
            raise BadUsage(f"--truth {SHARED}: {why}; for them use --truth contention")

    def notes(self) -> list[str]:
        """Return notes on the assumptions, to print with the results."""
        policy = self.policy
        return [
            f"truth {SHARED}: jobs take what others leave idle, by weights of their requests; pooled GPUs are shared "
            "at no cost, and of GPUs shared device by device, jobs on one slow each other as measured; how use varies "
            f"within a run is assumed (variation {self.variation})",
            f"arm reclaim: a job keeps its request for {policy.probation_s / 60.0:g} min, then reserves its measured "
            f"mean, with {policy.z:g} standard deviations free per machine, and its memory peak times "
            f"{policy.memory_margin:g}; *_allocated_frac counts requests and can exceed 1",
        ]
