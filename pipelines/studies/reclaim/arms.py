"""The arms of the reclaiming study: fixed sizes at submission, fixed overcommit, and reservations of running jobs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pipelines.simulation.advice import ORACLE, RECLAIM, RECLAIM_PRIOR, REQUESTED, SHRUNK, UNGUARDED, Sized
from pipelines.simulation.shared.inputs import Reserving
from pipelines.simulation.workloads import Gangs, as_requested
from pipelines.studies.shrinking.arms import Size, Sizing, guarded, oracle, requests_of, run_times, unguarded
from scheduler_core.reserve import ReservePolicy

__all__ = ["ARMS", "BOUND", "Arm", "sized"]

BOUND: Final = "bound"

PEAK_MARGIN: Final = 1.15
"""Margin of the vertical pod autoscaler above the peak."""

BOUND_Z: Final = 2.326
"""Standard deviations for a risk of 1 % if use is normal."""


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


ARMS: Final[Mapping[str, Arm]] = {
    REQUESTED: Arm(what="every job holds its request", size=_reserving(lambda _: Reserving())),
    SHRUNK: Arm(what="Algorithm 1 above floors", size=_at_submission(guarded), predicts=True),
    UNGUARDED: Arm(what="Algorithm 1 as published", size=_at_submission(unguarded), predicts=True),
    "overcommit_1.5": Arm(what="CPU and GPUs counted 1.5 times", size=_overcommit(1.5, 1.0)),
    "overcommit_2": Arm(what="CPU and GPUs counted twice", size=_overcommit(2.0, 1.0)),
    "overcommit_2_memory": Arm(what="CPU and GPUs counted twice, memory 1.5 times", size=_overcommit(2.0, 1.5)),
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
