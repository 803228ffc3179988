"""The arms of the reclaiming study: fixed sizes at submission, fixed overcommit, and reservations of running jobs.

Sizes at submission come from `pipelines.studies.shrinking.arms`. Called by `runs` and `study`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, UNGUARDED
from pipelines.simulation.shared.inputs import Reserving
from pipelines.simulation.workloads import Gangs, Starts, as_requested, starts_under
from pipelines.studies.shrinking.arms import Asked, guarded, oracle, requests_of, run_times, sized_by, unguarded
from pipelines.studies.shrinking.percentiles import Rule
from scheduler_core.cluster import UNITS
from scheduler_core.reserve import ReservePolicy
from scheduler_core.types import FloatArray, Recommendation

__all__ = ["ARMS", "BOUND", "RECLAIM", "Arm", "Sized", "sized"]

RECLAIM: Final = "reclaim"
BOUND: Final = "bound"
RECLAIM_PRIOR: Final = "reclaim_prior"

P95: Final = Rule(what="p95 of CPU and GPU, peak of memory of similar jobs", cpu_level=0.95, mem_level=1.0, margin=0.15)
"""Sizes as KRR and similar advisers choose them."""

PEAK_MARGIN: Final = 1.15
"""Margin of the vertical pod autoscaler above the peak."""

BOUND_Z: Final = 2.326
"""Standard deviations for a risk of 1 % if use is normal."""

PRIOR_CV: Final = 0.5
"""Coefficient of variation that is assumed for a job of which only its predicted use is known; Philly's median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """How an arm treats every job of the pool: first sizes (n), and how capacity is reserved."""

    starts: Starts
    reserving: Reserving


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
    return Sized(starts=starts_under("unchanged", asked.pool.jobs, gangs, give(asked)), reserving=Reserving())


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
    reserving = Reserving(policy=policy, prior=_prior(asked, gangs, policy))
    return Sized(starts=as_requested(gangs), reserving=reserving)


def _prior(asked: Asked, gangs: Gangs, policy: ReservePolicy) -> FloatArray:
    """Return mean and deviation of CPU and of GPU compute of each job (n, 4); the request where nothing is known."""
    peak = asked.predictor.peak_use(asked.jobs)
    known = peak.runs >= asked.policy.min_runs
    columns = []
    for at, use in ((0, peak.cpu_cores), (2, peak.gpus)):
        request = gangs.request_units[:, at].astype(np.float64)
        predicted = use * UNITS[at] / gangs.pieces
        mean = np.where(known & np.isfinite(predicted), np.minimum(predicted, request), request)
        most = (request - mean) / max(policy.z, 1e-9)
        columns += [mean, np.minimum(PRIOR_CV * mean, most)]
    return np.column_stack(columns)


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
