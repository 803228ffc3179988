"""Two predictors that need no model: one that always says the same, and one that knows.

Both satisfy `types.Predictor`; the constant one is for tests and drills, the oracle is the bound of what can be gained.
Called by `pipelines.simulation.simulate` and by tests.
"""
# ruff: noqa: ARG002 -- the protocol gives the signature; a constant looks at none of it

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pipelines.simulation.engine.truth import Measured, contention, need_of
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import RESOURCES, FloatArray, IntArray, Job, Knowledge, PeakUse, Request, RunTimes

ORACLE_RUNS: Final = 1_000_000
"""The oracle has seen as many runs as any policy may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantPredictor:
    """Answer the same run time and peak use for every job, whatever it requests."""

    run_s: float
    peak: Request
    gpu_mem_gib: float = 0.0
    runs: int = 100
    known: Knowledge = field(default_factory=Knowledge)

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Answer `run_s` for both quantiles."""
        return RunTimes(p50=np.full(len(rows), self.run_s), p90=np.full(len(rows), self.run_s))

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Answer `peak` for every job."""
        cpu, mem, gpus = (np.full(len(jobs), value) for value in self.peak.row())
        gpu_mem = np.full(len(jobs), self.gpu_mem_gib)
        return PeakUse(cpu_cores=cpu, mem_gib=mem, gpus=gpus, gpu_mem_gib=gpu_mem, runs=np.full(len(jobs), self.runs))

    def knowledge(self, jobs: Sequence[Job]) -> Sequence[Knowledge]:
        """Answer `known` for every job."""
        return [self.known] * len(jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class OraclePredictor:
    """Answer what each job will really need and how long it will run under contention.

    A job that is not in `measured` is unknown (NaN, no runs).
    """

    measured: Mapping[Job, Measured]

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Answer the run time under `truth.contention`: infinite where the job would be killed."""
        run_s = np.array([self._run_s(jobs[row], given) for row, given in zip(rows.tolist(), requests, strict=True)])
        return RunTimes(p50=run_s, p90=run_s)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Answer the need: min(measured, request)."""
        needs = [self._need(job) for job in jobs]
        cpu, mem, gpus, gpu_mem = np.array(needs, dtype=np.float64).reshape(-1, 4).T
        runs = np.where(np.isnan(mem), 0, ORACLE_RUNS)
        return PeakUse(cpu_cores=cpu, mem_gib=mem, gpus=gpus, gpu_mem_gib=gpu_mem, runs=runs)

    def knowledge(self, jobs: Sequence[Job]) -> Sequence[Knowledge]:
        """Answer that nothing is important in itself and every request has been seen."""
        return [Knowledge(support=dict.fromkeys(RESOURCES, (0.0, math.inf)))] * len(jobs)

    def _run_s(self, job: Job, given: FloatArray) -> float:
        measured = self.measured.get(job)
        if measured is None:
            return math.nan
        cpu, mem, gpus = given.tolist()
        outcome = contention(measured, job.request, Request(cpu_cores=cpu, mem_gib=mem, gpus=gpus), None)
        return math.inf if outcome.killed else outcome.run_s

    def _need(self, job: Job) -> tuple[float, float, float, float]:
        measured = self.measured.get(job)
        if measured is None:
            return (math.nan, math.nan, math.nan, math.nan)
        need = need_of(measured, job.request)
        return (need.cpu_cores, need.mem_gib, need.gpus, need.gpu_mem_gib)


def oracle_policy(device_mem_gib: Mapping[str, float], assumed_device_mem_gib: float) -> ShrinkPolicy:
    """Return the policy under which the oracle's targets are the needs themselves (GPUs on the grid)."""
    return ShrinkPolicy(
        alpha0=0.0,
        alpha_step=1.0,
        minimum_change=0.0,
        min_runs=1,
        mem_margin=0.0,
        gpu_mem_margin=0.0,
        device_mem_gib=device_mem_gib,
        assumed_device_mem_gib=assumed_device_mem_gib,
    )
