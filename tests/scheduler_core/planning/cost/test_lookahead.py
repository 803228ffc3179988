"""Decisions judged to the end: what they may not do, what changes nothing, and where they beat the next decision's."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.planning.cost import POSTPONED, Decision, Nodes, NodeType, Problem, WaitingJobs, greedy
from scheduler_core.planning.lookahead import look_ahead
from tests.examples import examples

TYPES = (
    NodeType(name="small", gpu_type="p100", gpus=2, idle_w=100.0, gpu_active_w=200.0),
    NodeType(name="large", gpu_type="v100", gpus=4, idle_w=150.0, gpu_active_w=270.0),
)


def crowd(jobs: int) -> Problem:
    """Return equal jobs on one node of two GPUs: an hour on one GPU, half an hour on both; each due in turn."""
    run_s = np.full((jobs, 1, 3), np.nan)
    run_s[:, 0, 1], run_s[:, 0, 2] = 3600.0, 1800.0
    return Problem(
        jobs=WaitingJobs(
            due_s=1800.0 * np.arange(1.0, jobs + 1.0),
            weight_usd_per_s=np.ones(jobs),
            run_s=run_s,
        ),
        nodes=Nodes(types=TYPES[:1], type_of=np.zeros(1, np.int64)),
        now_s=0.0,
        usd_per_kwh=0.1,
        period_s=3600.0,
    )


def check(problem: Problem, decision: Decision) -> None:
    """Check that each job runs where it can run, or is postponed, and that no node gives more GPUs than it has."""
    runs = np.flatnonzero(decision.node != POSTPONED)
    node, gpus = decision.node[runs], decision.gpus[runs]
    assert len(decision.node) == len(decision.gpus) == len(problem.jobs)
    assert ((decision.node == POSTPONED) == (decision.gpus == 0)).all()
    assert np.isfinite(problem.possible_run_s()[runs, problem.nodes.type_of[node], gpus]).all()
    given = np.bincount(node, weights=gpus, minlength=len(problem.nodes.type_of))
    assert (given <= problem.nodes.gpus).all()


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw jobs and nodes of two types, some of it impossible, some running, prices of either sign."""
    jobs, rng = draw(st.integers(0, 8)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    run_s = np.full((jobs, 2, 5), np.nan)
    run_s[:, 0, 1:3] = rng.uniform(60.0, 9000.0, (jobs, 2))
    run_s[:, 1, 1:5] = rng.uniform(60.0, 9000.0, (jobs, 4))
    run_s[rng.random(run_s.shape) < 0.3] = np.nan
    return Problem(
        jobs=WaitingJobs(
            due_s=np.where(rng.random(jobs) < 0.1, np.inf, rng.uniform(-4000.0, 20_000.0, jobs)),
            weight_usd_per_s=rng.uniform(0.0, 1.0, jobs) * (rng.random(jobs) < 0.9),
            run_s=run_s,
        ),
        nodes=Nodes(types=TYPES, type_of=rng.integers(2, size=draw(st.integers(0, 4)))),
        now_s=0.0,
        usd_per_kwh=draw(st.sampled_from([0.2, 0.0, -0.1])),
        later_usd_per_kwh=draw(st.sampled_from([None, 0.1, -0.05])),
        restart_s=draw(st.sampled_from([0.0, 60.0])),
        pue=1.3,
    )


@settings(max_examples=examples(60))
@given(problems(), st.integers(0, 5))
def test_it_can_be_carried_out_and_leaves_no_job_waiting_beside_an_empty_cluster(problem: Problem, seed: int) -> None:
    decision = look_ahead(problem, np.random.default_rng(seed), 5)

    check(problem, decision)
    possible = np.isfinite(problem.possible_run_s()).any(axis=(1, 2)) if len(problem.jobs) else np.zeros(0, np.bool_)
    assert not possible.any() or (decision.node >= 0).any()


@settings(max_examples=examples(20))
@given(problems())
def test_the_same_chance_gives_the_same_decision(problem: Problem) -> None:
    first, second = (look_ahead(problem, np.random.default_rng(3), 5) for _ in range(2))

    assert first.node.tolist() == second.node.tolist()
    assert first.gpus.tolist() == second.gpus.tolist()


def test_due_in_turn_jobs_run_one_after_the_other_each_in_time() -> None:
    assert look_ahead(crowd(4), np.random.default_rng(0)).gpus.tolist() == [2, 0, 0, 0]


@settings(max_examples=examples(60))
@given(problems())
def test_the_greedy_can_be_carried_out_and_postpones_only_what_does_not_fit(problem: Problem) -> None:
    decision, run_s = greedy(problem), problem.possible_run_s()

    check(problem, decision)
    free = problem.nodes.gpus - np.bincount(
        decision.node[decision.node >= 0], weights=decision.gpus[decision.node >= 0], minlength=len(problem.nodes.gpus)
    )
    for job in np.flatnonzero(decision.node < 0):
        rooms = zip(problem.nodes.type_of, free, strict=True)
        possible = [np.isfinite(run_s[job, kind, 1 : int(left) + 1]).any() for kind, left in rooms]
        assert not any(possible)


def test_the_greedy_takes_the_cheapest_timely_configuration_most_urgent_job_first() -> None:
    # The first job meets its due date on two GPUs only; the second has to wait.
    decision = greedy(crowd(2))

    assert (decision.node.tolist(), decision.gpus.tolist()) == ([0, -1], [2, 0])


def test_a_job_that_runs_stays_where_it_is() -> None:
    problem = crowd(1)
    nodes = replace(problem.nodes, type_of=np.zeros(3, np.int64))
    running = Decision(node=np.array([2]), gpus=np.array([2]))

    decision = look_ahead(replace(problem, nodes=nodes, current=running, restart_s=60.0), np.random.default_rng(0))

    assert (decision.node.tolist(), decision.gpus.tolist()) == ([2], [2])


def test_without_hurry_the_cheapest_configuration_is_taken() -> None:
    # twice the GPUs in half the time share one idle power: both GPUs cost less than one for longer
    problem = replace(crowd(1), jobs=replace(crowd(1).jobs, due_s=np.array([np.inf])))
    slower = problem.jobs.run_s.copy()
    slower[:, 0, 2] = 3500.0

    both = look_ahead(problem, np.random.default_rng(0))
    one = look_ahead(replace(problem, jobs=replace(problem.jobs, run_s=slower)), np.random.default_rng(0))

    assert (both.gpus.tolist(), one.gpus.tolist()) == ([2], [1])


@pytest.mark.parametrize(("jobs", "nodes"), [(0, 1), (2, 0)])
def test_nothing_to_decide(jobs: int, nodes: int) -> None:
    problem = replace(crowd(jobs), nodes=Nodes(types=TYPES[:1], type_of=np.zeros(nodes, np.int64)))

    assert (look_ahead(problem, np.random.default_rng(0)).node == -1).all()
