"""What decisions on costs may know: prices so far, never those to come; and who is pressed by what is known."""

from typing import Any

import numpy as np
import pytest

from pipelines.studies.cost.simulation import Asked, Policy, Site, SubmittedJobs, simulate
from scheduler_core.planning.cost import Decision, Nodes, NodeType, Problem, WaitingJobs, by_pressure, greedy
from scheduler_core.planning.hourly import HourlySeries
from scheduler_core.planning.lookahead import look_ahead

HOUR = 3600.0
DAY_H, RUN_H = 24, 72
SMALL = NodeType(name="small", gpu_type="p100", gpus=2, idle_w=100.0, gpu_active_w=200.0)
NODES = Nodes(types=(SMALL,), type_of=np.zeros(1, np.int64))


def ahead(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:
    return look_ahead(problem, rng, 2)


def now(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:
    return greedy(problem)


def decided(policy: Policy, prices: list[float]) -> list[tuple[Any, ...]]:
    """Return every decision's moment, prices and plan; prices are of a day before the run and of three days from it."""
    seen: list[tuple[Any, ...]] = []  # of numbers and lists, held against each other as they are

    def noting(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:
        decision = policy(problem, asked, rng)
        known = (problem.usd_per_kwh, problem.later_usd_per_kwh)
        seen.append((problem.now_s, known, decision.node.tolist(), decision.gpus.tolist()))
        return decision

    run_s = np.full((4, 1, 3), np.nan)
    run_s[:, 0, 1], run_s[:, 0, 2] = 2.0 * HOUR, 1.2 * HOUR
    jobs = SubmittedJobs(
        submit_s=np.array([0.0, 0.25, 0.5, 1.5]) * HOUR,
        due_s=np.array([9.0, 4.0, 6.0, 5.0]) * HOUR,
        weight_usd_per_s=np.full(4, 1e-5),
        run_s=run_s,
        asked_gpus=np.ones(4, np.int64),
        off_by=np.ones(4),
    )
    series = HourlySeries(start_s=0.0, values=np.array(prices), unit="USD/kWh", wrap=False)
    simulate(jobs, Site(nodes=NODES, price=series, start_ts=DAY_H * HOUR), noting, np.random.default_rng(0))
    return seen


@pytest.mark.parametrize("policy", [ahead, now])
@pytest.mark.parametrize("until_h", [1, 2, 3])
def test_prices_to_come_change_no_decision(policy: Policy, until_h: int) -> None:
    prices = np.random.default_rng(1).uniform(0.05, 0.4, DAY_H + RUN_H)
    others = np.where(np.arange(len(prices)) < DAY_H + until_h, prices, 5.0 - 10.0 * prices)

    first, second = decided(policy, prices.tolist()), decided(policy, others.tolist())

    before = [[each for each in found if each[0] < until_h * HOUR] for found in (first, second)]
    assert before[0] == before[1]
    assert len(before[0]) >= 3
    assert first != second  # what came later was heeded once it was there


def test_pressure_grows_with_the_run_and_falls_with_the_time_to_the_due_date() -> None:
    run_s = np.full((4, 1, 3), np.nan)
    run_s[:, 0, 1] = [600.0, 600.0, 1500.0, np.nan]
    problem = Problem(
        jobs=WaitingJobs(
            due_s=np.array([3000.0, 1000.0, 3000.0, 700.0]), weight_usd_per_s=np.full(4, 1e-5), run_s=run_s
        ),
        nodes=NODES,
        now_s=500.0,
        usd_per_kwh=0.1,
    )

    # Run time less time to the due date: -1900, 100 and -1000 s; the last job cannot run.
    assert by_pressure(problem, problem.possible_run_s()).tolist() == [1, 2, 0, 3]
