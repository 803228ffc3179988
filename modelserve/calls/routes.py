"""Calls for routes of waiting jobs among sites: sites and jobs in, a site and a reason for each job out.

The decision is `scheduler_core.planning.sites`, with the policy of the settings.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np

from modelserve.bundle.routing_policy import RoutingPolicy
from modelserve.calls.context import Answered, RequestContext, Values, written
from modelserve.contract.routes import RouteBody, RoutedJob, SiteRow
from modelserve.errors import BadRequest
from scheduler_core.planning.sites import SiteState, WaitingJobs, route
from scheduler_core.types import FloatArray, IntArray

__all__ = ["routed"]

STEP_S: Final = 900.0
DAY_S: Final = 86_400.0
FREEING_H: Final = 48
G_PER_T: Final = 1e6


def routed(context: RequestContext, body: RouteBody) -> Answered:
    """Return the response to a call for routes."""
    rules = context.routing or RoutingPolicy()
    names = [each.site for each in body.sites]
    at = {name: place for place, name in enumerate(names)}
    if len(at) < len(names):
        raise BadRequest(f"sites: found {len(names)} sites with {len(at)} names, expected a name for each")
    for each in body.jobs:
        if each.site not in at:
            raise BadRequest(f"jobs: {each.job_id[:40]!r} is at {each.site[:40]!r}, expected one of the call's sites")
    origin = np.array([at[each.site] for each in body.jobs], dtype=np.int64)
    state = _state(body.sites, body.at or datetime.fromtimestamp(context.now, UTC))
    found = route(
        _waiting(body.jobs, origin, state, rules),
        state,
        rules.policy,
        worth_usd_per_gpu_h=rules.worth_usd_per_gpu_h,
        carbon_usd_per_t=rules.carbon_usd_per_t,
        miss_usd=rules.miss_usd,
        support=rules.support,
    )
    columns = (found.site.tolist(), found.reason, found.gain_usd.tolist(), found.safe.tolist())
    answers: list[Values] = [
        {
            "job_id": row.job_id,
            "site": names[site] if site >= 0 else None,
            "reason": reason,
            "gain_usd": gain,
            "safe_mode": safe,
        }
        for row, site, reason, gain, safe in zip(body.jobs, *columns, strict=True)
    ]
    return Answered(
        body=written({"answer_id": context.answer_id, "policy": rules.policy.name, "routes": answers}),
        counts=Counter(("route", reason) for reason in found.reason),
    )


def _state(rows: Sequence[SiteRow], moment: datetime) -> SiteState:
    second = moment.timestamp() % DAY_S
    return SiteState(
        free=_whole([row.free for row in rows]),
        capacity=_whole([row.gpus for row in rows]),
        freeing=_whole([(*row.freeing, *(0,) * (FREEING_H - len(row.freeing))) for row in rows]),
        gpu_kw=np.array([row.gpu_kw for row in rows]),
        price=np.array([row.price_usd_per_kwh for row in rows]),
        carbon=np.array([row.carbon_g_per_kwh for row in rows]),
        now_step=int(second // STEP_S),
    )


def _waiting(rows: Sequence[RoutedJob], origin: IntArray, state: SiteState, rules: RoutingPolicy) -> WaitingJobs:
    energy = (state.price + state.carbon * rules.carbon_usd_per_t / G_PER_T).mean(axis=1)
    usd: FloatArray = np.array([row.data_gb for row in rows])
    usd = usd * (rules.egress_usd_per_gb + rules.kwh_per_gb * energy[origin])
    away = np.arange(len(state.free))[None, :] != origin[:, None]
    return WaitingJobs(
        gpus=_whole([row.gpus for row in rows]),
        steps=np.ceil(np.array([row.run_time_s for row in rows]) / STEP_S).astype(np.int64),
        due_in=np.floor(np.array([row.due_in_s for row in rows]) / STEP_S).astype(np.int64),
        origin=origin,
        move_usd=usd[:, None] * away,
    )


def _whole(values: object) -> IntArray:
    return np.array(values, dtype=np.int64)
