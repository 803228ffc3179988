"""The bound is that of the start-indexed linear programme, and the schedule beside it can be run."""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from pipelines.simulation.sites.environment import begun, clairvoyant, earned_usd, held_gpus, simulated
from pipelines.simulation.sites.weeks import Weeks
from scheduler_core.planning.sites import policy
from tests.pipelines.simulation.sites.made_weeks import week


def relaxed_usd(weeks: Weeks) -> float:
    """Return the optimum of the start-indexed linear programme."""
    gains, rows, columns, used = [], [], [], []
    sites, width = weeks.paid.shape[1], weeks.paid.shape[2]
    count = weeks.arrive.shape[1]
    state = begun(weeks)
    for job in range(count):
        for site in range(sites):
            for start in range(int(weeks.arrive[0, job]), int(weeks.jobs.due[0, job])):
                state.start[0], state.site[0] = -1, -1
                state.start[0, job], state.site[0, job] = start, site
                gains.append(float(earned_usd(weeks, state)[0, job]))
                steps = np.arange(start, start + weeks.run_steps[0, job])
                rows += [job, *(count + site * width + steps)]
                columns += [len(gains) - 1] * (1 + len(steps))
                used += [1.0, *np.full(len(steps), float(weeks.jobs.gpus[0, job]))]
    limits = csr_array((used, (rows, columns)), shape=(count + sites * width, len(gains)))
    most = np.concatenate([np.ones(count), np.repeat(weeks.capacity[0], width)])
    found = milp(-np.array(gains), bounds=Bounds(0, 1), constraints=LinearConstraint(limits, -np.inf, most))
    return -float(found.fun)


@pytest.mark.slow
def test_the_bound_is_near_the_linear_programme_and_never_below_it() -> None:
    weeks = week(3, jobs=25, count=2)
    weeks = weeks._replace(capacity=np.full_like(weeks.capacity, 8))
    found = clairvoyant(weeks, 0, np.random.default_rng(0), rounds=600, repairs=300)
    least = relaxed_usd(weeks)
    assert least <= found.bound_usd * (1.0 + 1e-9)
    assert found.bound_usd == pytest.approx(least, rel=0.02)


@pytest.mark.slow
def test_the_best_schedule_can_be_run_and_beats_greedy() -> None:
    weeks = week()
    found = clairvoyant(weeks, 0, np.random.default_rng(0), rounds=60, repairs=200)
    state = begun(weeks)
    state.start[0], state.site[0] = found.start, found.site
    assert (held_gpus(weeks, state, 0) <= weeks.capacity[0][:, None]).all()
    assert earned_usd(weeks, state).sum() == pytest.approx(found.usd)
    assert found.usd <= found.bound_usd
    assert found.usd > earned_usd(weeks, simulated(weeks, policy("greedy"))).sum()
