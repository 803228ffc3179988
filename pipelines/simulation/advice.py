"""The arms of a simulation, each a way to choose requests or to reserve capacity, and predictors without a model.

Under the slowdown model `shared`, `reclaim` measures each running job and needs no history; `reclaim_prior` also sizes
newcomers by the usage models.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from pipelines.simulation.engine.slowdown import Measured, SlowdownModel, contention, contention_ideal, need_of
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.shared.inputs import Reserving
from pipelines.simulation.workloads import Gangs, Starts, as_requested, predicted_times, starts_under
from scheduler_core.cluster import UNITS
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.reserve import ReservePolicy
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

__all__ = [
    "ARM_OF_GUARD",
    "ORACLE",
    "RECLAIM",
    "RECLAIM_PRIOR",
    "REQUESTED",
    "SHRUNK",
    "UNGUARDED",
    "Advice",
    "ConstantPredictor",
    "Scale",
    "Sized",
    "at_request",
    "model_decided_share",
    "oracle_advice",
    "oracle_of",
    "oracle_policy",
    "scales_of",
]

# ruff: noqa: ARG002 -- the `Predictor` protocol fixes the signatures, although a constant ignores its arguments


ORACLE_RUNS: Final = 1_000_000
"""Number of earlier runs that the oracle reports for every job: more than any shrink policy requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantPredictor:
    """A predictor that returns the same run time and peak use for every job."""

    run_s: float
    peak: Request
    gpu_mem_gib: float = 0.0
    runs: int = 100
    known: Knowledge = field(default_factory=Knowledge)

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Return `run_s` as p50 and p90 run time of every job and request."""
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
    """A predictor that knows each job's recorded run and computes run times by a slowdown model.

    For a job that is not in `measured` it returns NaN, and reports no earlier runs.
    """

    measured: Mapping[Job, Measured]
    slowdown: SlowdownModel = contention

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Return run times with the given requests; infinite if the job would be killed for lack of memory."""
        run_s = np.array([self._run_s(jobs[row], given) for row, given in zip(rows.tolist(), requests, strict=True)])
        return RunTimes(p50=run_s, p90=run_s)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Return min(measured use, request) of every job and resource as its peak use; more GPU where that slows it."""
        needs = [self._need(job) for job in jobs]
        cpu, mem, gpus, gpu_mem = np.array(needs, dtype=np.float64).reshape(-1, 4).T
        runs = np.where(np.isnan(mem), 0, ORACLE_RUNS)
        return PeakUse(cpu_cores=cpu, mem_gib=mem, gpus=gpus, gpu_mem_gib=gpu_mem, runs=runs)

    def knowledge(self, jobs: Sequence[Job]) -> Sequence[Knowledge]:
        """Report, for every job, no important resource, and that requests of every size were seen in training."""
        return [Knowledge(support=dict.fromkeys(RESOURCES, (0.0, math.inf)))] * len(jobs)

    def _run_s(self, job: Job, given: FloatArray) -> float:
        measured = self.measured.get(job)
        if measured is None:
            return math.nan
        cpu, mem, gpus = given.tolist()
        outcome = self.slowdown(measured, job.request, Request(cpu_cores=cpu, mem_gib=mem, gpus=gpus), None)
        return math.inf if outcome.killed else outcome.run_s

    def _need(self, job: Job) -> tuple[float, float, float, float]:
        measured = self.measured.get(job)
        if measured is None:
            return (math.nan, math.nan, math.nan, math.nan)
        need = need_of(measured, job.request)
        return (need.cpu_cores, need.mem_gib, self._gpus(measured, job.request, need.gpus), need.gpu_mem_gib)

    def _gpus(self, measured: Measured, request: Request, need: float) -> float:
        """Return the GPUs with which a job runs less than theta longer, from its need on in steps of the grid."""
        policy = ShrinkPolicy()
        for gpus in np.arange(need, request.gpus, policy.gpu_grid).tolist() if need < request.gpus else ():
            if self.slowdown(measured, request, replace(request, gpus=gpus), None).stretch < 1.0 + policy.theta:
                return float(gpus)
        return need if math.isnan(request.gpus) else request.gpus


def oracle_policy(device_mem_gib: Mapping[str, float], assumed_device_mem_gib: float) -> ShrinkPolicy:
    """Return a shrink policy that sets each target to the oracle's peak use (GPUs rounded up to an allowed size)."""
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

Scale = Callable[[Sequence[Job]], Sequence[Recommendation]]
"""Algorithm 1 of Yang, Hong and Tang with a predictor and a policy: one recommendation per job, in order."""

Advice = Mapping[str, Sequence[Recommendation]]
"""For each arm, one recommendation per job of the pool."""


def scales_of(predictor: Predictor | None, pool: Pool, settings: SimulationSettings) -> dict[str, Scale]:
    """Return a function from jobs to recommendations per guard, by name of its arm; none without a predictor."""
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
    return {arm: partial(shrink, predictor=predictor, policy=policy) for arm, policy in policies.items()}


def oracle_of(pool: Pool, slowdown: SlowdownModel = contention) -> OraclePredictor:
    """Return a predictor that knows the recorded run of every job of the pool."""
    return OraclePredictor(measured={entry.job: entry.measured for entry in pool.jobs}, slowdown=slowdown)


def oracle_advice(pool: Pool, slowdown: SlowdownModel = contention) -> list[Recommendation]:
    """Return what the oracle gives every job of the pool: its need, and more where the slowdown model demands it."""
    exact = oracle_policy(pool.device_mem_gib, pool.assumed_device_mem_gib)
    return shrink([entry.job for entry in pool.jobs], oracle_of(pool, slowdown), exact)


def advice(pool: Pool, scales: Mapping[str, Scale]) -> dict[str, list[Recommendation]]:
    """Return every arm's recommendations: call each function of `scales` once for all jobs, and add the arm `oracle`.

    Jobs whose use was not measured keep their requests in every arm, because the effect of a smaller request on them is
    unknown. If no job was measured, the only arm is `requested`: predicted run times with unchanged requests.
    """
    jobs = [entry.job for entry in pool.jobs]
    given = {arm: list(scale(jobs)) for arm, scale in scales.items()}
    known = next((given[arm] for arm in (SHRUNK, *given) if arm in given), None)
    arms = {} if known is None else {REQUESTED: [at_request(answer) for answer in known]}
    if not any(pool.measured):
        return arms
    arms |= given | {ORACLE: oracle_advice(pool)}
    return {
        arm: [answer if known else at_request(answer) for known, answer in zip(pool.measured, answers, strict=True)]
        for arm, answers in arms.items()
    }


def at_request(answer: Recommendation) -> Recommendation:
    """Return the recommendation with the full request as its target; keep its predicted run time."""
    return replace(answer, target=answer.request, run_time_change=0.0)


def model_decided_share(answers: Sequence[Recommendation]) -> float:
    """Return the share of recommendations whose target was set by the run-time model rather than by a lower bound."""
    return float(np.mean([answer.model_decided for answer in answers]))


RECLAIM: Final = "reclaim"
RECLAIM_PRIOR: Final = "reclaim_prior"

PRIOR_CV: Final = 0.5
"""Coefficient of variation that is assumed for a job of which only its predicted use is known; Philly's median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """How an arm treats every job of the pool: first sizes (n), and how capacity is reserved."""

    starts: Starts
    reserving: Reserving

    @staticmethod
    def at_submission(pool: Pool, gangs: Gangs, answers: Sequence[Recommendation]) -> "Sized":
        """Return an arm that sizes every job once, at submission, as recommended."""
        return Sized(starts=starts_under("unchanged", pool.jobs, gangs, answers), reserving=Reserving())

    @staticmethod
    def newcomers(gangs: Gangs, starts: Starts, policy: ReservePolicy, peak: PeakUse, *, min_runs: int) -> "Sized":
        """Return an arm that measures running jobs, and sizes newcomers by their predicted use of CPU and GPUs.

        A newcomer reserves its predicted use if at least `min_runs` measured runs support it, else its request. Memory
        is not predicted: it stays at the request until it is measured.
        """
        known = peak.runs >= min_runs
        columns = []
        for at, use in ((0, peak.cpu_cores), (2, peak.gpus)):
            request = gangs.request_units[:, at].astype(np.float64)
            predicted = use * UNITS[at] / gangs.pieces
            mean = np.where(known & np.isfinite(predicted), np.minimum(predicted, request), request)
            most = (request - mean) / max(policy.z, 1e-9)
            columns += [mean, np.minimum(PRIOR_CV * mean, most)]
        return Sized(starts=starts, reserving=Reserving(policy=policy, prior=np.column_stack(columns)))


def shared_arms(
    pool: Pool, gangs: Gangs, advice: Advice, settings: SimulationSettings, predictor: Predictor | None
) -> dict[str, Sized]:
    """Return the arms under `shared`: `requested`, those of `advice`, and `reclaim`; with a predictor `reclaim_prior`.

    Queue orders see the predicted run times of unchanged requests in the arms that reclaim. The oracle gives mean use.
    """
    policy, answers = settings.shared.policy, advice.get(REQUESTED)
    starts = as_requested(gangs, None if answers is None else predicted_times(answers))
    arms = {REQUESTED: Sized(starts=starts, reserving=Reserving())}
    arms |= {
        arm: Sized.at_submission(pool, gangs, given) for arm, given in advice.items() if arm not in (REQUESTED, ORACLE)
    }
    arms[RECLAIM] = Sized(starts=starts, reserving=Reserving(policy=policy))
    peak = None if predictor is None else _peak_use(pool, predictor)
    if peak is not None:
        arms[RECLAIM_PRIOR] = Sized.newcomers(gangs, starts, policy, peak, min_runs=settings.shrink_policy.min_runs)
    return arms | {ORACLE: Sized.at_submission(pool, gangs, oracle_advice(pool, contention_ideal))}


def _peak_use(pool: Pool, predictor: Predictor) -> PeakUse | None:
    try:
        return predictor.peak_use([entry.job for entry in pool.jobs])
    except PredictorUnavailable:
        return None
