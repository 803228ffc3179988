"""The arms of the reclaiming study: fixed sizes at submission, fixed overcommit, and reservations of running jobs.

Sizes at submission come from `pipelines.studies.shrinking.arms`. Called by `runs` and `study`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, UNGUARDED
from pipelines.simulation.reclaiming import RECLAIM, RECLAIM_PRIOR, Sized
from pipelines.simulation.shared.inputs import Reserving
from pipelines.simulation.workloads import Gangs, as_requested
from pipelines.studies.shrinking.arms import Asked, guarded, oracle, requests_of, run_times, sized_by, unguarded
from pipelines.studies.shrinking.percentiles import Rule
from scheduler_core.reserve import ReservePolicy
from scheduler_core.types import Recommendation

__all__ = ["ARMS", "BOUND", "Arm", "sized"]

BOUND: Final = "bound"

P95: Final = Rule(what="p95 of CPU and GPU, peak of memory of similar jobs", cpu_level=0.95, mem_level=1.0, margin=0.15)
"""Sizes as KRR and similar advisers choose them."""

PEAK_MARGIN: Final = 1.15
"""Margin of the vertical pod autoscaler above the peak."""

BOUND_Z: Final = 2.326
"""Standard deviations for a risk of 1 % if use is normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A way to reserve capacity: its description, its function, and whether it needs predictions."""

    what: str
    size: Callable[[Asked, Gangs, ReservePolicy], Sized]
    predicts: bool = False


def sized(arm: str, asked: Asked, gangs: Gangs, policy: ReservePolicy) -> Sized:
    """Return how an arm treats the jobs of the pool; queue orders see the same predicted run times in every arm."""
    found = ARMS[arm].size(asked, gangs, policy)
    predicted_s = run_times(asked, requests_of(asked.jobs))
    known = np.where(np.isfinite(predicted_s) & (predicted_s >= 0.0), predicted_s, np.nan)
    return replace(found, starts=replace(found.starts, predicted_s=known))


def _requested(asked: Asked, gangs: Gangs, policy: ReservePolicy) -> Sized:  # noqa: ARG001 -- all arms alike
    return Sized(starts=as_requested(gangs), reserving=Reserving())


def _at_submission(
    asked: Asked,
    gangs: Gangs,
    policy: ReservePolicy,  # noqa: ARG001 -- all arms alike
    *,
    give: Callable[[Asked], Sequence[Recommendation]],
) -> Sized:
    """Size every job once, at submission."""
    return Sized.at_submission(asked.pool, gangs, give(asked))


def _overcommit(
    asked: Asked,  # noqa: ARG001 -- all arms alike
    gangs: Gangs,
    policy: ReservePolicy,  # noqa: ARG001 -- all arms alike
    *,
    factors: tuple[float, float, float],
) -> Sized:
    return Sized(starts=as_requested(gangs), reserving=Reserving(overcommit=factors))


def _reclaim(asked: Asked, gangs: Gangs, policy: ReservePolicy) -> Sized:  # noqa: ARG001 -- all arms alike
    return Sized(starts=as_requested(gangs), reserving=Reserving(policy=policy))


def _probation_peak(asked: Asked, gangs: Gangs, policy: ReservePolicy) -> Sized:  # noqa: ARG001 -- all arms alike
    peaks = replace(policy, memory_margin=PEAK_MARGIN)
    return Sized(starts=as_requested(gangs), reserving=Reserving(policy=peaks, peak_margin=PEAK_MARGIN))


def _reclaim_prior(asked: Asked, gangs: Gangs, policy: ReservePolicy) -> Sized:
    """Reclaim, and size the CPU and GPU compute of a newcomer by the usage models; memory stays at the request."""
    peak = asked.predictor.peak_use(asked.jobs)
    return Sized.newcomers(gangs, as_requested(gangs), policy, peak, min_runs=asked.policy.min_runs)


def _bound(asked: Asked, gangs: Gangs, policy: ReservePolicy) -> Sized:  # noqa: ARG001 -- all arms alike
    bound = replace(policy, z=BOUND_Z, close_s=0.0)
    return Sized(starts=as_requested(gangs), reserving=Reserving(policy=bound, fixed=True))


ARMS: Final[Mapping[str, Arm]] = {
    REQUESTED: Arm(what="every job holds its request", size=_requested),
    SHRUNK: Arm(what="Algorithm 1 above floors", size=partial(_at_submission, give=guarded), predicts=True),
    UNGUARDED: Arm(what="Algorithm 1 as published", size=partial(_at_submission, give=unguarded), predicts=True),
    "p95": Arm(what=P95.what, size=partial(_at_submission, give=partial(sized_by, rule=P95))),
    **{
        f"overcommit_{factor:g}": Arm(
            what=f"CPU and GPUs counted {factor:g} times", size=partial(_overcommit, factors=(factor, 1.0, factor))
        )
        for factor in (1.25, 1.5, 2.0)
    },
    **{
        f"overcommit_{factor:g}_memory": Arm(
            what=f"CPU and GPUs counted {factor:g} times, memory 1.5 times",
            size=partial(_overcommit, factors=(factor, 1.5, factor)),
        )
        for factor in (1.25, 1.5, 2.0)
    },
    "probation_peak": Arm(what="after the probation the measured peak and 15 %", size=_probation_peak),
    RECLAIM: Arm(what="after the probation what was measured, with a bound on risk per machine", size=_reclaim),
    RECLAIM_PRIOR: Arm(what="the same; newcomers' compute by usage models", size=_reclaim_prior, predicts=True),
    ORACLE: Arm(what="measured mean compute and peak memory, at submission", size=partial(_at_submission, give=oracle)),
    BOUND: Arm(what="true mean and deviation, at submission, at a risk of 1 %", size=_bound),
}
"""The arms by name, in the order of the tables; gains are relative to `requested`, shares to `oracle`."""
