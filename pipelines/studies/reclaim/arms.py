"""The arms of the reclaiming study: fixed sizes at submission, fixed overcommit, and reservations of running jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, UNGUARDED
from pipelines.simulation.reclaiming import RECLAIM, RECLAIM_PRIOR, Sized
from pipelines.simulation.shared.inputs import Reserving
from pipelines.simulation.workloads import Gangs, as_requested
from pipelines.studies.shrinking.arms import Size, Sizing, guarded, oracle, requests_of, run_times, unguarded
from scheduler_core.reserve import ReservePolicy
from scheduler_core.shrink import shrink
from scheduler_core.types import FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, Recommendation, RunTimes

__all__ = ["ARMS", "BOUND", "Arm", "sized"]

BOUND: Final = "bound"

PEAK_MARGIN: Final = 1.15
"""Margin of the vertical pod autoscaler above the peak."""

BOUND_Z: Final = 2.326
"""Standard deviations for a risk of 1 % if use is normal."""

P95_LEVELS: Final = {"used_cpu_cores": 0.95, "mem_max_gib": 1.0, "used_gpus": 0.95, "gpu_mem_max_gib": 1.0}
"""Quantile of each measured column over earlier runs of a group, as KRR and similar advisers choose it."""

P95_MARGIN: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A way to reserve capacity: its description, its function, and whether it needs predictions."""

    what: str
    size: Callable[[Sizing, Gangs, ReservePolicy], Sized]
    predicts: bool = False


def sized(arm: str, inputs: Sizing, gangs: Gangs, policy: ReservePolicy) -> Sized:
    """Return how an arm treats the jobs of the pool; queue orders see the same predicted run times in every arm."""
    first = ARMS[arm].size(inputs, gangs, policy)
    predicted_s = run_times(inputs, requests_of(inputs.jobs))
    known = np.where(np.isfinite(predicted_s) & (predicted_s >= 0.0), predicted_s, np.nan)
    return replace(first, starts=replace(first.starts, predicted_s=known))


def _at_submission(give: Size) -> Callable[[Sizing, Gangs, ReservePolicy], Sized]:
    return lambda inputs, gangs, _: Sized.at_submission(inputs.pool, gangs, give(inputs))


def _reserving(make: Callable[[ReservePolicy], Reserving]) -> Callable[[Sizing, Gangs, ReservePolicy], Sized]:
    return lambda _, gangs, policy: Sized(starts=as_requested(gangs), reserving=make(policy))


def _overcommit(compute: float, memory: float) -> Callable[[Sizing, Gangs, ReservePolicy], Sized]:
    return _reserving(lambda _: Reserving(overcommit=(compute, memory, compute)))


def _probation_peak(policy: ReservePolicy) -> Reserving:
    return Reserving(policy=replace(policy, memory_margin=PEAK_MARGIN), peak_margin=PEAK_MARGIN)


def _reclaim_prior(inputs: Sizing, gangs: Gangs, policy: ReservePolicy) -> Sized:
    """Reclaim, and size the CPU and GPU compute of a newcomer by the usage models; memory stays at the request."""
    peak = inputs.predictor.peak_use(inputs.jobs)
    return Sized.newcomers(gangs, as_requested(gangs), policy, peak, min_runs=inputs.policy.min_runs)


def _p95(inputs: Sizing) -> list[Recommendation]:
    """Size every job by quantiles of its group's earlier runs; without earlier runs keep its request."""
    known = _PastUse(inputs.predictor, past_use(inputs.pool.frame))
    policy = replace(
        inputs.policy,
        guard="usage",
        alpha0=0.0,
        alpha_step=1.0,
        min_runs=1,
        minimum_change=0.0,
        cpu_margin=P95_MARGIN,
        mem_margin=P95_MARGIN,
        gpu_margin=P95_MARGIN,
        gpu_mem_margin=P95_MARGIN,
    )
    return shrink(inputs.jobs, known, policy)


def past_use(frame: pl.DataFrame) -> PeakUse:
    """Return quantiles of use for every job (n), over runs of its group and role that ended before its submission.

    `frame` has canonical jobs joined with their use. Without a known group or an earlier run, the values are NaN.
    """
    key = ["trace", "cluster", "group", "role"]
    row, measured = frame.with_row_index("row"), list(P95_LEVELS)
    past = frame.filter(pl.col("group").is_not_null()).select(*key, "end_ts", *measured)
    pairs = row.select("row", *key, "submit_ts").join(past, on=key).filter(pl.col("end_ts") < pl.col("submit_ts"))
    quantiles = [pl.col(name).cast(pl.Float64).quantile(at, "equiprobable") for name, at in P95_LEVELS.items()]
    sizes = pairs.group_by("row").agg(pl.len().alias("runs"), *quantiles)
    every = row.select("row").join(sizes, on="row", how="left", maintain_order="left")
    cpu, mem, gpus, gpu_mem = (every[name].fill_null(float("nan")).to_numpy() for name in measured)
    runs = every["runs"].fill_null(0).to_numpy().astype(np.int64)
    return PeakUse(cpu_cores=cpu, mem_gib=mem, gpus=gpus, gpu_mem_gib=gpu_mem, runs=runs)


@dataclass(frozen=True, slots=True)
class _PastUse:
    """A predictor with given peak use, and run times that Algorithm 1 ignores."""

    predictor: Predictor
    use: PeakUse

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        return self.predictor.run_times(jobs, rows, requests)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:  # noqa: ARG002 -- the protocol gives the signature
        return self.use

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        return [Knowledge()] * len(jobs)


ARMS: Final[Mapping[str, Arm]] = {
    REQUESTED: Arm(what="every job holds its request", size=_reserving(lambda _: Reserving())),
    SHRUNK: Arm(what="Algorithm 1 above floors", size=_at_submission(guarded), predicts=True),
    UNGUARDED: Arm(what="Algorithm 1 as published", size=_at_submission(unguarded), predicts=True),
    "p95": Arm(what="p95 of CPU and GPU, peak of memory of similar jobs", size=_at_submission(_p95)),
    **{
        f"overcommit_{factor:g}": Arm(what=f"CPU and GPUs counted {factor:g} times", size=_overcommit(factor, 1.0))
        for factor in (1.25, 1.5, 2.0)
    },
    **{
        f"overcommit_{factor:g}_memory": Arm(
            what=f"CPU and GPUs counted {factor:g} times, memory 1.5 times", size=_overcommit(factor, 1.5)
        )
        for factor in (1.25, 1.5, 2.0)
    },
    "probation_peak": Arm(what="after the probation the measured peak and 15 %", size=_reserving(_probation_peak)),
    RECLAIM: Arm(
        what="after the probation what was measured, with a bound on risk per machine",
        size=_reserving(lambda policy: Reserving(policy=policy)),
    ),
    RECLAIM_PRIOR: Arm(what="the same; newcomers' compute by usage models", size=_reclaim_prior, predicts=True),
    ORACLE: Arm(what="measured mean compute and peak memory, at submission", size=_at_submission(oracle)),
    BOUND: Arm(
        what="true mean and deviation, at submission, at a risk of 1 %",
        size=_reserving(lambda policy: Reserving(policy=replace(policy, z=BOUND_Z, close_s=0.0), fixed=True)),
    ),
}
"""The arms by name, in the order of the tables; gains are relative to `requested`, shares to `oracle`."""
