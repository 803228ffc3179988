"""One round under a carbon budget: GPU counts, then frequencies (the patent's two stages), then places on nodes.

Stages and procedure follow a patent on carbon-intensity-based GPU scheduling ("the patent"); "ours" marks additions.

Each stage is a greedy climb: the best next step of any job (more GPUs, or a higher frequency) until a limit. With a
price of energy (ours), only steps that save enough time for their energy are taken.
"""

import heapq
import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.planning.elastic import (
    CountsAndFrequencies,
    ElasticJobs,
    Period,
    Planner,
    drawn_w,
    remaining_s,
)
from scheduler_core.planning.hourly import JOULES_PER_KWH
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Round", "allocate", "carbon_round"]

NO_STEP: Final = -1
FIRST_GPUS: Final = 0
SAVES_ENERGY: Final = 1
COSTS_ENERGY: Final = 2
"""Kinds of steps by priority: FIRST_GPUS, then SAVES_ENERGY, then COSTS_ENERGY; a NO_STEP is never taken."""

SAME_ENERGY: Final = 1e-12
"""Maximum relative difference of two energies that counts as rounding, so that they are taken as equal."""

BUDGET_MARGIN: Final = 1e-11
"""Fraction of the budget kept unused, so that rounding in another order of summation cannot exceed it."""


def allocate(
    jobs: ElasticJobs,
    gpus: int,
    period: Period,
    *,
    price_s_per_kwh: float = 0.0,
) -> CountsAndFrequencies:
    """Choose every job's GPUs and frequency for one period, within its carbon budget.

    Counts are chosen at each job's energy-optimal frequency. A rigid job gets its whole count in its first step. If not
    all jobs can get their first GPUs, jobs with the smallest T·C (run time times emissions) start, the others are
    postponed, and a note reports it. If the best step would exceed the budget, the next best step that fits is taken
    (ours; the patent ends the stage there).

    A step's benefit is divided by its added emissions until the job ends, as in the patent. With a price (ours), a step
    is taken only if it saves at least `price_s_per_kwh` seconds of run time per kWh that it adds; first GPUs and steps
    that add no energy are always taken. A constant price spends energy where it saves most time, in busy and quiet
    periods alike.

    In a tie the older job goes first, then the job whose numbers sort first, so the order of rows has no effect.

    References
    ----------
    A patent on carbon-intensity-based GPU scheduling; the formula of the benefit follows PowerFlow (arXiv 2304.06381).
    """
    order = canonical_order(jobs)
    jobs = jobs.rows(order)
    step = jobs.optimal_step
    ladders = count_ladders(jobs, step, period, price_s_per_kwh)
    count, notes = climb("counts", ladders, gpus, period)
    ladders = frequency_ladders(jobs, count, step, period, price_s_per_kwh)
    step, more = climb("frequency", ladders, gpus, period)
    notes += more
    if waits := int((count == 0).sum()):
        notes = [f"{waits} of {len(count)} jobs postponed: their first GPUs did not fit", *notes]
    place = np.argsort(order)
    return CountsAndFrequencies(gpus=count[place], step=step[place], notes=tuple(notes))


def canonical_order(jobs: ElasticJobs) -> IntArray:
    """Return row indices (J,), oldest job first, ties by all other columns; jobs that still tie are identical."""
    by_age = np.argsort(-jobs.age_s, kind="stable")
    if (np.diff(jobs.age_s[by_age]) < 0.0).all():
        return np.asarray(by_age, dtype=np.int64)
    content = np.hstack([jobs.steps_left[:, None], jobs.rigid_gpus[:, None], jobs.steps_per_s, jobs.perf, jobs.watts])
    keys = [(-age, row.tobytes()) for age, row in zip(jobs.age_s.tolist(), content, strict=True)]
    return np.asarray(sorted(range(len(jobs)), key=keys.__getitem__), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladders:
    """Ladder of each of J jobs: R settings (rungs) in the order in which a job climbs, and the R-1 steps between them.

    For each rung (J, R), `choice` is the GPU count or frequency index, `gpus` the GPUs held, and `limited_g` the grams
    that the budget limits. For each step (J, R-1), `kind` and `rank` give its priority: lowest kind first, then
    lowest rank.
    """

    choice: IntArray
    gpus: IntArray
    limited_g: FloatArray
    kind: IntArray
    rank: FloatArray


def count_ladders(jobs: ElasticJobs, step: IntArray, period: Period, price_s_per_kwh: float) -> Ladders:
    """Return every job's ladder of GPU counts (0, then the allowed counts) at its frequency index `step` (J,)."""
    rows = np.arange(len(jobs))
    with np.errstate(divide="ignore"):
        left_s = (jobs.steps_left / jobs.perf[rows, step])[:, None] / jobs.steps_per_s
    watts = np.arange(jobs.most_gpus + 1) * jobs.watts[rows, step][:, None]
    held = jobs.allowed
    held[:, 0] = True
    # Allowed counts move to the front; the other counts follow, and `NO_STEP` keeps them out of reach.
    choice = np.argsort(~held, axis=1, kind="stable").astype(np.int64)
    at = rows[:, None], choice
    return _ladders(choice, choice, left_s[at], watts[at], held[at], period, price_s_per_kwh)


def frequency_ladders(
    jobs: ElasticJobs, gpus: IntArray, step: IntArray, period: Period, price_s_per_kwh: float
) -> Ladders:
    """Return every job's ladder of frequencies from index `step` (J,) up on `gpus` (J,) GPUs; no step with 0 GPUs."""
    rows = np.arange(len(jobs))
    choice = np.minimum(step[:, None] + np.arange(len(jobs.mhz)), len(jobs.mhz) - 1)
    held = (step[:, None] + np.arange(len(jobs.mhz)) < len(jobs.mhz)) & (gpus > 0)[:, None]
    with np.errstate(divide="ignore"):
        left_s = (jobs.steps_left / jobs.steps_per_s[rows, gpus])[:, None] / jobs.perf[rows[:, None], choice]
    watts = gpus[:, None] * jobs.watts[rows[:, None], choice]
    gpus = np.broadcast_to(gpus[:, None], choice.shape)
    return _ladders(choice, gpus, left_s, watts, held, period, price_s_per_kwh)


def _ladders(
    choice: IntArray,
    gpus: IntArray,
    left_s: FloatArray,
    watts: FloatArray,
    held: BoolArray,
    period: Period,
    price_s_per_kwh: float,
) -> Ladders:
    """Return the ladders of rungs with these times, powers and marks whether a job may hold them (J, R).

    The carbon patent's benefit of a step from time T1 and emissions C1 to T2 and C2 is ((T1 - T2)/T̄) / ((C2 - C1)/C).
    The mean time T̄, the total C, intensity and PUE are the same factors for all steps. They are left out: the order
    stays the same, and ranks stay valid while other jobs take steps.

    A job's first GPUs come before all other steps, by smallest T·C. Next come steps that need no more energy (within
    `SAME_ENERGY`), by T1 - T2, then all others by (T1 - T2)/(C2 - C1). A step that does not make its job faster is
    never taken.
    """
    # A job without GPUs has infinite time, but uses no energy.
    energy_j = watts * np.where(np.isinf(left_s), 0.0, left_s)
    next_s, next_j, kwh = left_s[:, 1:], energy_j[:, 1:], energy_j / JOULES_PER_KWH
    with np.errstate(divide="ignore", invalid="ignore"):
        faster_s, dearer = left_s[:, :-1] - next_s, next_j - energy_j[:, :-1]
        # If speed is proportional to the GPU count, the energies of both rungs are equal up to rounding.
        first, saves = np.isinf(left_s[:, :-1]), dearer <= SAME_ENERGY * next_j
        rank = np.where(first, next_s * next_j, np.where(saves, -faster_s, -faster_s / dearer))
        kind = np.where(first, FIRST_GPUS, np.where(saves, SAVES_ENERGY, COSTS_ENERGY))
        price_s = price_s_per_kwh * np.maximum(kwh[:, 1:] - kwh[:, :-1], 0.0)
        kind[~held[:, 1:] | ~(faster_s > 0.0) | (faster_s < price_s)] = NO_STEP
    return Ladders(choice=choice, gpus=gpus, limited_g=period.grams(watts, left_s), kind=kind, rank=rank)


def climb(stage: str, ladders: Ladders, gpus: int, period: Period) -> tuple[IntArray, list[str]]:
    """Climb all ladders from their lowest rungs, always by the step of highest priority; ties go to the first job.

    Returns each job's GPU count or frequency index (J,), and a note on the limit that stopped it. A step is taken only
    if enough GPUs are free and the emissions stay within the budget. After a step that lowers emissions, steps skipped
    because of the budget are tried again.
    """
    limit_g = period.budget_g * (1.0 - BUDGET_MARGIN)
    # Lists, because reading single elements of arrays is slow.
    kind, rank = ladders.kind.tolist(), ladders.rank.tolist()
    held, limited_g = ladders.gpus.tolist(), ladders.limited_g.tolist()
    steps = ladders.kind.shape[1]
    rung = [0] * len(kind)
    free = gpus - int(ladders.gpus[:, 0].sum())
    spent_g = math.fsum(ladders.limited_g[:, 0])
    heap = [(kind[row][0], rank[row][0], row) for row in range(len(kind)) if steps and kind[row][0] != NO_STEP]
    heapq.heapify(heap)
    passed: list[tuple[int, float, int]] = []
    short_of_gpus = False
    while heap:
        entry = heapq.heappop(heap)
        *_, row = entry
        at = rung[row]
        wanted = held[row][at + 1] - held[row][at]
        change_g = limited_g[row][at + 1] - limited_g[row][at]
        if wanted > free:
            short_of_gpus = True
        elif spent_g + change_g > limit_g:
            passed.append(entry)
        else:
            rung[row] = at = at + 1
            free -= wanted
            spent_g += change_g
            if at < steps and kind[row][at] != NO_STEP:
                heapq.heappush(heap, (kind[row][at], rank[row][at], row))
            if change_g < 0.0:
                while passed:
                    heapq.heappush(heap, passed.pop())
    notes = [f"{stage}: no GPUs left; worthwhile steps remain"] if short_of_gpus else []
    if passed:
        notes = [f"{stage}: stopped at the budget; worthwhile steps remain"]
    return ladders.choice[range(len(rung)), rung], notes


def place(gpus: IntArray, free_gpus: IntArray, *, before: IntArray | None = None) -> IntArray:
    """Return the GPUs of every job on every node (J, M), 0 for a job that does not fit.

    Jobs need `gpus` (J,), nodes have `free_gpus` (M,). The largest job is placed first, ties in the given order. A job
    that fits on one node goes to the node on which it leaves the fewest GPUs free (best fit). A larger job takes all
    GPUs of the nodes with most free GPUs, and its remaining GPUs are placed by best fit.

    `before` (J, M) is the previous placement. Jobs with an unchanged count are placed first and keep their nodes if
    those have enough free GPUs (ours, because moving a job costs a restart). `free_gpus` includes the GPUs that these
    jobs held before.

    Examples
    --------
    >>> place(np.array([3, 6]), np.array([4, 4, 4]))
    array([[0, 0, 3],
           [4, 2, 0]])
    """
    placed = np.zeros((len(gpus), len(free_gpus)), dtype=np.int64)
    free = free_gpus.astype(np.int64)
    if before is not None:
        for row in np.flatnonzero((before.sum(axis=1) == gpus) & (gpus > 0)):
            if (before[row] <= free).all():
                placed[row] = before[row]
                free -= before[row]
    waiting = np.flatnonzero((gpus > 0) & (placed.sum(axis=1) == 0))
    for row in waiting[np.argsort(-gpus[waiting], kind="stable")]:
        if gpus[row] <= free.sum():
            placed[row] = _on_fewest_nodes(int(gpus[row]), free)
            free -= placed[row]
    return placed


def _on_fewest_nodes(wanted: int, left: IntArray) -> IntArray:
    """Return a job's GPUs on each node (M,); all nodes together have enough."""
    taken = np.zeros_like(left)
    while wanted > 0:
        holds = np.flatnonzero(left - taken >= wanted)
        # If the rest fits on one node, take the best fit; otherwise take all GPUs of the node with most.
        node = int(holds[left[holds].argmin()]) if holds.size else int((left - taken).argmax())
        part = min(wanted, int(left[node]))
        taken[node] += part
        wanted -= part
    return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Plan of one period for J jobs.

    - `plan`: GPU count and frequency of each job.
    - `placed`: GPUs of each job on each node (J, M). Every job of the plan is placed, because the plan uses at most
      the free GPUs and a job may span nodes.
    - `planned_g`: grams each job emits, within the period or until its end (`Period.rule`); shape (J,). Their sum is
      within the budget.
    - `left_s`: predicted run time that each job has left, inf if postponed; shape (J,). A new round at the first of
      these ends, if that job has not ended, keeps the budget although the prediction was too short.
    """

    plan: CountsAndFrequencies
    placed: IntArray
    planned_g: FloatArray
    left_s: FloatArray


def carbon_round(
    jobs: ElasticJobs,
    period: Period,
    free_gpus: IntArray,
    *,
    places: IntArray | None = None,
    planner: Planner = allocate,
) -> Round:
    """Plan a period for jobs with their work left.

    `free_gpus` (M,) are the GPUs of each node that are free or held by these jobs. `places` (J, M) is the previous
    placement.

    Examples
    --------
    At 300 g/kWh, a budget of 61 g for one hour allows 200 W: two GPUs of 100 W, placed on the node with 4 free GPUs.
    The job has three hours of work on one GPU, which emits 90 g, so 61 g do not suffice until its end.

    >>> from dataclasses import replace
    >>> jobs = ElasticJobs(steps_left=np.array([10_800.0]), steps_per_s=np.array([[0.0, 1.0, 1.9, 2.7]]),
    ...     perf=np.array([[1.0]]), watts=np.array([[100.0]]), mhz=np.array([1500.0]), age_s=np.array([3600.0]),
    ...     rigid_gpus=np.array([0]))
    >>> period = Period(intensity_g_per_kwh=300.0, budget_g=61.0, period_s=3600.0)
    >>> within = carbon_round(jobs, period, np.array([1, 4]))
    >>> within.plan.gpus, within.placed, within.planned_g
    (array([2]), array([[0, 2]]), array([60.]))
    >>> whole = carbon_round(jobs, replace(period, rule="to-completion"), np.array([1, 4]))
    >>> whole.plan.gpus, whole.plan.notes[0]
    (array([0]), '1 of 1 jobs postponed: their first GPUs did not fit')
    """
    plan = planner(jobs, int(free_gpus.sum()), period)
    left_s = remaining_s(jobs, plan)
    return Round(
        plan=plan,
        placed=place(plan.gpus, free_gpus, before=places),
        planned_g=period.grams(drawn_w(jobs, plan), left_s),
        left_s=left_s,
    )
