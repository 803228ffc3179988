import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.planning.cost.decision import METHODS, Search, decide, sought
from scheduler_core.planning.cost.greedy import greedy
from scheduler_core.planning.cost.objective import Terms, check, cost
from scheduler_core.planning.cost.problem import POSTPONED, Decision, Nodes, NodeType, Problem, WaitingJobs
from tests.examples import examples

TYPES = (
    NodeType(name="p", gpu_type="P100", gpus=4, idle_w=120.0, gpu_active_w=225.0),
    NodeType(name="v", gpu_type="V100", gpus=3, idle_w=110.0, gpu_active_w=270.0),
)


def drawn(seed: int, jobs: int, nodes: int, /, **changes) -> Problem:
    rng = np.random.default_rng(seed)
    alone_s = np.exp(rng.uniform(5.0, 10.0, jobs))[:, None, None]
    run_s = alone_s / (np.array([1.0, 2.0])[:, None] * np.arange(1, 6) ** rng.uniform(0.5, 0.95, jobs)[:, None, None])
    run_s[rng.random(run_s.shape) < 0.2] = np.nan
    usual = {
        "jobs": WaitingJobs(
            due_s=5000.0 + alone_s[:, 0, 0] * rng.uniform(-1.0, 2.0, jobs),
            weight_usd_per_s=rng.uniform(0.0, 0.001, jobs),
            run_s=run_s,
        ),
        "nodes": Nodes(types=TYPES, type_of=rng.integers(0, 2, nodes)),
        "now_s": 5000.0,
        "usd_per_kwh": 0.2,
    }
    return Problem(**(usual | changes))


def check_possible(problem: Problem, decision: Decision) -> None:
    check(Terms.of(problem), decision)  # refuses what nodes or jobs cannot do
    taken = np.zeros(len(problem.nodes.type_of))
    for node, gpus in zip(decision.node, decision.gpus, strict=True):
        if node != POSTPONED:
            taken[node] += gpus
    assert (taken <= problem.nodes.gpus).all()


@settings(max_examples=examples(150), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    jobs=st.integers(0, 12),
    nodes=st.integers(0, 5),
    price=st.sampled_from([0.2, 0.0, -0.1]),
    later=st.sampled_from([None, 0.1, -0.05]),
    method=st.sampled_from(sorted(METHODS)),
    running=st.booleans(),
)
def test_decisions_can_be_carried_out(seed, jobs, nodes, price, later, method, running):
    problem = drawn(seed, jobs, nodes, usd_per_kwh=price, later_usd_per_kwh=later)
    if running:
        before = decide(problem, np.random.default_rng(seed), 2, "randomised")
        problem = drawn(seed, jobs, nodes, usd_per_kwh=price, later_usd_per_kwh=later, current=before, restart_s=30.0)

    decision = decide(problem, np.random.default_rng(seed), 4, method)

    check_possible(problem, decision)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("later", [None, 0.1])
def test_search_adds_up_what_the_objective_says(seed, later):
    problem = drawn(seed, 15, 4, later_usd_per_kwh=later)

    decision, course = sought(problem, np.random.default_rng(seed), 5, Search())

    assert course[-1] == pytest.approx(cost(problem, decision).total, rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("price", [0.2, -0.1])
def test_first_plan_of_the_search_is_the_readable_greedy(seed, price):
    problem = drawn(seed, 15, 4, usd_per_kwh=price, current=greedy(drawn(seed, 15, 4)), restart_s=60.0)

    how = Search(moving=False, displacing=False, walking=False, renewing=0)
    found, _ = sought(problem, np.random.default_rng(0), 1, how)

    assert found.node.tolist() == greedy(problem).node.tolist()
    assert found.gpus.tolist() == greedy(problem).gpus.tolist()


def test_same_seed_same_decision():
    problem = drawn(3, 30, 6)

    first, second = (decide(problem, np.random.default_rng(9), 6) for _ in range(2))

    assert first.node.tolist() == second.node.tolist()
    assert first.gpus.tolist() == second.gpus.tolist()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("how", [Search(), Search(moving=False, displacing=False), Search(walking=False, elite=2)])
def test_more_iterations_are_never_dearer(seed, how):
    problem = drawn(seed, 30, 5)
    costs = [cost(problem, sought(problem, np.random.default_rng(seed), n, how)[0]).total for n in (1, 2, 5, 12)]

    _, course = sought(problem, np.random.default_rng(seed), 12, how)

    assert (np.diff(course) <= 1e-9 * np.abs(course[:-1])).all()
    assert costs == pytest.approx(course[[0, 1, 4, 11]].tolist(), rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("method", sorted(METHODS))
def test_order_of_jobs_and_of_like_nodes_changes_no_cost(seed, method):
    problem = drawn(seed, 20, 5)
    rng = np.random.default_rng(seed)
    jobs, nodes = rng.permutation(20), rng.permutation(5)
    jobs_turned = WaitingJobs(
        due_s=problem.jobs.due_s[jobs],
        weight_usd_per_s=problem.jobs.weight_usd_per_s[jobs],
        run_s=problem.jobs.run_s[jobs],
    )
    turned = drawn(seed, 20, 5, jobs=jobs_turned, nodes=Nodes(types=TYPES, type_of=problem.nodes.type_of[nodes]))

    usd = [cost(p, decide(p, np.random.default_rng(1), 5, method)).total for p in (problem, turned)]

    assert usd[0] == pytest.approx(usd[1], rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_search_is_never_dearer_than_the_greedy(seed):
    problem = drawn(seed, 25, 4)

    assert cost(problem, decide(problem, np.random.default_rng(0), 3)).total <= cost(problem, greedy(problem)).total


def test_crowded_node_is_shared_rather_than_given_to_one():
    run_s = np.full((4, 2, 5), np.nan)
    run_s[:, 0, 1:] = 8000.0 / np.arange(1, 5)
    jobs = WaitingJobs(due_s=np.full(4, 5100.0), weight_usd_per_s=np.full(4, 0.001), run_s=run_s)
    problem = drawn(0, 4, 1, jobs=jobs, nodes=Nodes(types=TYPES, type_of=np.zeros(1, np.int64)))

    assert sorted(greedy(problem).gpus.tolist()) == [0, 0, 0, 4]
    assert decide(problem, np.random.default_rng(0)).gpus.tolist() == [1, 1, 1, 1]


def test_due_dates_long_past_weigh_as_they_are():
    run_s = np.full((2, 2, 5), np.nan)
    run_s[:, 0, 4] = 1000.0
    jobs = WaitingJobs(due_s=np.array([-9e6, -9e6]), weight_usd_per_s=np.array([0.001, 0.002]), run_s=run_s)
    problem = drawn(0, 2, 1, jobs=jobs, nodes=Nodes(types=TYPES, type_of=np.zeros(1, np.int64)))

    assert decide(problem, np.random.default_rng(0)).node.tolist() == [POSTPONED, 0]


def test_later_price_decides_whether_to_wait():
    run_s = np.full((1, 2, 5), np.nan)
    run_s[:, 0, 4] = 1000.0
    jobs = WaitingJobs(due_s=np.array([1e6]), weight_usd_per_s=np.array([0.001]), run_s=run_s)
    nodes = Nodes(types=TYPES, type_of=np.zeros(1, np.int64))
    dear, cheap = (drawn(0, 1, 1, jobs=jobs, nodes=nodes, usd_per_kwh=now, later_usd_per_kwh=0.2) for now in (0.4, 0.1))

    assert decide(dear, np.random.default_rng(0)).node.tolist() == [POSTPONED]
    assert decide(cheap, np.random.default_rng(0)).node.tolist() == [0]


@pytest.mark.parametrize(
    ("changes", "said"), [({"method": "best"}, "expected one of greedy"), ({"iterations": 0}, "at least 1")]
)
def test_unknown_methods_and_no_iterations_are_refused(changes, said):
    with pytest.raises(BadInput, match=said):
        decide(drawn(0, 3, 2), np.random.default_rng(0), **changes)


@pytest.mark.parametrize("changes", [{"swapping": 1.5}, {"wandering": 1.0}, {"elite": 0}, {"renewing": -1}])
def test_search_outside_its_domain_is_refused(changes):
    with pytest.raises(BadInput):
        Search(**changes)
