"""One round of a live scheduler: read the intensity, update the jobs, choose GPUs and frequencies, place them on nodes.

Combines `intensity`, `monitor`, `allocator` and `placer`. A live scheduler calls it once a period, passes the time and
keeps the returned state. Simulations have no feed and no nodes and call `allocator` directly.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scheduler_core.planning.carbon.allocator import allocate
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs, period_emissions_g
from scheduler_core.planning.carbon.intensity import Reading, read_intensity
from scheduler_core.planning.carbon.monitor import JobStates, next_round
from scheduler_core.planning.carbon.placer import Placed, place
from scheduler_core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Constants of all rounds: period length, PUE, and the intensity to use if the feed gives none."""

    period_s: float
    fallback_g_per_kwh: float
    pue: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Plan of one period for the K jobs that have not ended.

    - `reading`: the intensity used; pass it to the next round.
    - `rows`: indices of these jobs among the submitted jobs; shape (K,).
    - `plan`: GPU count and frequency of each of these jobs.
    - `placed`: GPUs of each of these jobs on each node; shape (K, M). Every job of the plan is placed, because the plan
      uses at most the free GPUs and a job may span nodes.
    - `planned_g`: grams each of these jobs emits within the period; shape (K,). Their sum is within the budget.
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
    feed: Callable[[float], float | None],
    reading: Reading | None,
    budget_g: float,
    free_gpus: IntArray,
    site: Site,
    places: IntArray | None = None,
) -> Round:
    """Plan the period that begins at `now_ts` (Unix time).

    `submitted` has the J jobs as submitted, `states` the last report about each. `feed` returns the intensity at a
    moment; `reading` is `Round.reading` of the previous round. `free_gpus` (M,) are the GPUs of each node that are free
    or held by these jobs. `places` (J, M) is the previous placement of all submitted jobs. `budget_g` limits the grams
    emitted within the period (ours), for example to `budget.Bank.allowance_g` of a share of `budget.shares_g`.

    Raises
    ------
    BadInput
        If an argument is out of range.

    Examples
    --------
    At 300 g/kWh, a budget of 61 g for one hour allows 200 W: two GPUs of 100 W, placed on the node with 4 free GPUs.

    >>> import numpy as np
    >>> jobs = ElasticJobs(steps_left=np.array([14_400.0]), steps_per_s=np.array([[0.0, 1.0, 1.9, 2.7]]),
    ...     perf=np.array([[1.0]]), watts=np.array([[100.0]]), mhz=np.array([1500.0]), age_s=np.array([0.0]),
    ...     rigid_gpus=np.array([0]))
    >>> states = JobStates(submit_ts=np.array([0.0]), seen_ts=np.array([3600.0]), steps_done=np.array([3600.0]),
    ...     gpus=np.array([1]), step=np.array([0]), ended=np.array([False]))
    >>> site = Site(period_s=3600.0, fallback_g_per_kwh=800.0)
    >>> found = carbon_round(jobs, states, 3600.0, site=site, feed=lambda ts: 300.0, reading=None,
    ...     budget_g=61.0, free_gpus=np.array([1, 4]))
    >>> found.plan.gpus, found.placed.gpus, found.planned_g
    (array([2]), array([[0, 2]]), array([60.]))
    """
    intensity = read_intensity(feed, now_ts, before=reading, fallback_g_per_kwh=site.fallback_g_per_kwh)
    g_per_kwh, period_s = intensity.g_per_kwh, site.period_s
    rows, jobs = next_round(submitted, states, now_ts)
    plan = allocate(
        jobs,
        gpus=int(free_gpus.sum()),
        intensity_g_per_kwh=g_per_kwh,
        budget_g=budget_g,
        period_s=period_s,
        pue=site.pue,
    )
    return Round(
        reading=intensity,
        rows=rows,
        plan=plan,
        placed=place(plan.gpus, free_gpus, before=None if places is None else places[rows]),
        planned_g=period_emissions_g(jobs, plan, intensity_g_per_kwh=g_per_kwh, period_s=period_s, pue=site.pue),
    )
