"""Simulations of one setting and seed: every arm under every budget or price with the same jobs.

Runs are simulated in `simulation`. Called by `study`.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.studies.carbon.arms import ARMS, Arm
from pipelines.studies.carbon.arms import PRICES_S_PER_KWH as ENERGY_PRICES_S_PER_KWH
from pipelines.studies.carbon.curves import BOUND, PRICES_S_PER_KWH, least_mean
from pipelines.studies.carbon.jobs import HOUR_S, ArrivingJobs, Measured, drawn
from pipelines.studies.carbon.simulation import Simulated, Site, simulate
from pipelines.studies.study import Row
from scheduler_core.planning.carbon.allocator import BudgetRule
from scheduler_core.planning.carbon.budget import Bank
from scheduler_core.planning.power import JOULES_PER_KWH

SHARES: Final = (0.15, 0.25, 0.4, 0.6, 1.0, math.inf)
"""Budgets as fractions of the energy of all GPUs at the highest frequency (mean power of the measured workloads), by
the rule to completion of the jobs' energy with their requested GPUs at that frequency."""

PLAIN_G_PER_KWH: Final = 1000.0
"""Constant intensity at which a gram corresponds to a watt-hour, so that carbon budgets are energy budgets."""

IDLE_W: Final = 30.0
"""Published watts of an idle V100."""

MOST_BANKED_S: Final = 86_400.0
"""Maximum unused budget kept for later periods: the budget of this many seconds (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Constants of one variant of the study; `name` identifies it."""

    name: str
    jobs_per_h: float
    gpus: int = 64
    jobs: int = 160
    period_s: float = 900.0
    restart_s: float = 0.0
    at_events: bool = False
    shares: tuple[float, ...] = SHARES
    prices: tuple[float, ...] = ENERGY_PRICES_S_PER_KWH
    rule: BudgetRule = "period"
    arms: tuple[str, ...] = tuple(ARMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One setting and seed to simulate, with the given jobs, or with drawn jobs if `jobs` is None."""

    measured: Measured
    setting: Setting
    seed: int
    jobs: ArrivingJobs | None = None


def run(task: Task) -> list[Row]:
    """Return a row for each arm and budget or price, and one for each point of the lower bound."""
    setting, jobs = task.setting, task.jobs
    if jobs is None:
        rng = np.random.default_rng([task.seed, round(1000 * setting.jobs_per_h)])
        jobs = drawn(task.measured, rng, jobs=setting.jobs, jobs_per_h=setting.jobs_per_h)
    said = {"setting": setting.name, "seed": task.seed, "load": offered(jobs, setting.gpus)}
    rows: list[Row] = []
    for name in setting.arms:
        arm = ARMS[name]
        for share in setting.shares if arm.keeps(setting.rule) else (math.inf,):
            for price in setting.prices if arm.at_prices else (None,):
                simulated = _simulated(jobs, setting, arm, share, price, task.measured.full_w)
                point = {"arm": name, "share": share, "price_s_per_kwh": price}
                rows.append({**said, **point, **figures(simulated, jobs)})
    # A job starts at the next round at the earliest, or at its arrival if rounds are also held at arrivals.
    least = least_mean(jobs, round_s=0.0 if setting.at_events else setting.period_s)
    for price, kwh, mean_s in zip(PRICES_S_PER_KWH.tolist(), *(each.tolist() for each in least), strict=True):
        point = {"arm": BOUND, "share": math.inf, "price_s_per_kwh": price}
        rows.append({**said, **point, "mean_jct_s": mean_s, "kwh": kwh, "kwh_with_idle": kwh})
    return rows


def figures(simulated: Simulated, jobs: ArrivingJobs) -> Row:
    """Return the results of a simulation as a row; times, energy and carbon are NaN if not all jobs ended.

    `kwh` is the energy of GPUs while they run jobs; `kwh_with_idle` includes idle GPUs until the last job ends.
    """
    ended = math.nan if simulated.unfinished else 1.0
    busy_kwh = float(simulated.kwh.sum())
    return {
        "mean_jct_s": ended * float(np.nanmean(simulated.jct_s)) if simulated.unfinished < len(jobs) else math.nan,
        "kwh": ended * busy_kwh,
        "kwh_with_idle": ended * (busy_kwh + simulated.idle_kwh),
        "kg": ended * float(simulated.grams.sum()) / 1000.0,
        "kg_with_idle": ended * (float(simulated.grams.sum()) + simulated.idle_g) / 1000.0,
        "gpu_h": float(simulated.gpu_s.sum()) / HOUR_S,
        "changes_a_job": float(simulated.changes.mean()),
        "over_budget_pct": 100.0 * simulated.over_budget,
        "over_planned_pct": 100.0 * simulated.over_planned,
        "unfinished": simulated.unfinished,
        "rounds": simulated.rounds,
    }


def offered(jobs: ArrivingJobs, gpus: int) -> float:
    """Return the offered load: GPU time of all jobs as requested, divided by the GPU time until the last arrival."""
    return gpu_seconds(jobs) / (gpus * max(float(jobs.submit_s[-1] - jobs.submit_s[0]), 1.0))


def gpu_seconds(jobs: ArrivingJobs) -> float:
    """Return the GPU time in seconds of all jobs with their requested GPUs at the highest frequency."""
    run_s = jobs.steps / jobs.steps_per_s[np.arange(len(jobs)), jobs.requested]
    return float(jobs.requested @ run_s)


def _simulated(
    jobs: ArrivingJobs, setting: Setting, arm: Arm, share: float, price: float | None, full_w: float
) -> Simulated:
    """Simulate an arm under the same budget in every period, or under one budget until all jobs end."""
    full_g = setting.gpus * full_w * setting.period_s / JOULES_PER_KWH * PLAIN_G_PER_KWH
    if setting.rule == "to-completion":
        full_g = gpu_seconds(jobs) * full_w / JOULES_PER_KWH * PLAIN_G_PER_KWH
    site = Site(
        gpus=setting.gpus,
        period_s=setting.period_s,
        intensity_g_per_kwh=lambda _: PLAIN_G_PER_KWH,
        allowance_g=lambda _: share * full_g,
        bank=Bank(most_g=share * full_g * MOST_BANKED_S / setting.period_s) if arm.banks else None,
        idle_w=IDLE_W,
        rule=setting.rule,
        restart_s=setting.restart_s,
        at_events=setting.at_events,
    )
    return simulate(jobs, site, arm.at(price, setting.rule), as_requested=arm.as_requested)
