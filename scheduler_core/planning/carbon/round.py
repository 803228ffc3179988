"""One round of a real scheduler: read the intensity, look at the jobs, choose GPUs and frequencies, put them on nodes.

Joins `intensity`, `monitor`, `allocator` and `placer`; no clock is read, and what to keep is handed back. Called by
schedulers outside, once a period; simulations have no feed and no nodes and ask `allocator` alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scheduler_core.planning.carbon.allocator import allocate
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.carbon.emissions import period_emissions_g
from scheduler_core.planning.carbon.intensity import Reading, read_intensity
from scheduler_core.planning.carbon.monitor import JobStates, next_round
from scheduler_core.planning.carbon.placer import Placed, place
from scheduler_core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What does not change between rounds: the period, the PUE, and the intensity where nobody tells one."""

    period_s: float
    fallback_g_per_kwh: float
    pue: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What to do in a period, for the jobs that have not ended.

    Attributes
    ----------
    reading
        The intensity that was planned with; hand it to the next round.
    rows
        Which of the submitted jobs (K,) the others are of.
    plan
        Their GPUs and frequencies.
    placed
        Their GPUs by node (K, M). All are placed: no more are planned than are free, and a job may span nodes.
    planned_g
        What each (K,) gives off within the period; the sum is within the budget.
    """

    reading: Reading
    rows: IntArray
    plan: CountsAndFrequencies
    placed: Placed
    planned_g: FloatArray


def carbon_round(
    submitted: ElasticJobs,
    states: JobStates,
    now_ts: float,
    *,
    told: Callable[[float], float | None],
    reading: Reading | None,
    budget_g: float,
    free_gpus: IntArray,
    site: Site,
    places: IntArray | None = None,
) -> Round:
    """Plan the period that begins at `now_ts` (Unix time) for jobs as submitted and as last seen.

    `told` answers the intensity of a moment, `reading` is that of the round before. `free_gpus` (M,) are those of the
    nodes, with what these jobs hold; `places` (J, M) is where all submitted jobs were. `budget_g` is the period's, such
    as `budget.Bank.allowance_g` of a share of `budget.shares_g`.

    Raises
    ------
    BadInput
        If an argument is not what it can be.

    Examples
    --------
    Within an hour at 300 g/kWh 61 g allow for 200 W, and so for two GPUs, on the node that has both.

    >>> import numpy as np
    >>> jobs = ElasticJobs(
    ...     steps_left=np.array([14_400.0]),
    ...     steps_per_s=np.array([[0.0, 1.0, 1.9, 2.7]]),
    ...     perf=np.array([[1.0]]),
    ...     watts=np.array([[100.0]]),
    ...     mhz=np.array([1500.0]),
    ...     age_s=np.array([0.0]),
    ...     rigid_gpus=np.array([0]),
    ... )
    >>> states = JobStates(
    ...     submit_ts=np.array([0.0]),
    ...     seen_ts=np.array([3600.0]),
    ...     steps_done=np.array([3600.0]),
    ...     gpus=np.array([1]),
    ...     step=np.array([0]),
    ...     ended=np.array([False]),
    ... )
    >>> found = carbon_round(
    ...     jobs,
    ...     states,
    ...     3600.0,
    ...     told=lambda ts: 300.0,
    ...     reading=None,
    ...     budget_g=61.0,
    ...     free_gpus=np.array([1, 4]),
    ...     site=Site(period_s=3600.0, fallback_g_per_kwh=800.0),
    ... )
    >>> found.plan.gpus, found.placed.gpus, found.planned_g
    (array([2]), array([[0, 2]]), array([60.]))
    """
    intensity = read_intensity(told, now_ts, before=reading, fallback_g_per_kwh=site.fallback_g_per_kwh)
    rows, jobs = next_round(submitted, states, now_ts)
    plan = allocate(
        jobs,
        gpus=int(free_gpus.sum()),
        intensity_g_per_kwh=intensity.g_per_kwh,
        budget_g=budget_g,
        period_s=site.period_s,
        pue=site.pue,
    )
    return Round(
        reading=intensity,
        rows=rows,
        plan=plan,
        placed=place(plan.gpus, free_gpus, before=None if places is None else places[rows]),
        planned_g=period_emissions_g(
            jobs, plan, intensity_g_per_kwh=intensity.g_per_kwh, period_s=site.period_s, pue=site.pue
        ),
    )
