"""Route a list of waiting jobs among sites: where each starts now, or that it waits, with a reason for each.

The compiled decision is that of the simulation. If a job or the sites lie outside what a learnt policy has seen, the
greedy rule decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.kernels.site_choice import RULES, SCORER, Scratch, decide, describe, scratch_of
from scheduler_core.kernels.site_value import DAY, FEATURES, STEPS_PER_H, WAIT, Jobs, Outlook
from scheduler_core.planning.hourly import HOURS_PER_DAY
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["POLICIES", "Policy", "RouteReason", "Routes", "SiteState", "Support", "WaitingJobs", "policy", "route"]

POLICIES: Final = {**{name: code for code, name in enumerate(RULES)}, "scorer": SCORER}
"""Code of each policy in the compiled decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy and its parameters: `scorer` has one weight per feature, the rules have none."""

    name: str
    params: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def rule(self) -> int:
        """Return the code of the policy in the compiled decisions."""
        return POLICIES[self.name]


def policy(name: str, params: Sequence[float] = ()) -> Policy:
    """Return a policy by name."""
    if name not in POLICIES:
        raise BadInput(f"policy: found {name[:40]!r}, expected one of {', '.join(POLICIES)}")
    values, wanted = np.asarray(params, dtype=np.float64), len(FEATURES) if name == "scorer" else 0
    if values.shape != (wanted,) or not np.isfinite(values).all():
        found = f"{int(np.isfinite(values).sum())} finite parameters of shape {values.shape}"
        raise BadInput(f"policy {name}: found {found}, expected {wanted} finite ones")
    return Policy(name=name, params=values)


GREEDY: Final = "greedy"


class RouteReason(StrEnum):
    """Why a job starts at its site, or waits."""

    STAYS = "stays"
    SENT = "sent"
    WAITS = "waits"
    NO_ROOM = "no_room"
    TOO_WIDE = "too_wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteState:
    """State of S sites.

    `free` and `capacity` are GPUs. `gpu_kw` is what a running GPU adds to a site's power, PUE included. `price`
    (USD/kWh) and `carbon` (g/kWh) are forecasts (S, 24), of the current hour first; after a day they repeat. `now_step`
    is the step of 15 minutes of the day (UTC), 0 to 95.
    """

    free: IntArray
    capacity: IntArray
    gpu_kw: FloatArray
    price: FloatArray
    carbon: FloatArray
    now_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJobs:
    """Waiting jobs (n): GPUs, predicted run time and time to the due date in steps, origin, and data (USD per move)."""

    gpus: IntArray
    steps: IntArray
    due_in: IntArray
    origin: IntArray
    move_usd: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Smallest and largest value of each feature that a policy met in training, (features,) each."""

    low: FloatArray
    high: FloatArray

    def __post_init__(self) -> None:
        for each in (self.low, self.high):
            if each.shape != (len(FEATURES),) or np.isnan(each).any():
                raise BadInput(f"support: found {each.size} values, expected {len(FEATURES)} numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Decisions on n jobs: the site of each (-1: it waits), why (a `RouteReason`), and its expected gain in USD.

    `safe` marks jobs that the greedy rule decided because they lay outside the support.
    """

    site: IntArray
    reason: tuple[str, ...]
    gain_usd: FloatArray
    safe: BoolArray


def route(
    jobs: WaitingJobs,
    sites: SiteState,
    chosen: Policy,
    *,
    worth_usd_per_gpu_h: float,
    carbon_usd_per_t: float,
    miss_usd: float,
    support: Support | None = None,
) -> Routes:
    """Decide for every job, by due date, whether it starts now and where."""
    count, places = len(jobs.gpus), len(sites.free)
    seen = _outlook(sites, worth_usd_per_gpu_h, carbon_usd_per_t, miss_usd)
    now = sites.now_step
    columns = Jobs(jobs.gpus, jobs.steps, now + jobs.due_in, jobs.origin, jobs.move_usd)
    scratch = Scratch(*(each[0] for each in scratch_of(1, count)))
    order = np.argsort(jobs.due_in, kind="stable").astype(np.int64)
    gains, known = np.zeros((count, places)), np.zeros(count, dtype=np.bool_)
    bounds = (np.empty(0), np.empty(0)) if support is None else (support.low, support.high)
    describe(columns, seen, now, order, scratch, *bounds, known, gains)
    site, out = np.full(count, WAIT), np.empty(count, dtype=np.int64)
    # Jobs outside the support are decided first, by the greedy rule; other jobs get the room that is left.
    for which, by in ((~known, policy(GREEDY)), (known, chosen)):
        part = order[which[order]]
        decide(by.rule, by.params, columns, seen, now, part, len(part), scratch, out)
        site[part] = out[: len(part)]
    starts = site != WAIT
    room, ever = (np.any(jobs.gpus[:, None] <= gpus, axis=1) for gpus in (sites.free, sites.capacity))
    code = np.where(starts, np.where(site == jobs.origin, 0, 1), np.where(room, 2, np.where(ever, 3, 4)))
    names = [each.value for each in RouteReason]
    return Routes(
        site=site,
        reason=tuple(names[each] for each in code.tolist()),
        gain_usd=np.where(starts, gains[np.arange(count), np.maximum(site, 0)], 0.0),
        safe=~known,
    )


def _outlook(sites: SiteState, worth_usd_per_gpu_h: float, carbon_usd_per_t: float, miss_usd: float) -> Outlook:
    usd = sites.gpu_kw[:, None] / STEPS_PER_H * (sites.price + sites.carbon * carbon_usd_per_t * 1e-6)
    hour = (sites.now_step % STEPS_PER_H + np.arange(DAY)) // STEPS_PER_H % HOURS_PER_DAY
    sums = np.concatenate([np.zeros((len(usd), 1)), np.cumsum(usd[:, hour], axis=1)], axis=1)
    return Outlook(
        sums=sums,
        free=sites.free.copy(),
        capacity=sites.capacity,
        worth_usd=worth_usd_per_gpu_h / STEPS_PER_H,
        miss_usd=miss_usd,
    )
