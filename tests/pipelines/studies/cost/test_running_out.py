"""Plans run out to their end: at two prices, and restarts that are owed."""

from dataclasses import replace

import numpy as np
import pytest

from scheduler_core.planning.cost import Decision, Nodes, NodeType, Problem, WaitingJobs
from scheduler_core.planning.hourly import JOULES_PER_KWH
from scheduler_core.planning.lookahead import _Ahead, _run

TYPES = (NodeType(name="small", gpu_type="p100", gpus=2, idle_w=100.0, gpu_active_w=200.0),)


def usd_of(problem: Problem, order: list[int]) -> tuple[float, list[int]]:
    """Return the cost of a plan, and its first nodes."""
    plan = _run(_Ahead.of(problem), np.array(order), np.full(2, 2), np.zeros(2, dtype=np.bool_))
    return plan.usd, plan.decision.node.tolist()


def two(current: Decision | None = None) -> Problem:
    """Return two jobs of two hours on a node's two GPUs, without weights, at 0.1 USD/kWh for an hour and then 0.7."""
    run_s = np.full((2, 1, 3), np.nan)
    run_s[:, 0, 2] = 7200.0
    return Problem(
        jobs=WaitingJobs(due_s=np.full(2, 1e6), weight_usd_per_s=np.zeros(2), run_s=run_s),
        nodes=Nodes(types=TYPES, type_of=np.zeros(1, np.int64)),
        now_s=0.0,
        usd_per_kwh=0.1,
        later_usd_per_kwh=0.7,
        restart_s=600.0,
        current=current,
    )


def test_energy_after_the_period_is_at_the_later_price() -> None:
    usd, first = usd_of(two(), [0, 1])

    assert first == [0, -1]
    assert usd == pytest.approx(500.0 * 3600.0 * (0.1 + 3 * 0.7) / JOULES_PER_KWH)


def test_who_is_stopped_on_a_full_cluster_owes_a_restart() -> None:
    running = Decision(node=np.array([-1, 0]), gpus=np.array([0, 2]))

    stopped, kept = (usd_of(two(running), order)[0] for order in ([0, 1], [1, 0]))

    assert stopped - kept == pytest.approx(500.0 * 600.0 * 0.7 / JOULES_PER_KWH)
    assert usd_of(replace(two(running), restart_s=0.0), [0, 1])[0] == pytest.approx(kept)
