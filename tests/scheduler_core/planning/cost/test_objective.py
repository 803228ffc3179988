import numpy as np
import pytest

from scheduler_core.errors import BadInput
from scheduler_core.planning.cost.objective import cost
from scheduler_core.planning.cost.problem import Decision, Nodes, NodeType, Problem, WaitingJobs

SMALL = NodeType(name="small", gpu_type="P100", gpus=2, idle_w=100.0, gpu_active_w=200.0)
LARGE = NodeType(name="large", gpu_type="V100", gpus=4, idle_w=400.0, gpu_active_w=300.0)
NAN = np.nan
RUN_S = np.array(
    [
        [[NAN, 1000.0, 600.0, NAN, NAN], [NAN, 500.0, 300.0, NAN, 200.0]],
        [[NAN, 4000.0, NAN, NAN, NAN], [NAN, 2000.0, 1200.0, NAN, NAN]],
    ]
)


def problem(**changes) -> Problem:
    jobs = WaitingJobs(due_s=np.array([10_400.0, 11_000.0]), weight_usd_per_s=np.array([0.01, 0.02]), run_s=RUN_S)
    given = {
        "jobs": jobs,
        "nodes": Nodes(types=(SMALL, LARGE), type_of=np.array([0, 1, 1])),
        "now_s": 10_000.0,
        "usd_per_kwh": 0.36,
        "pue": 1.5,
        "period_s": 400.0,
        "rho": 10.0,
    }
    return Problem(**(given | changes))


def decided(*pairs: tuple[int, int]) -> Decision:
    node, gpus = zip(*pairs, strict=True)
    return Decision(node=np.array(node), gpus=np.array(gpus))


def test_cost_of_two_jobs_on_one_node_by_hand():
    parts = cost(problem(), decided((1, 1), (1, 2)))

    assert parts.horizon_s == 400.0  # the period: the first completion is at 500 s
    assert parts.tardiness_usd == pytest.approx(0.01 * 100 + 0.02 * 200)
    assert parts.energy_usd == pytest.approx((400 + 3 * 300) * 400 / 3.6e6 * 0.36 * 1.5)
    assert (parts.postponed_usd, parts.rest_usd) == (0.0, 0.0)
    assert parts.total == pytest.approx(parts.tardiness_usd + parts.energy_usd)


def test_first_completion_ends_what_is_counted():
    parts = cost(problem(), decided((1, 2), (2, 1)))

    assert parts.horizon_s == 300.0
    assert parts.energy_usd == pytest.approx((400 + 600 + 400 + 300) * 300 / 3.6e6 * 0.54)


def test_postponed_job_pays_for_its_slowest_run_begun_a_period_late():
    parts = cost(problem(), decided((1, 2), (-1, 0)))

    assert parts.postponed_usd == pytest.approx(10 * 0.02 * (400 + 4000 - 1000))


def test_nothing_to_run_switches_everything_off():
    assert cost(problem(), decided((-1, 0), (-1, 0))).energy_usd == 0.0


def test_later_price_charges_the_rest_of_each_run_and_the_least_of_postponed_ones():
    parts = cost(problem(later_usd_per_kwh=0.72), decided((0, 2), (-1, 0)))

    later = 0.72 * 1.5 / 3.6e6
    least = min(4000 * (200 + 50), 2000 * (300 + 100), 1200 * 2 * (300 + 100)) * later
    assert parts.rest_usd == pytest.approx(2 * 200 * (200 + 50) * later + least)


@pytest.mark.parametrize(("place", "run_s"), [((1, 1), 500.0), ((1, 2), 330.0), ((2, 1), 530.0), ((0, 2), 630.0)])
def test_restart_is_due_wherever_a_running_job_does_not_stay(place, run_s):
    running = decided((1, 1), (-1, 0))

    parts = cost(problem(current=running, restart_s=30.0, period_s=9999.0), decided(place, (-1, 0)))

    assert parts.horizon_s == run_s


def test_negative_price_earns():
    assert cost(problem(usd_per_kwh=-0.1), decided((1, 1), (1, 2))).energy_usd < 0.0


def test_job_that_no_node_can_run_costs_nothing():
    jobs = WaitingJobs(due_s=np.zeros(1), weight_usd_per_s=np.ones(1), run_s=np.full((1, 2, 5), np.nan))

    assert cost(problem(jobs=jobs, later_usd_per_kwh=1.0), decided((-1, 0))).total == 0.0


def test_no_jobs_and_no_nodes():
    jobs = WaitingJobs(due_s=np.zeros(0), weight_usd_per_s=np.zeros(0), run_s=np.zeros((0, 2, 5)))
    none = Nodes(types=(SMALL, LARGE), type_of=np.zeros(0, np.int64))

    assert cost(problem(jobs=jobs), Decision.nothing(0)).total == 0.0
    assert cost(problem(nodes=none), Decision.nothing(2)).postponed_usd == 0.0  # nothing can run at all


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (decided((1, 4), (1, 1)), "5 GPUs taken on node 1"),
        (decided((0, 1), (0, 2)), "cannot run with"),
        (decided((3, 1), (-1, 0)), "nodes up to 3"),
        (decided((-1, 1), (-1, 0)), "postponed job with GPUs"),
        (decided((1, 5), (-1, 0)), "5 GPUs for a job"),
        (decided((-1, 0)), "found 1 jobs"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(decision, said):
    with pytest.raises(BadInput, match=said):
        cost(problem(), decision)


@pytest.mark.parametrize(
    "changes",
    [{"period_s": 0.0}, {"usd_per_kwh": np.nan}, {"pue": 0.5}, {"restart_s": -1.0}, {"current": Decision.nothing(3)}],
)
def test_problem_outside_its_domain_is_refused(changes):
    with pytest.raises(BadInput):
        problem(**changes)
