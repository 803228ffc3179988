"""One round of a scheduler: read the intensity, update the jobs, choose GPUs and frequencies, place them on nodes.

Combines the patent's four parts: an intensity getter (here), `monitor`, `allocator` and `placer`. A live scheduler and
the simulations call it once a period, pass the time and keep the returned state.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, Protocol

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.allocator import BudgetRule, allocate
from scheduler_core.planning.carbon.climb import Period
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs, drawn_w, remaining_s
from scheduler_core.planning.carbon.monitor import JobStates, next_round
from scheduler_core.planning.carbon.placer import Placed, place
from scheduler_core.types import FloatArray, IntArray

__all__ = ["Planner", "Round", "Site", "carbon_round"]

MOST_AGE_S: Final = 6 * 3600.0
"""Default maximum age in seconds at which the last reported value is still used (ours); feeds are mostly hourly."""


class Source(StrEnum):
    """Origin of a reading: reported by the feed now, reported earlier, or the fallback value."""

    REPORTED = "reported"
    KEPT = "kept"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The intensity used in a round, and the Unix time of its report, `reported_ts`; -inf for the fallback."""

    g_per_kwh: float
    reported_ts: float
    source: Source


def read_intensity(
    feed: Callable[[float], float | None],
    now_ts: float,
    *,
    before: Reading | None,
    fallback_g_per_kwh: float,
    most_age_s: float = MOST_AGE_S,
) -> Reading:
    """Return the intensity at `now_ts` (Unix time): the feed's value, else its last recent value, else the fallback.

    `feed` is a function of Unix time such as `Grid.carbon_g_per_kwh`. An exception, None, a negative value or NaN
    counts as no value, so that a broken feed never stops a round. `before` is the reading of the previous round; it is
    used up to an age of `most_age_s`. With the zone's highest intensity as fallback, the budget is kept whatever the
    true intensity is (ours).

    Raises
    ------
    BadInput
        If the fallback is negative or not a number.

    Examples
    --------
    >>> first = read_intensity(lambda ts: 210.0, 0.0, before=None, fallback_g_per_kwh=800.0)
    >>> first.g_per_kwh, str(first.source)
    (210.0, 'reported')
    >>> str(read_intensity(lambda ts: float("nan"), 900.0, before=first, fallback_g_per_kwh=800.0).source)
    'kept'
    """
    if not 0.0 <= fallback_g_per_kwh < math.inf:
        raise BadInput(f"carbon intensity: found a fallback of {fallback_g_per_kwh} g/kWh, expected 0 or more")
    try:
        answer = feed(now_ts)
        value = math.nan if answer is None else float(answer)
    except Exception:  # the feed is foreign code and may raise anything
        value = math.nan
    if 0.0 <= value < math.inf:
        return Reading(g_per_kwh=value, reported_ts=now_ts, source=Source.REPORTED)
    # A reading dated later than now comes from a wrong clock and is not used.
    if before is not None and 0.0 <= now_ts - before.reported_ts <= most_age_s:
        return Reading(g_per_kwh=before.g_per_kwh, reported_ts=before.reported_ts, source=Source.KEPT)
    return Reading(g_per_kwh=fallback_g_per_kwh, reported_ts=-math.inf, source=Source.FALLBACK)


class Planner(Protocol):
    """Function that makes a plan for one period: `allocate`, or another rule."""

    def __call__(
        self,
        jobs: ElasticJobs,
        *,
        gpus: int,
        intensity_g_per_kwh: float,
        budget_g: float,
        period_s: float,
        pue: float = 1.0,
    ) -> CountsAndFrequencies:
        """Return the plan for a period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Constants of all rounds: period length, PUE, what a budget limits, and the intensity without a feed's value."""

    period_s: float
    fallback_g_per_kwh: float
    pue: float = 1.0
    rule: BudgetRule = "period"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Plan of one period for the K jobs that have not ended.

    - `reading`: the intensity used; pass it to the next round.
    - `rows`: indices of these jobs among the submitted jobs; shape (K,).
    - `plan`: GPU count and frequency of each of these jobs.
    - `placed`: GPUs of each of these jobs on each node; shape (K, M). Every job of the plan is placed, because the plan
      uses at most the free GPUs and a job may span nodes.
    - `planned_g`: grams each of these jobs emits, within the period or until its end (`Site.rule`); shape (K,). Their
      sum is within the budget.
    - `left_s`: predicted run time that each of these jobs has left, inf if postponed; shape (K,). A new round at the
      first of these ends, if that job has not ended, keeps the budget although the prediction was too short.
    """

    reading: Reading
    rows: IntArray
    plan: CountsAndFrequencies
    placed: Placed
    planned_g: FloatArray
    left_s: FloatArray


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
    switches: IntArray | None = None,
    planner: Planner | None = None,
) -> Round:
    """Plan the period that begins at `now_ts` (Unix time).

    `submitted` has the J jobs as submitted, `states` the last report about each. `feed` returns the intensity at a
    moment; `reading` is `Round.reading` of the previous round. `free_gpus` (M,) are the GPUs of each node that are free
    or held by these jobs. `places` (J, M) is the previous placement of all submitted jobs, `switches` (M,) are the
    numbers of the nodes' network switches. `budget_g` limits the grams
    emitted until the jobs end, as in the carbon patent, or within the period (ours, the default); see `Site.rule`. For
    a cap over many periods it is `budget.Bank.allowance_g` of a share of the cap. `planner` is `allocate` by
    default.

    Raises
    ------
    BadInput
        If an argument is out of range.

    Examples
    --------
    At 300 g/kWh, a budget of 61 g for one hour allows 200 W: two GPUs of 100 W, placed on the node with 4 free GPUs.
    The job has three hours of work on one GPU, which emits 90 g, so 61 g do not suffice until its end.

    >>> import numpy as np
    >>> from dataclasses import replace
    >>> jobs = ElasticJobs(steps_left=np.array([14_400.0]), steps_per_s=np.array([[0.0, 1.0, 1.9, 2.7]]),
    ...     perf=np.array([[1.0]]), watts=np.array([[100.0]]), mhz=np.array([1500.0]), age_s=np.array([0.0]),
    ...     rigid_gpus=np.array([0]))
    >>> states = JobStates(submit_ts=np.array([0.0]), seen_ts=np.array([3600.0]), steps_done=np.array([3600.0]),
    ...     gpus=np.array([1]), step=np.array([0]), ended=np.array([False]))
    >>> site = Site(period_s=3600.0, fallback_g_per_kwh=800.0)
    >>> by_period = carbon_round(jobs, states, 3600.0, site=site, feed=lambda ts: 300.0, reading=None,
    ...     budget_g=61.0, free_gpus=np.array([1, 4]))
    >>> by_period.plan.gpus, by_period.placed.gpus, by_period.planned_g
    (array([2]), array([[0, 2]]), array([60.]))
    >>> to_completion = carbon_round(jobs, states, 3600.0, site=replace(site, rule="to-completion"),
    ...     feed=lambda ts: 300.0, reading=None, budget_g=61.0, free_gpus=np.array([1, 4]))
    >>> to_completion.plan.gpus, to_completion.plan.notes[0]
    (array([0]), '1 of 1 jobs postponed: their first GPUs did not fit')
    """
    intensity = read_intensity(feed, now_ts, before=reading, fallback_g_per_kwh=site.fallback_g_per_kwh)
    rows, jobs = next_round(submitted, states, now_ts)
    plan = (planner or partial(allocate, rule=site.rule))(
        jobs,
        gpus=int(free_gpus.sum()),
        intensity_g_per_kwh=intensity.g_per_kwh,
        budget_g=budget_g,
        period_s=site.period_s,
        pue=site.pue,
    )
    period = Period.of(
        intensity_g_per_kwh=intensity.g_per_kwh, pue=site.pue, period_s=site.period_s, budget_g=budget_g, rule=site.rule
    )
    left_s = remaining_s(jobs, plan)
    return Round(
        reading=intensity,
        rows=rows,
        plan=plan,
        placed=place(plan.gpus, free_gpus, before=None if places is None else places[rows], switches=switches),
        planned_g=period.grams(drawn_w(jobs, plan), left_s),
        left_s=left_s,
    )
