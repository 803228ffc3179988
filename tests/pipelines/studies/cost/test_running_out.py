"""Plans run out to their end: the compiled loop beside a plain one, at two prices, and restarts that are owed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.kernels.lookahead import room_for, run_out
from scheduler_core.planning.cost.lookahead import _ahead  # the constants as decisions have them
from scheduler_core.planning.cost.problem import Decision, Nodes, NodeType, Problem, WaitingJobs
from scheduler_core.planning.power import JOULES_PER_KWH
from tests.examples import examples
from tests.pipelines.studies.cost.naive_running import naive_usd

TYPES = (
    NodeType(name="small", gpu_type="p100", gpus=2, idle_w=100.0, gpu_active_w=200.0),
    NodeType(name="large", gpu_type="v100", gpus=4, idle_w=150.0, gpu_active_w=270.0),
)


def usd_of(problem: Problem, order: list[int], most: list[int], thrifty: list[bool]) -> tuple[float, list[int]]:
    """Return what the compiled loop finds."""
    jobs, decision = len(problem.jobs), Decision.nothing(len(problem.jobs))
    room = room_for(jobs, len(problem.nodes.type_of), len(TYPES))
    plan = (np.array(order, np.int64), np.array(most, np.int64), np.array(thrifty, np.bool_))
    usd = run_out(_ahead(problem), room, *plan, decision.node, decision.gpus)
    return float(usd), decision.node.tolist()


@settings(max_examples=examples(80))
@given(st.integers(1, 7), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 90.0, 900.0]))
def test_it_costs_what_a_plain_loop_finds(jobs: int, seed: int, restart_s: float) -> None:
    rng = np.random.default_rng(seed)
    run_s = np.full((jobs, 2, 5), np.nan)
    run_s[:, 0, 1:3], run_s[:, 1, 1:5] = rng.uniform(60.0, 9000.0, (jobs, 2)), rng.uniform(60.0, 9000.0, (jobs, 4))
    run_s[rng.random(run_s.shape) < 0.3] = np.nan
    type_of = rng.integers(2, size=3)
    # Who runs now has a GPU of a node of his own: jobs 0 to 2 at most.
    node = np.where((np.arange(jobs) < 3) & (rng.random(jobs) < 0.7), np.arange(jobs), -1)
    problem = Problem(
        jobs=WaitingJobs(
            due_s=rng.uniform(0.0, 15_000.0, jobs), weight_usd_per_s=rng.uniform(0.0, 1e-4, jobs), run_s=run_s
        ),
        nodes=Nodes(types=TYPES, type_of=type_of),
        now_s=0.0,
        usd_per_kwh=0.1,
        later_usd_per_kwh=0.7,
        restart_s=restart_s,
        current=Decision(node=node, gpus=np.where(node < 0, 0, 1)),
    )
    order, most = rng.permutation(jobs).tolist(), (2 ** rng.integers(0, 3, jobs)).tolist()
    thrifty = (rng.random(jobs) < 0.5).tolist()

    usd, first = usd_of(problem, order, most, thrifty)
    plain_usd, plain_first = naive_usd(_ahead(problem), order, most, thrifty)

    assert usd == pytest.approx(plain_usd, rel=1e-9)
    assert first == plain_first


def two(current: Decision | None = None) -> Problem:
    """Return two jobs of two hours on a node's two GPUs, without weights, at 0.1 USD/kWh for an hour and then 0.7."""
    run_s = np.full((2, 2, 5), np.nan)
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
    usd, first = usd_of(two(), [0, 1], [2, 2], [False, False])

    assert first == [0, -1]
    assert usd == pytest.approx(500.0 * 3600.0 * (0.1 + 3 * 0.7) / JOULES_PER_KWH)


def test_who_is_stopped_on_a_full_cluster_owes_a_restart() -> None:
    running = Decision(node=np.array([-1, 0]), gpus=np.array([0, 2]))

    stopped, kept = (usd_of(two(running), order, [2, 2], [False, False])[0] for order in ([0, 1], [1, 0]))

    assert stopped - kept == pytest.approx(500.0 * 600.0 * 0.7 / JOULES_PER_KWH)
    assert usd_of(replace(two(running), restart_s=0.0), [0, 1], [2, 2], [False, False])[0] == pytest.approx(kept)
