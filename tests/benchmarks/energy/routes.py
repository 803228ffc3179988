"""One call for routes timed: 1000 waiting jobs and 6 sites, by each policy, from the read call to the written answer.

Called by `tests.benchmarks.energy`.
"""

import time
from datetime import UTC, datetime
from typing import Final

import numpy as np

from modelserve.bundle.routing_policy import RoutingPolicy
from modelserve.calls.context import RequestContext
from modelserve.calls.routes import routed
from modelserve.contract.routes import RouteBody, RoutedJob, SiteRow
from modelserve.learning.learned import Learned
from modelserve.loading.models import Snapshot
from scheduler_core.kernels.sites.value import FEATURES
from scheduler_core.planning.sites import Support, policy
from tests.benchmarks.serving.figures import Bar, Row, amount_row

JOBS, SITES, CALLS = 1000, 6, 40
BAR: Final = Bar(side="under", value=5.0)
"""A call in milliseconds."""

PARAMS: Final = {"greedy": (), "rolling": (0.2, 0.2), "scorer": tuple(np.linspace(-1.0, 1.0, len(FEATURES)).tolist())}


def route_rows() -> list[Row]:
    """Time calls in CPU milliseconds of the one thread; every job has a day to choose its start in."""
    body, now = _body(), datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    nothing = Snapshot(champions={}, challengers={}, failures={}, generation=0, loaded_at=0.0)
    ends = np.full(len(FEATURES), np.inf)
    rows = []
    for name, params in PARAMS.items():
        support = None if name == "greedy" else Support(low=-ends, high=ends)
        rules = RoutingPolicy(policy=policy(name, params), support=support)
        context = RequestContext(snapshot=nothing, learned=Learned(), answer_id="x", now=now, routing=rules)
        taken_ms = [_milliseconds(context, body) for _ in range(CALLS)][2:]
        rows.append(amount_row("routes", f"{JOBS} jobs, {SITES} sites, {name}", taken_ms, unit="ms", bar=BAR))
    return rows


def _milliseconds(context: RequestContext, body: RouteBody) -> float:
    begin = time.process_time()
    routed(context, body)
    return (time.process_time() - begin) * 1000.0


def _body() -> RouteBody:
    rng = np.random.default_rng(0)
    sites = [
        SiteRow(
            site=f"s{number}",
            gpus=64,
            free=40,
            gpu_kw=0.4,
            price_usd_per_kwh=tuple(rng.uniform(0.05, 0.25, 24)),
            carbon_g_per_kwh=tuple(rng.uniform(50.0, 600.0, 24)),
        )
        for number in range(SITES)
    ]
    jobs = [
        RoutedJob(
            job_id=str(number),
            site=f"s{number % SITES}",
            gpus=int(rng.choice([1, 2, 4, 8])),
            run_time_s=float(rng.integers(900, 90_000)),
            due_in_s=200_000.0,
            data_gb=1.0,
        )
        for number in range(JOBS)
    ]
    return RouteBody(sites=sites, jobs=jobs)
