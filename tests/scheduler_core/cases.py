"""Jobs, clusters and predictors that the scheduler's tests build from.

Builders and hypothesis strategies only; nothing is asserted here.
Imported by the tests of this folder and by `tests/pipelines/simulation/test_simulate.py`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pipelines.simulation.engine.slowdown import Measured
from scheduler_core.cluster import Machine
from scheduler_core.fragmentation import FreeNodes, fragmented
from scheduler_core.placement import PLACEMENTS
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.target import TargetWorkload
from scheduler_core.types import FloatArray, IntArray, Job, Knowledge, PeakUse, Recommendation, Request, RunTimes

NAN = float("nan")

POOLED = sorted(name for name, kind in PLACEMENTS.items() if not kind.by_device)
"""The placements that do not need GPUs device by device."""


def request(cpu_cores: float = 4.0, mem_gib: float = 8.0, gpus: float = 1.0) -> Request:
    return Request(cpu_cores=cpu_cores, mem_gib=mem_gib, gpus=gpus)


def job(job_id: str = "a", wants: Request | None = None, **fields: object) -> Job:
    given = {"trace": "toy", "task_type": "ctr", **fields}
    return Job(job_id=job_id, request=wants or request(), **given)


def measured(run_s: float = 100.0, **fields: float) -> Measured:
    used = {
        "cpu_cores": 1.0,
        "mem_gib": 1.0,
        "gpus": 0.1,
        "gpu_mem_gib": 1.0,
        "mem_avg_gib": 0.5,
        "device_mem_gib": 16.0,
    }
    return Measured(run_s=run_s, **{**used, **fields})


def machines(count: int = 2, cpu_cores: float = 8.0, mem_gib: float = 16.0, gpus: int = 4) -> tuple[Machine, ...]:
    return tuple(Machine(name=f"m{i}", cpu_cores=cpu_cores, mem_gib=mem_gib, gpus=gpus) for i in range(count))


@dataclass
class ToyPredictor:
    """Run time as a function of the request matrix; peak use and knowledge as given; counts its calls."""

    run_time: Callable[[FloatArray], FloatArray] = field(default=lambda requests: np.full(len(requests), 100.0))
    peak: tuple[float, float, float, float] = (1.0, 1.0, 0.1, 1.0)
    runs: int = 10
    usual: tuple[float, float, float] | None = None
    known: Knowledge = field(default_factory=Knowledge)
    calls: int = 0
    rows: int = 0

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        self.calls += 1
        self.rows += len(rows)
        run_s = self.run_time(requests)
        return RunTimes(p50=run_s, p90=2.0 * run_s)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        cpu, mem, gpus, gpu_mem = (np.full(len(jobs), value) for value in self.peak)
        runs, usual = np.full(len(jobs), self.runs), None if self.usual is None else np.array([self.usual] * len(jobs))
        return PeakUse(cpu_cores=cpu, mem_gib=mem, gpus=gpus, gpu_mem_gib=gpu_mem, runs=runs, usual=usual)

    def knowledge(self, jobs: Sequence[Job]) -> Sequence[Knowledge]:
        return [self.known] * len(jobs)


WIDE = Knowledge(support={"cpu_cores": (0.0, 1e6), "mem_gib": (0.0, 1e6), "gpus": (0.0, 1e6)})
"""Support so wide that the model speaks about every candidate."""

HALF = ShrinkPolicy(alpha0=0.5, sure_runs=math.inf)
"""By no more than half at once, and importance always counts: figures that are easily told by hand."""


def one(predictor: Any, wants: Request, policy: ShrinkPolicy = HALF, **fields: Any) -> Recommendation:
    return shrink([job("a", wants, **fields)], predictor, policy)[0]


def slows_below(cores: float) -> ToyPredictor:
    """Return a predictor whose jobs take longer, in proportion, with fewer cores than `cores`."""
    return ToyPredictor(
        run_time=lambda r: 100.0 * np.maximum(1.0, cores / r[:, 0]), peak=(0.1, 0.1, 0.01, 0.1), known=WIDE
    )


GPU_REQUESTS = st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 3.0, 8.0])
REQUESTS = st.builds(
    Request,
    cpu_cores=st.floats(0.1, 64.0),
    mem_gib=st.floats(0.1, 256.0),
    gpus=GPU_REQUESTS,
)


def cluster_fragmentation(nodes: FreeNodes, target: TargetWorkload) -> float:
    """Return F of Weng et al. (ATC 2023): the mean free milli-GPUs that a pod of the target could not use."""
    return int(fragmented(nodes, target).sum()) / max(target.total, 1)
