"""Make the state of the compiled environment, and run a batch of weeks with a policy.

Called by `pipelines.models.sites`, `rolling_lp` and tests.
"""

import numpy as np

from pipelines.simulation.sites.loop import State, run
from pipelines.simulation.sites.weeks import Weeks
from scheduler_core.kernels.sites.deciding import scratch_of
from scheduler_core.kernels.sites.scoring import FEATURES
from scheduler_core.kernels.sites.value import DAY
from scheduler_core.planning.sites.policies import Policy
from scheduler_core.types import BoolArray, FloatArray

__all__ = ["begun", "earned_usd", "rows_of", "simulated"]


def begun(weeks: Weeks) -> State:
    """Return the state before the first step: all GPUs free, no job has arrived."""
    batch, jobs = weeks.arrive.shape
    sites = weeks.capacity.shape[1]
    steps = (weeks.usd.shape[2] - DAY // 4) * 4

    def whole(*shape: int, value: int = -1) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.full((batch, *shape), value, dtype=np.int64)

    tally = whole(4, value=0)
    tally[:, 0] = -1
    return State(
        start=whole(jobs),
        site=whole(jobs),
        waiting=whole(jobs),
        running=whole(jobs),
        tally=tally,
        free=weeks.capacity.copy(),
        ends=whole(steps + 1, sites, value=0),
        decided=whole(jobs),
        head=whole(sites),
        sums=np.zeros((batch, sites, DAY + 1)),
        price=np.zeros((batch, sites)),
        carbon=np.zeros((batch, sites)),
        chosen=whole(jobs),
        scratch=scratch_of(batch, jobs, sites),
    )


def rows_of(weeks: Weeks) -> tuple[BoolArray, FloatArray]:
    """Return empty arrays for the legal actions and the features that `loop.prepare` writes."""
    batch, sites = weeks.capacity.shape
    return np.zeros((batch, sites, sites + 1), dtype=np.bool_), np.zeros((batch, sites, sites, len(FEATURES)))


def simulated(weeks: Weeks, policy: Policy) -> State:
    """Return the state after all weeks have run with one policy."""
    state = begun(weeks)
    params = np.broadcast_to(policy.params, (len(state.tally), len(policy.params))).copy()
    run(policy.rule, params, weeks, state)
    return state


def earned_usd(weeks: Weeks, state: State) -> FloatArray:
    """Return what each job (B, n) adds to the utility, compared with no job running; 0 if it never started.

    Worth of its GPU time less energy, carbon and moving its data, and the cost of a miss that it avoids.
    """
    begin, steps = np.maximum(state.start, 0), weeks.run_steps
    batch, site = np.arange(len(begin))[:, None], np.maximum(state.site, 0)
    end = np.where(state.start >= 0, begin + steps, 0)
    cost = weeks.paid[batch, site, end] - weeks.paid[batch, site, np.where(state.start >= 0, begin, 0)]
    usd = weeks.jobs.gpus * (weeks.worth_usd[:, None] * steps - cost)
    usd -= np.take_along_axis(weeks.jobs.move_usd, site[..., None], axis=2)[..., 0]
    usd += np.where(end <= weeks.jobs.due, weeks.miss_usd[:, None], 0.0)
    return np.asarray(np.where(state.start >= 0, usd, 0.0), dtype=np.float64)
