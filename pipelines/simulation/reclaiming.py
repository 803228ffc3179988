"""Arms under the slowdown model `shared`: sizes at submission, and reservations of running jobs.

`reclaim` measures each running job and needs no history; `reclaim_prior` also sizes newcomers by the usage models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.advice import ORACLE, REQUESTED, Advice
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.shared.inputs import Reserving
from pipelines.simulation.workloads import Gangs, Starts, as_requested, predicted_times, starts_under
from scheduler_core.cluster import UNITS
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.reserve import ReservePolicy
from scheduler_core.types import PeakUse, Predictor, Recommendation

__all__ = ["RECLAIM", "RECLAIM_PRIOR", "Sized"]

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

    Queue orders see the predicted run times of unchanged requests in the arms that reclaim.
    """
    policy, answers = settings.shared.policy, advice.get(REQUESTED)
    starts = as_requested(gangs, *(() if answers is None else predicted_times(answers)))
    arms = {REQUESTED: Sized(starts=starts, reserving=Reserving())}
    arms |= {
        arm: Sized.at_submission(pool, gangs, given) for arm, given in advice.items() if arm not in (REQUESTED, ORACLE)
    }
    arms[RECLAIM] = Sized(starts=starts, reserving=Reserving(policy=policy))
    peak = None if predictor is None else _peak_use(pool, predictor)
    if peak is not None:
        arms[RECLAIM_PRIOR] = Sized.newcomers(gangs, starts, policy, peak, min_runs=settings.shrink_policy.min_runs)
    return arms | {ORACLE: Sized.at_submission(pool, gangs, advice[ORACLE])}


def _peak_use(pool: Pool, predictor: Predictor) -> PeakUse | None:
    try:
        return predictor.peak_use([entry.job for entry in pool.jobs])
    except PredictorUnavailable:
        return None
