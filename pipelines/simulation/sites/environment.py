"""Run weeks with a policy, and compute what it reached: utility, energy, carbon, GPU use, missed due dates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.simulation.sites.loop import State, run
from pipelines.simulation.sites.places import Place
from pipelines.simulation.sites.weeks import WEEK, Weeks
from scheduler_core.kernels.site_choice import scratch_of
from scheduler_core.kernels.site_value import DAY, FEATURES, STEPS_PER_H
from scheduler_core.planning.hourly import HOURS_PER_DAY
from scheduler_core.planning.sites import Policy
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Energy", "Outcome", "begun", "earned_usd", "energy_of", "held_gpus", "outcome_of", "rows_of", "simulated"]


def begun(weeks: Weeks) -> State:
    """Return the state before the first step: all GPUs free, no job has arrived."""
    batch, jobs = weeks.arrive.shape
    sites = weeks.capacity.shape[1]
    steps = (weeks.usd.shape[2] - DAY // 4) * 4

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
