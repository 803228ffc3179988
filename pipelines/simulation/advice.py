"""The arms of a simulation: each gives every job of the pool one recommendation. Two predictors without a model.

An arm is computed by a scale: Algorithm 1 with its predictor and policy filled in. Nothing is simulated here.
Called by `pipelines.simulation.simulate`, the commands and the studies.
"""
# ruff: noqa: ARG002 -- the protocol fixes the signature; a constant uses none of it

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from pipelines.simulation.engine.slowdown import Measured, contention, need_of
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.settings import SimulationSettings
from scheduler_core.recommendations import Scale, advised
from scheduler_core.shrink import Guard, ShrinkPolicy, shrink
from scheduler_core.types import (
    RESOURCES,
    FloatArray,
    IntArray,
    Job,
    Knowledge,
    PeakUse,
    Predictor,
    Recommendation,
    Request,
    RunTimes,
)

ORACLE_RUNS: Final = 1_000_000
"""Runs that the oracle claims to have seen: more than any policy requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantPredictor:
    """Predict the same run time and peak use for every job."""

    run_s: float
    peak: Request
    gpu_mem_gib: float = 0.0
    runs: int = 100
    known: Knowledge = field(default_factory=Knowledge)

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Return `run_s` for both quantiles."""
        return RunTimes(p50=np.full(len(rows), self.run_s), p90=np.full(len(rows), self.run_s))

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Return `peak` for every job."""
        cpu, mem, gpus = (np.full(len(jobs), value) for value in self.peak.row())
        gpu_mem = np.full(len(jobs), self.gpu_mem_gib)
        return PeakUse(cpu_cores=cpu, mem_gib=mem, gpus=gpus, gpu_mem_gib=gpu_mem, runs=np.full(len(jobs), self.runs))

    def knowledge(self, jobs: Sequence[Job]) -> Sequence[Knowledge]:
        """Return `known` for every job."""
        return [self.known] * len(jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class OraclePredictor:
    """Predict each job's recorded need, and its run time under the slowdown model `contention`.

    A job that is not in `measured` is unknown (NaN, no runs).
    """

    measured: Mapping[Job, Measured]

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Return the run time under `slowdown.contention`: infinite if the job would be killed."""
        run_s = np.array([self._run_s(jobs[row], given) for row, given in zip(rows.tolist(), requests, strict=True)])
        return RunTimes(p50=run_s, p90=run_s)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Return the need: min(measured, request)."""
        needs = [self._need(job) for job in jobs]
        cpu, mem, gpus, gpu_mem = np.array(needs, dtype=np.float64).reshape(-1, 4).T
        runs = np.where(np.isnan(mem), 0, ORACLE_RUNS)
        return PeakUse(cpu_cores=cpu, mem_gib=mem, gpus=gpus, gpu_mem_gib=gpu_mem, runs=runs)

    def knowledge(self, jobs: Sequence[Job]) -> Sequence[Knowledge]:
        """Return that no feature is important and that every size of request was seen."""
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


REQUESTED: Final = "requested"
SHRUNK: Final = "shrunk"
UNGUARDED: Final = "unguarded"
ORACLE: Final = "oracle"
ARM_OF_GUARD: Final[Mapping[Guard, str]] = {"usage": SHRUNK, "none": UNGUARDED}

Advice = Mapping[str, Sequence[Recommendation]]
"""By arm, one recommendation per job of the pool."""


def scales_of(predictor: Predictor | None, pool: Pool, settings: SimulationSettings) -> dict[str, Scale]:
    """Return a scale by arm for a predictor in this process: one arm per guard, none without a predictor."""
    if predictor is None:
        return {}
    policies = {
        ARM_OF_GUARD[guard]: replace(
            settings.shrink_policy,
            guard=guard,
            device_mem_gib=pool.device_mem_gib,
            assumed_device_mem_gib=pool.assumed_device_mem_gib,
        )
        for guard in settings.guards
    }
    return {arm: _scale(predictor, policy) for arm, policy in policies.items()}


def oracle_of(pool: Pool) -> OraclePredictor:
    """Return the predictor made of the recorded run of every job of the pool."""
    return OraclePredictor(measured={entry.job: entry.measured for entry in pool.jobs})


def advice(pool: Pool, scales: Mapping[str, Scale]) -> dict[str, list[Recommendation]]:
    """Call every scale once for the whole pool, and add the arm of the oracle.

    Without any measured job the effect of a smaller request is unknown: the one arm is then `requested`, with the
    predictions and unchanged requests. Otherwise jobs that were not measured keep their requests in every arm.
    """
    jobs = [entry.job for entry in pool.jobs]
    given = {arm: advised(jobs, scale) for arm, scale in scales.items()}
    known = next((given[arm] for arm in (SHRUNK, *given) if arm in given), None)
    arms = {} if known is None else {REQUESTED: [at_request(answer) for answer in known]}
    if not any(pool.measured):
        return arms
    exact = oracle_policy(pool.device_mem_gib, pool.assumed_device_mem_gib)
    arms |= given | {ORACLE: shrink(jobs, oracle_of(pool), exact)}
    return {arm: _where(pool.measured, answers) for arm, answers in arms.items()}


def at_request(answer: Recommendation) -> Recommendation:
    """Return the recommendation with the request unchanged; its predicted run time stays."""
    return replace(answer, target=answer.request, run_time_change=0.0)


def model_decided_share(answers: Sequence[Recommendation]) -> float:
    """Return the share of recommendations in which the run-time model, not a floor, set the target."""
    return float(np.mean([answer.model_decided for answer in answers]))


def _scale(predictor: Predictor, policy: ShrinkPolicy) -> Scale:
    return lambda jobs: shrink(jobs, predictor, policy)


def _where(measured: Sequence[bool], answers: Sequence[Recommendation]) -> list[Recommendation]:
    return [answer if known else at_request(answer) for known, answer in zip(measured, answers, strict=True)]
