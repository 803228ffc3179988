"""Preemption: hand-worked schedules, who is stopped, and work that is kept."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.queue_policies import QUEUE_POLICIES
from scheduler_core.queueing import Discipline
from tests.pipelines.simulation.engine.simulations import gpu_machines, rows, run, simulated, workload


def on_four_gpus(*jobs: dict[str, Any], **rules: Any) -> list[tuple[int, float, float, str]]:
    """Return the schedule of jobs on one machine of four GPUs under a discipline of these rules."""
    return simulated(run(workload(*jobs), gpu_machines(4), Discipline(**rules)))


def test_srtf_as_worked_by_hand() -> None:
    """On 4 GPUs, with a quantum of 5 s and checkpoints of 2 s; predictions are exact.

    B (10) wants 2 of A's 4 GPUs at 3, but A has run 3 s only: at the tick of 5 it stops A, with 35 + 2 to go.
    C (4) fits beside B. D (6, all GPUs) may stop nobody at 7: B has 6 left. E (100) takes the free GPU at 8.
    At 15 B ends, and D stops E, which has run 7 of 100. At 21 A goes on until 58, then E for its 93 + 2.
    """
    schedule = on_four_gpus(
        {"at": 0.0, "gpus": 4, "run": 40.0},
        {"at": 3.0, "gpus": 2, "run": 10.0},
        {"at": 6.0, "gpus": 1, "run": 4.0},
        {"at": 7.0, "gpus": 4, "run": 6.0},
        {"at": 8.0, "gpus": 1, "run": 100.0},
        policy="srtf",
        quantum_s=5.0,
        restart_cost_s=2.0,
    )

    assert schedule == [
        (0, 0.0, 5.0, "preempted"),
        (1, 5.0, 15.0, "completed"),
        (2, 6.0, 10.0, "completed"),
        (4, 8.0, 15.0, "preempted"),
        (3, 15.0, 21.0, "completed"),
        (0, 21.0, 58.0, "completed"),
        (4, 58.0, 153.0, "completed"),
    ]


def test_las_as_worked_by_hand() -> None:
    """On 4 GPUs, with a quantum of 10 s and checkpoints of 1 s; keys are GPU-seconds attained.

    10: B (0) stops A (40). 20: C (0) stops B (40); A, first of those at 40, does not fit beside C until 23.
    30: A has run 7 s only. 40: it stands at 108, so B goes on until its end at 46, and A after it.
    """
    schedule = on_four_gpus(
        {"at": 0.0, "gpus": 4, "run": 30.0},
        {"at": 5.0, "gpus": 4, "run": 15.0},
        {"at": 12.0, "gpus": 1, "run": 3.0},
        {"at": 48.0, "gpus": 2, "run": 2.0},
        {"at": 48.0, "gpus": 2, "run": 4.0},
        policy="las",
        quantum_s=10.0,
        restart_cost_s=1.0,
    )

    assert schedule == [
        (0, 0.0, 10.0, "preempted"),
        (1, 10.0, 20.0, "preempted"),
        (2, 20.0, 23.0, "completed"),
        (0, 23.0, 40.0, "preempted"),
        (1, 40.0, 46.0, "completed"),
        (0, 46.0, 51.0, "completed"),
        (3, 51.0, 53.0, "completed"),
        (4, 51.0, 55.0, "completed"),
    ]


@pytest.mark.parametrize(("policy", "stopped"), [("srtf", False), ("sjf", True)])
def test_sjf_with_preemption_looks_at_the_whole_run_and_not_at_its_rest(policy: str, stopped: bool) -> None:
    # A has 20 of 100 left when B (50) comes.
    jobs = workload({"gpus": 4, "run": 100.0}, {"at": 80.0, "gpus": 4, "run": 50.0})

    schedule = run(jobs, gpu_machines(4), Discipline(policy=policy, preempt=True, quantum_s=10.0))

    assert (simulated(schedule)[0] == (0, 0.0, 80.0, "preempted")) == stopped


def test_the_time_of_a_restart_is_no_attained_service() -> None:
    """On 4 GPUs, with a quantum of 10 s and restarts of 8 s; keys are GPU-seconds attained.

    10: B (0) stops A (40). 25: C (0) stops B (60). 30: A starts again, and until 38 only restarts. 40: A has attained
    48, not 80, so B does not stop it. 50: A has 88, and B stops it. Each then needs 8 s more than its remaining work.
    """
    schedule = on_four_gpus(
        {"at": 0.0, "gpus": 4, "run": 30.0},
        {"at": 5.0, "gpus": 4, "run": 20.0},
        {"at": 25.0, "gpus": 4, "run": 5.0},
        policy="las",
        quantum_s=10.0,
        restart_cost_s=8.0,
    )

    assert schedule == [
        (0, 0.0, 10.0, "preempted"),
        (1, 10.0, 25.0, "preempted"),
        (2, 25.0, 30.0, "completed"),
        (0, 30.0, 50.0, "preempted"),
        (1, 50.0, 63.0, "completed"),
        (0, 63.0, 79.0, "completed"),
    ]


def test_the_time_of_a_restart_lowers_no_remaining_work() -> None:
    """On 4 GPUs, restarts of 9 s: A has 90 of 100 s left when B stops it at 10, and 89 when C (85) can stop it at 30.

    A has run from 20 to 30, of which 9 were the restart. If these counted, A would have 80 left and go on.
    """
    schedule = on_four_gpus(
        {"at": 0.0, "gpus": 4, "run": 100.0},
        {"at": 5.0, "gpus": 4, "run": 10.0},
        {"at": 29.0, "gpus": 4, "run": 85.0},
        policy="srtf",
        quantum_s=10.0,
        restart_cost_s=9.0,
    )

    assert schedule == [
        (0, 0.0, 10.0, "preempted"),
        (1, 10.0, 20.0, "completed"),
        (0, 20.0, 30.0, "preempted"),
        (2, 30.0, 115.0, "completed"),
        (0, 115.0, 213.0, "completed"),
    ]


def test_a_restart_that_is_preempted_is_paid_once() -> None:
    """With a horizon a restart (15 s) may cost more than the quantum (10 s): A is stopped 5 s before it is done."""
    jobs = workload({"gpus": 4, "run": 50.0}, {"at": 5.0, "gpus": 4, "run": 10.0}, {"at": 25.0, "gpus": 4, "run": 10.0})

    rules = Discipline(policy="srtf", quantum_s=10.0, restart_cost_s=15.0)
    schedule = run(jobs, gpu_machines(4), rules, horizon_s=1000.0)

    assert simulated(schedule) == [
        (0, 0.0, 10.0, "preempted"),
        (1, 10.0, 20.0, "completed"),
        (0, 20.0, 30.0, "preempted"),
        (2, 30.0, 40.0, "completed"),
        (0, 40.0, 95.0, "completed"),
    ]


def test_gittins_spares_a_running_job_whose_restart_costs_more_than_is_gained() -> None:
    """A has 50 of 60 s left at 10. B (45) is preferred if a restart is free, but not if it costs 6 s."""
    jobs = workload({"gpus": 4, "run": 60.0, "p90": 60.0}, {"at": 5.0, "gpus": 4, "run": 45.0, "p90": 45.0})

    rules = {cost_s: Discipline(policy="gittins", quantum_s=10.0, restart_cost_s=cost_s) for cost_s in (0.0, 6.0)}
    first = {cost_s: simulated(run(jobs, gpu_machines(4), rule))[0] for cost_s, rule in rules.items()}

    assert first == {0.0: (0, 0.0, 10.0, "preempted"), 6.0: (0, 0.0, 60.0, "completed")}


def test_gittins_with_wide_predictions_prefers_those_that_have_run_least() -> None:
    """Both jobs have a p50 of 100 s. A has run 400 s when B comes: by the median A is over, by the index it lasts."""
    jobs = workload(
        {"gpus": 4, "run": 900.0, "predicted": 100.0, "p90": 3000.0},
        {"at": 400.0, "gpus": 4, "run": 50.0, "predicted": 100.0, "p90": 3000.0},
    )

    ends = {
        policy: run(jobs, gpu_machines(4), Discipline(policy=policy, quantum_s=10.0)).finished_s.tolist()
        for policy in ("srtf", "gittins")
    }

    assert ends == {"srtf": [900.0, 950.0], "gittins": [950.0, 450.0]}


def test_mlfq_as_worked_by_hand() -> None:
    """On 4 GPUs with a quantum of 600 s; the first level ends at 3600 s, the second at 14 400 s.

    B is predicted 5000 s and so begins at the second level: it does not stop A, which is at the first until 3600. Then
    both are at the second and A goes on. C, predicted 60 s, stops it. A arrived before B and goes on after C.
    """
    schedule = on_four_gpus(
        {"at": 0.0, "gpus": 4, "run": 6000.0, "predicted": 100.0},
        {"at": 10.0, "gpus": 4, "run": 500.0, "predicted": 5000.0},
        {"at": 3700.0, "gpus": 4, "run": 300.0, "predicted": 60.0},
        policy="mlfq",
        quantum_s=600.0,
    )

    assert schedule == [
        (0, 0.0, 3700.0, "preempted"),
        (2, 3700.0, 4000.0, "completed"),
        (0, 4000.0, 6300.0, "completed"),
        (1, 6300.0, 6800.0, "completed"),
    ]


def test_a_killed_job_that_was_stopped_before_pays_and_loses_as_it_should() -> None:
    # Shrunk, A dies after 60 s of running: 20 before it is stopped by B, 2 for the checkpoint, 40 after; then in full.
    schedule = on_four_gpus(
        {"gpus": 4, "run": 100.0, "granted": (0, 0, 2), "granted_run": 60.0, "dies": True},
        {"at": 20.0, "gpus": 4, "run": 10.0},
        policy="srtf",
        quantum_s=10.0,
        restart_cost_s=2.0,
    )

    assert schedule == [
        (0, 0.0, 20.0, "preempted"),
        (1, 20.0, 30.0, "completed"),
        (0, 30.0, 72.0, "killed"),
        (0, 72.0, 172.0, "completed"),
    ]


def test_a_gang_stops_whole() -> None:
    jobs = workload({"gpus": 2, "instances": 4, "run": 100.0}, {"at": 50.0, "gpus": 1, "run": 1.0})

    schedule = run(jobs, gpu_machines(4, 4), Discipline(policy="srtf", quantum_s=10.0))

    assert simulated(schedule) == [(0, 0, 50, "preempted"), (1, 50, 51, "completed"), (0, 51, 101, "completed")]


@pytest.mark.parametrize("policy", sorted(QUEUE_POLICIES))
def test_preemption_is_as_the_policy_declares_unless_asked(policy: str) -> None:
    assert Discipline(policy=policy).preempts() == (policy in ("srtf", "las", "las_time", "mlfq", "gittins"))
    assert not Discipline(policy=policy, preempt=False).preempts()
    assert policy == "drf" or Discipline(policy=policy, preempt=True).preempts()


@given(
    drawn=rows(),
    policy=st.sampled_from(["srtf", "las", "las_time", "mlfq", "gittins", "sjf", "priority"]),
    restart_cost_s=st.sampled_from([0.0, 1.0, 4.0]),
    quantum_s=st.sampled_from([5.0, 20.0]),
)
def test_preemption_keeps_work_and_adds_a_checkpoint_for_each_stop(
    drawn: list[dict[str, Any]], policy: str, restart_cost_s: float, quantum_s: float
) -> None:
    rules = Discipline(policy=policy, preempt=True, restart_cost_s=restart_cost_s, quantum_s=quantum_s)
    schedule = run(workload(*drawn), gpu_machines(4, 4, cpu_cores=20), rules)

    for serial, row in enumerate(drawn):
        own = [one for one in simulated(schedule) if one[0] == serial]
        stops = sum(one[3] == "preempted" for one in own)
        again_s = row["run"] if row.get("dies", False) else 0.0
        whole_s = row.get("granted_run", row["run"]) + again_s
        ran_s = sum(end_s - start_s for _, start_s, end_s, _ in own)
        assert own == [] or ran_s == pytest.approx(whole_s + stops * restart_cost_s)
        assert all(end_s - start_s >= quantum_s for _, start_s, end_s, how in own if how == "preempted")


@given(drawn=rows())
def test_srtf_without_cost_never_responds_slower_on_average_on_one_server(drawn: list[dict[str, Any]]) -> None:
    """Shortest remaining time is optimal on one server (Schrage 1968): no policy beats its sum of ends.

    Everything happens at whole seconds, so a quantum of one lets every arrival stop whoever runs.
    """
    one_server = [{"at": row["at"], "gpus": 1, "run": row["run"]} for row in drawn]
    ends = {
        policy: run(workload(*one_server), gpu_machines(1), Discipline(policy=policy, quantum_s=1.0)).finished_s.sum()
        for policy in ("srtf", "sjf", "fifo")
    }

    assert ends["srtf"] <= min(ends["sjf"], ends["fifo"])
