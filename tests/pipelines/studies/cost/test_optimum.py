from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from pipelines.studies.cost.gap import LITTLE_NODE, P100_NODE, drawn, gap_rows, improvement_rows
from pipelines.studies.cost.optimum import optimum
from scheduler_core.errors import BadInput
from scheduler_core.planning.cost.objective import cost
from scheduler_core.planning.cost.problem import Decision, Problem


def least_by_trying_all(problem: Problem) -> float:
    nodes, most = len(problem.nodes.type_of), problem.jobs.run_s.shape[2]
    places = [(-1, 0), *product(range(nodes), range(1, most))]
    least = np.inf
    for chosen in product(places, repeat=len(problem.jobs)):
        node, gpus = (np.array(column) for column in zip(*chosen, strict=True))
        try:
            least = min(least, cost(problem, Decision(node=node, gpus=gpus)).total)
        except BadInput:  # more than a node has, or impossible for the job
            continue
    return least


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_optimum_is_what_trying_every_decision_finds(seed, later):
    rng = np.random.default_rng((seed, later))
    problem = drawn(rng, 3, 2, later, (replace(P100_NODE, gpus=2), LITTLE_NODE))

    found = cost(problem, optimum(problem)).total

    assert found == pytest.approx(least_by_trying_all(problem), rel=1e-9, abs=1e-9)


def test_horizon_is_part_of_what_is_chosen():
    rng = np.random.default_rng(5)
    problems = [drawn(rng, 3, 2, False, (LITTLE_NODE,)) for _ in range(20)]

    horizons = {cost(problem, optimum(problem)).horizon_s for problem in problems}

    assert 3600.0 in horizons
    assert min(horizons) < 3600.0


def test_no_nodes_leave_every_job_waiting():
    problem = drawn(np.random.default_rng(1), 3, 0, True, (LITTLE_NODE,))

    assert optimum(problem).node.tolist() == [-1, -1, -1]


@pytest.mark.slow
def test_few_jobs_are_decided_near_the_optimum():
    rows = {(row["objective"], row["method"]): row for row in gap_rows(instances=12, seed=3)}

    for (_, method), row in rows.items():
        assert row["mean_gap_percent"] >= -1e-6  # nothing is below the optimum
        if method == "relinked":
            assert row["mean_gap_percent"] <= 5.0


@pytest.mark.slow
def test_random_plans_are_cheaper_than_the_greedy():
    rows = improvement_rows(instances=3, seed=3, iterations=4)

    assert len(rows) == 10
    assert all(
        row["interval_low_percent"] > 0.0 for row in rows if row["method"] == "random, improved, relinked, renewed"
    )
