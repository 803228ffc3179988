"""Routes of waiting jobs: by hand, with reasons, and greedy outside the support."""

import numpy as np
import pytest

from scheduler_core.errors import BadInput
from scheduler_core.planning.sites import RouteReason, Routes, SiteState, Support, WaitingJobs, policy, route

FEATURES = 18


def sites(free: tuple[int, ...] = (8, 8), price: tuple[float, ...] = (0.20, 0.05)) -> SiteState:
    count = len(free)
    return SiteState(
        free=np.array(free),
        capacity=np.full(count, 8),
        gpu_kw=np.full(count, 0.5),
        price=np.repeat(np.array(price)[:, None], 24, axis=1),
        carbon=np.zeros((count, 24)),
        now_step=0,
    )


def jobs(*gpus: int, origin: int = 0, move_usd: float = 0.1) -> WaitingJobs:
    away = np.array([0.0 if site == origin else move_usd for site in range(2)])
    return WaitingJobs(
        gpus=np.array(gpus),
        steps=np.full(len(gpus), 16),
        due_in=np.full(len(gpus), 64) + np.arange(len(gpus)),
        origin=np.full(len(gpus), origin),
        move_usd=np.repeat(away[None], len(gpus), axis=0),
    )


def routed(waiting: WaitingJobs, state: SiteState, name: str = "greedy", **more: object) -> Routes:
    terms = {"worth_usd_per_gpu_h": 0.12, "carbon_usd_per_t": 80.0, "miss_usd": 0.5}
    return route(waiting, state, policy(name), **terms, **more)


def test_greedy_sends_a_job_where_it_gains_most_by_hand() -> None:
    found = routed(jobs(4), sites())
    # 4 GPUs for 4 h: worth 1.92, energy 0.5 kW x 16 GPU-h x 0.05 = 0.40, moved for 0.10, and no miss: 0.50.
    assert found.gain_usd.tolist() == pytest.approx([1.92 - 0.40 - 0.10 + 0.50])
    assert found.site.tolist() == [1]
    assert found.reason == (RouteReason.SENT,)


def test_every_reason() -> None:
    assert routed(jobs(4, 8, 9), sites(), "local").reason == (
        RouteReason.STAYS,
        RouteReason.WAITS,
        RouteReason.TOO_WIDE,
    )
    assert routed(jobs(8), sites(free=(4, 4))).reason == (RouteReason.NO_ROOM,)


def test_jobs_take_each_others_room_by_due_date() -> None:
    assert routed(jobs(8, 8, 8), sites(price=(0.05, 0.05))).site.tolist() == [0, 1, -1]


def test_outside_its_support_the_greedy_rule_decides() -> None:
    nothing = Support(low=np.full(FEATURES, 1.0), high=np.full(FEATURES, -1.0))
    found = routed(jobs(4), sites(), "local", support=nothing)
    assert found.safe.tolist() == [True]
    assert found.site.tolist() == routed(jobs(4), sites()).site.tolist()
    everything = Support(low=np.full(FEATURES, -np.inf), high=np.full(FEATURES, np.inf))
    assert not routed(jobs(4), sites(), "local", support=everything).safe.any()


def test_wrong_policies_are_refused() -> None:
    with pytest.raises(BadInput, match="expected one of local"):
        policy("best")
    with pytest.raises(BadInput, match="expected 18 finite"):
        policy("scorer", (0.1,))
