"""Run weeks with a policy, and compute the utility that it reached and that a planner with all knowledge could reach.

The upper bound on the utility of a week is the Lagrangian dual of the start-indexed programme: each site's GPUs have a
price in every step, and each job takes its best start at these prices. Any prices give a valid bound; the least of them
is the optimum of the linear relaxation. The best schedule is made at these prices, and improved by inserting jobs anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

import numpy as np

from pipelines.simulation.sites.loop import State, realised_usd, run
from pipelines.simulation.sites.weeks import WEEK, Place, Weeks
from scheduler_core.kernels.kernel import kept, kernel
from scheduler_core.kernels.site_choice import scratch_of
from scheduler_core.kernels.site_value import DAY, FEATURES, STEPS_PER_H
from scheduler_core.planning.hourly import HOURS_PER_DAY
from scheduler_core.planning.sites import Policy
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Clairvoyant", "begun", "clairvoyant", "earned_usd", "outcome_of", "rows_of", "simulated"]


def begun(weeks: Weeks) -> State:
    """Return the state before the first step: all GPUs free, no job has arrived."""
    batch, jobs = weeks.arrive.shape
    sites = weeks.capacity.shape[1]

    def whole(*shape: int, value: int = -1) -> IntArray:
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
        decided=whole(jobs),
        head=whole(sites),
        sums=np.zeros((batch, sites, DAY + 1)),
        chosen=whole(jobs),
        scratch=scratch_of(batch, jobs),
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

    That is the worth of its GPU time and of a met due date, less energy, carbon and moving its data.
    """
    begin, steps = np.maximum(state.start, 0), weeks.run_steps
    batch, site = np.arange(len(begin))[:, None], np.maximum(state.site, 0)
    end = np.where(state.start >= 0, begin + steps, 0)
    cost = weeks.paid[batch, site, end] - weeks.paid[batch, site, np.where(state.start >= 0, begin, 0)]
    usd = weeks.jobs.gpus * (weeks.worth_usd[:, None] * steps - cost)
    usd -= np.take_along_axis(weeks.jobs.move_usd, site[..., None], axis=2)[..., 0]
    usd += np.where(end <= weeks.jobs.due, weeks.miss_usd[:, None], 0.0)
    return np.asarray(np.where(state.start >= 0, usd, 0.0), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy, carbon and money of each site (S,) over a week and until its last job must have ended.

    Idle power is included. `kwh` is of the machines alone; the other two include PUE.
    """

    kwh: FloatArray
    carbon_g: FloatArray
    cost_usd: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Figures of one week; `utility_usd` is 0 if no job runs.

    `gpu_use_frac` is the GPU time of jobs over that of all GPUs in the week, `missed_frac` the share of jobs that did
    not end by their due date, `moved_frac` that of jobs that ran away from their origin.
    """

    utility_usd: float
    gpu_use_frac: float
    cost_usd: float
    carbon_kg: float
    kwh: float
    missed_frac: float
    moved_frac: float
    moves_usd: float


def held_gpus(weeks: Weeks, state: State, b: int) -> IntArray:
    """Return the GPUs that jobs hold at each site in each step (S, T)."""
    sites, width = weeks.paid.shape[1], weeks.paid.shape[2]
    change = np.zeros((sites, width), dtype=np.int64)
    ran = np.flatnonzero(state.start[b] >= 0)
    site, begin, gpus = state.site[b, ran], state.start[b, ran], weeks.jobs.gpus[b, ran]
    np.add.at(change, (site, begin), gpus)
    np.add.at(change, (site, begin + weeks.run_steps[b, ran]), -gpus)
    return np.cumsum(change, axis=1)[:, :-1]


def energy_of(places: Sequence[Place], weeks: Weeks, state: State, b: int = 0) -> Energy:
    """Return the energy of each site in week `b` of a batch."""
    hours = held_gpus(weeks, state, b).reshape(len(places), -1, STEPS_PER_H).sum(axis=2) / STEPS_PER_H
    busy_kw, idle_kw, pue = np.array([(each.busy_kw, each.idle_kw, each.grid.pue) for each in places]).T[:, :, None]
    kwh = busy_kw * hours + idle_kw
    week = slice(HOURS_PER_DAY, HOURS_PER_DAY + kwh.shape[1])
    price, carbon = weeks.price[b, :, week], weeks.carbon[b, :, week]
    return Energy(
        kwh=kwh.sum(axis=1), carbon_g=(kwh * pue * carbon).sum(axis=1), cost_usd=(kwh * pue * price).sum(axis=1)
    )


def outcome_of(places: Sequence[Place], weeks: Weeks, state: State, b: int = 0) -> Outcome:
    """Return the figures of week `b` of a batch."""
    jobs = weeks.arrive[b] < weeks.paid.shape[2]
    ran, begin, site = state.start[b] >= 0, state.start[b], np.maximum(state.site[b], 0)
    steps, gpus = weeks.run_steps[b], weeks.jobs.gpus[b]
    energy = energy_of(places, weeks, state, b)
    moves_usd = weeks.jobs.move_usd[b][np.arange(len(site)), site]
    on_time = ran & (begin + steps <= weeks.jobs.due[b])
    count = max(int(jobs.sum()), 1)
    return Outcome(
        utility_usd=float(earned_usd(weeks, state)[b].sum()),
        gpu_use_frac=float((gpus * steps)[ran].sum() / (weeks.capacity[b].sum() * WEEK)),
        cost_usd=float(energy.cost_usd.sum()),
        carbon_kg=float(energy.carbon_g.sum()) / 1e3,
        kwh=float(energy.kwh.sum()),
        missed_frac=1.0 - float(on_time.sum()) / count,
        moved_frac=float((ran & (site != weeks.jobs.origin[b])).sum()) / count,
        moves_usd=float(moves_usd[ran].sum()),
    )


ROUNDS: Final = 200
"""Updates of the prices."""

REPAIRS: Final = 12_000
"""Attempts to improve the schedule."""

_usd = attrgetter("usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clairvoyant:
    """Upper bound on the utility of a week (USD, no job running is 0), and the best schedule found.

    `usd` is the utility of the schedule, `start` and `site` (n,) are -1 for jobs that do not run.
    """

    bound_usd: float
    usd: float
    start: IntArray
    site: IntArray


@kernel
def best_start(
    weeks: Weeks, b: int, job: int, sums: FloatArray, room: IntArray, bounded: bool
) -> tuple[float, int, int]:
    """Return the largest gain of a job less the price of its GPUs, with its site and start; site -1 if none is above 0.

    `sums` (S, T + 1) are cumulative prices of a GPU; if `bounded`, the start needs `room` (S, T) for the whole run.
    """
    best, found, at = 0.0, -1, -1
    gpus, steps = weeks.jobs.gpus[b, job], weeks.run_steps[b, job]
    first, last = weeks.arrive[b, job], weeks.jobs.due[b, job] - 1
    for site in range(sums.shape[0]):
        if gpus > weeks.capacity[b, site]:
            continue
        clear = 0 if bounded else steps
        for begin in range(last + steps - 1 if bounded else last, first - 1, -1):
            if bounded:
                clear = clear + 1 if room[site, begin] >= gpus else 0
            if clear >= steps and begin <= last:
                usd = realised_usd(weeks, b, job, begin, site)
                usd -= gpus * (sums[site, begin + steps] - sums[site, begin])
                if usd > best:
                    best, found, at = usd, site, begin
    return best, found, at


@kernel
def occupy(weeks: Weeks, b: int, job: int, room: IntArray, start: IntArray, site: IntArray, sign: int) -> None:
    """Subtract a job's GPUs from the room during its run (sign -1), or add them (1)."""
    for step in range(start[job], start[job] + weeks.run_steps[b, job]):
        room[site[job], step] += sign * weeks.jobs.gpus[b, job]


@kept
def priced(weeks: Weeks, b: int, sums: FloatArray, room: IntArray, gains: FloatArray) -> float:
    """Return the jobs' summed gains at the prices, and write each job's gain and the room that is left."""
    total = 0.0
    for site in range(room.shape[0]):
        room[site, :] = weeks.capacity[b, site]
    for job in range(len(gains)):
        gains[job], site, begin = best_start(weeks, b, job, sums, room, False)
        total += gains[job]
        if site >= 0:
            for step in range(begin, begin + weeks.run_steps[b, job]):
                room[site, step] -= weeks.jobs.gpus[b, job]
    return total


@kept
def filled(
    weeks: Weeks, b: int, order: IntArray, sums: FloatArray, room: IntArray, start: IntArray, site: IntArray
) -> float:
    """Insert jobs in an order, each at its best start at the prices that has room; return their utility."""
    total = 0.0
    for place in range(len(order)):
        job = order[place]
        _, site[job], start[job] = best_start(weeks, b, job, sums, room, True)
        if site[job] >= 0:
            occupy(weeks, b, job, room, start, site, -1)
            total += realised_usd(weeks, b, job, start[job], site[job])
    return total


@kept
def removed(weeks: Weeks, b: int, out: BoolArray, room: IntArray, start: IntArray, site: IntArray) -> float:
    """Take the marked jobs out of a schedule; return their utility."""
    total = 0.0
    for job in range(len(out)):
        if out[job] and site[job] >= 0:
            total += realised_usd(weeks, b, job, start[job], site[job])
            occupy(weeks, b, job, room, start, site, 1)
            site[job], start[job] = -1, -1
    return total


def clairvoyant(
    weeks: Weeks, b: int, rng: np.random.Generator, *, rounds: int = ROUNDS, repairs: int = REPAIRS
) -> Clairvoyant:
    """Return bound and schedule of week `b` of a batch."""
    sites, width = weeks.paid.shape[1], weeks.paid.shape[2]
    jobs = int((weeks.arrive[b] < width).sum())
    capacity, price = weeks.capacity[b][:, None].astype(np.float64), np.zeros((sites, width))
    room, gains = np.zeros((sites, width), dtype=np.int64), np.zeros(jobs)
    best = Clairvoyant(bound_usd=np.inf, usd=-1.0, start=np.empty(0, np.int64), site=np.empty(0, np.int64))
    least, least_price, calm, scale = np.inf, price, 0, 1.0
    for turn in range(rounds):
        bound = priced(weeks, b, _sums(price), room, gains) + float((price * capacity).sum())
        calm = 0 if bound < least * (1.0 - 1e-5) else calm + 1
        if bound < least:
            least, least_price = bound, price
        if calm >= 10:
            scale, calm, price = scale / 2.0, 0, least_price
            continue
        if turn % 25 == 24 or turn == 0:
            best = max(best, _scheduled(weeks, b, gains, price, jobs), key=_usd)
        over = -room.astype(np.float64)
        over[(price <= 0.0) & (over < 0.0)] = 0.0
        step = scale * max(bound - best.usd, 1e-3 * bound) / max(float((over**2).sum()), 1e-9)
        price = np.maximum(price + step * over, 0.0)
    best = max(best, _scheduled(weeks, b, gains, least_price, jobs), key=_usd)
    return _repaired(weeks, b, replace(best, bound_usd=least), rng, repairs)


def _sums(price: FloatArray) -> FloatArray:
    """Return cumulative prices (S, T + 1)."""
    return np.pad(np.cumsum(price, axis=1), ((0, 0), (1, 0)))


def _empty_room(weeks: Weeks, b: int) -> IntArray:
    return np.repeat(weeks.capacity[b][:, None], weeks.paid.shape[2], axis=1)


def _scheduled(weeks: Weeks, b: int, gains: FloatArray, price: FloatArray, jobs: int) -> Clairvoyant:
    """Return the schedule that inserts jobs by gain per GPU time at the prices, then all others at no price."""
    start, site = np.full(jobs, -1), np.full(jobs, -1)
    room, work = _empty_room(weeks, b), weeks.jobs.gpus[b, :jobs] * weeks.run_steps[b, :jobs]
    order = np.argsort(-gains / work, kind="stable")
    usd = filled(weeks, b, order, _sums(price), room, start, site)
    rest = order[site[order] < 0]
    usd += filled(weeks, b, rest, _sums(np.zeros_like(price)), room, start, site)
    return Clairvoyant(bound_usd=np.inf, usd=usd, start=start, site=site)


def _repaired(weeks: Weeks, b: int, found: Clairvoyant, rng: np.random.Generator, repairs: int) -> Clairvoyant:
    """Improve a schedule: again and again take out the jobs around a random moment and insert them in another order."""
    start, site, usd = found.start.copy(), found.site.copy(), found.usd
    jobs, none = len(start), _sums(np.zeros(weeks.paid.shape[1:]))
    room = _empty_room(weeks, b)
    for job in np.flatnonzero(site >= 0):
        room[site[job], start[job] : start[job] + weeks.run_steps[b, job]] -= weeks.jobs.gpus[b, job]
    for _ in range(repairs):
        kept_start, kept_site, kept_room = start.copy(), site.copy(), room.copy()
        seed = int(rng.integers(jobs))
        near = (weeks.arrive[b, :jobs] < weeks.jobs.due[b, seed]) & (weeks.arrive[b, seed] < weeks.jobs.due[b, :jobs])
        few = rng.permutation(np.flatnonzero(near))[: int(rng.integers(2, 16))]
        out = np.zeros(jobs, dtype=np.bool_)
        out[few] = out[seed] = True
        changed = usd - removed(weeks, b, out, room, start, site)
        changed += filled(weeks, b, rng.permutation(np.flatnonzero(out)), none, room, start, site)
        if changed >= usd:
            usd = changed
        else:
            start, site, room = kept_start, kept_site, kept_room
    return replace(found, usd=usd, start=start, site=site)
