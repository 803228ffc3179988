"""Lower bound on the cost of tardiness and energy under any schedule: a Lagrangian relaxation of the shared GPUs.

Each job alone is a linear programme over hours and configurations.
"""

from typing import Final

import numpy as np

from pipelines.studies.cost.simulation import W_PER_KW, Site, SubmittedJobs
from scheduler_core.planning.hourly import HOUR_S
from scheduler_core.types import FloatArray, IntArray

STEPS: Final = 40
"""Steps of the subgradient ascent of the rents of GPUs."""

WORTHS: Final = (0.1, 100.0)
"""Range of the tried worths of a job's whole work, as multiples of the cost of its cheapest run at the median hour."""

TRIED, ROUNDS = 12, 4
"""Number of worths tried at once, and how often the range narrows to the neighbours of the best one."""

LATEST_H: Final = 48.0
"""Least time after a due date in hours within which ends are distinguished; later ones cost at least that tardiness."""

FIRST_RENT: Final = 0.05
"""First step of the ascent in USD per GPU-hour, for twice as many GPUs used as there are."""


def least_usd(jobs: SubmittedJobs, site: Site) -> float:
    """Return a cost in USD of tardiness and energy that no schedule of these jobs is below.

    The bound allows what no policy may do: know all jobs and prices, stop, move and resize jobs at no cost, and share a
    node's idle power among its GPUs even if some are idle. Every hour and node type has a rent of a GPU. For any rents
    of 0 or more, the sum of the jobs' least costs with rent, less the rent of all GPUs, is a lower bound (Lagrangian
    duality). Rents rise where more GPUs are used than exist; the best bound on the way is returned.
    """
    kinds = range(len(site.nodes.types))
    room = np.array([site.nodes.gpus[site.nodes.type_of == kind].sum() for kind in kinds], np.float64)
    first_h = int(jobs.submit_s[0] // HOUR_S)
    rent = np.zeros((int(jobs.due_s.max() // HOUR_S + LATEST_H) - first_h + 1, len(room)))
    best = -np.inf
    for step in range(STEPS):
        used, total = np.zeros_like(rent), 0.0
        for job in range(len(jobs)):
            total += _alone(jobs, site, job, rent, used, first_h)
        best = max(best, total - float(rent.sum(axis=0) @ room))
        rent = np.maximum(rent + FIRST_RENT / np.sqrt(1.0 + step) * (used / room - 1.0), 0.0)
    return best


def _alone(jobs: SubmittedJobs, site: Site, job: int, rent: FloatArray, used: FloatArray, first_h: int) -> float:
    """Return a lower bound on one job's cost with rents in USD per GPU-hour, and add the GPUs it uses to `used`.

    The bound follows from duality. Give the job a worth: in each hour it gains the worth of the work done less its
    cost, in the best configuration. Its cost until an end is at least this worth less the gains so far, plus its
    tardiness. The least over ends is a bound for each worth; the highest bound is returned.
    """
    run_h = jobs.run_s[job] * jobs.off_by[job] / HOUR_S
    kind, gpus = np.nonzero(np.isfinite(run_h))
    run_h = run_h[kind, gpus]
    weight, due_h = jobs.weight_usd_per_s[job] * HOUR_S, jobs.due_s[job] / HOUR_S
    submit_h = jobs.submit_s[job] / HOUR_S
    latest_h = int(due_h + LATEST_H)
    edges = np.unique(np.r_[submit_h, np.clip(due_h, submit_h, None), np.arange(int(submit_h) + 1, latest_h + 1)])
    hours = np.diff(edges)
    at = edges[:-1].astype(np.int64) - first_h
    usd_per_h = _energy_usd(site, kind, gpus, edges[:-1]) + rent[at][:, kind] * gpus
    unit = max(float((np.median(usd_per_h, axis=0) * run_h).min()), 1e-6)
    # An end before the first hour gains nothing; one after the last is at least as late, less what negative prices pay.
    paid = float(np.maximum(-usd_per_h.min(axis=1), 0.0) @ hours)
    late_usd, most = weight * np.maximum(edges[1:] - due_h, 0.0), weight * (latest_h - due_h) - paid
    low, high = (unit * each for each in WORTHS)
    for _ in range(ROUNDS):
        worth = np.geomspace(low, high, TRIED)
        gain = worth[:, None, None] / run_h - usd_per_h
        pick = gain.argmax(axis=2)
        each = np.maximum(np.take_along_axis(gain, pick[..., None], axis=2)[..., 0], 0.0)
        cost = worth[:, None] - np.cumsum(each * hours, axis=1) + late_usd
        bound = np.minimum(np.minimum(cost.min(axis=1), worth), most)
        best = int(bound.argmax())
        low, high = worth[max(best - 1, 0)], worth[min(best + 1, TRIED - 1)]
    runs = (each[best] > 0.0) & (np.arange(len(hours)) <= cost[best].argmin())
    chosen = pick[best][runs]
    done = float((hours[runs] / run_h[chosen]).sum())
    np.add.at(used, (at[runs], kind[chosen]), gpus[chosen] * hours[runs] / max(done, 1.0))
    return float(bound[best])


def _energy_usd(site: Site, kind: IntArray, gpus: IntArray, hours: FloatArray) -> FloatArray:
    """Return the energy cost in USD per hour of every configuration (C,) in the given hours of the run (H, C).

    A GPU has its share of the node's idle power; where the price is negative, a job has all of it.
    """
    price = np.asarray(site.price.at(site.start_ts + hours * HOUR_S))[:, None]
    idle_w, active_w, on_a_node = (
        np.array([getattr(each, name) for each in site.nodes.types], np.float64)[kind]
        for name in ("idle_w", "gpu_active_w", "gpus")
    )
    watts = gpus * active_w + np.where(price < 0.0, idle_w, gpus * idle_w / on_a_node)
    return np.asarray(price * site.pue / W_PER_KW * watts)
