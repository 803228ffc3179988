"""Preemption: hand-worked schedules, who is stopped, and work that is kept."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.queueing import QUEUE_POLICIES, Discipline
from tests.pipelines.simulation.engine.simulations import gpu_machines, rows, run, shown, simulated, workload

Job = tuple[float, float, float]
"""When a job comes, the GPUs it requests, and how long it runs."""

# On one machine of four GPUs; jobs are A, B, C, ... Unless said otherwise, predictions are exact.
HAND: dict[str, tuple[list[Job], dict[str, Any], str]] = {
    # B (10) wants 2 of A's 4 GPUs at 3, but A has run 3 s only: at the tick of 5 it stops A, with 35 + 2 to go.
    # C (4) fits beside B. D (6, all GPUs) may stop nobody at 7: B has 6 left. E (100) takes the free GPU at 8.
    # At 15 B ends, and D stops E, which has run 7 of 100. At 21 A goes on until 58, then E for its 93 + 2.
    "srtf": (
        [(0, 4, 40), (3, 2, 10), (6, 1, 4), (7, 4, 6), (8, 1, 100)],
        {"policy": "srtf", "quantum_s": 5.0, "restart_cost_s": 2.0},
        "A 0-5 preempted, B 5-15, C 6-10, E 8-15 preempted, D 15-21, A 21-58, E 58-153",
    ),
    # Keys are GPU-seconds attained. 10: B (0) stops A (40). 20: C (0) stops B (40); A, first of those at 40, does not
    # fit beside C until 23. 30: A has run 7 s only. 40: it stands at 108, so B goes on until it ends at 46; then A.
    "las": (
        [(0, 4, 30), (5, 4, 15), (12, 1, 3), (48, 2, 2), (48, 2, 4)],
        {"policy": "las", "quantum_s": 10.0, "restart_cost_s": 1.0},
        "A 0-10 preempted, B 10-20 preempted, C 20-23, A 23-40 preempted, B 40-46, A 46-51, D 51-53, E 51-55",
    ),
    # A has 20 of 100 left when B (50) comes: sjf looks at the whole run and not at its rest.
    "srtf by the rest": (
        [(0, 4, 100), (80, 4, 50)],
        {"policy": "srtf", "preempt": True, "quantum_s": 10.0},
        "A 0-100, B 100-150",
    ),
    "sjf by the whole": (
        [(0, 4, 100), (80, 4, 50)],
        {"policy": "sjf", "preempt": True, "quantum_s": 10.0, "restart_cost_s": 0.0},
        "A 0-80 preempted, B 80-130, A 130-150",
    ),
    # 10: B (0) stops A (40). 25: C (0) stops B (60). 30: A starts again, and until 38 only restarts. 40: A has attained
    # 48, not 80, so B does not stop it. 50: A has 88, and B stops it. Each then needs 8 s more than its remaining work.
    "a restart is no attained service": (
        [(0, 4, 30), (5, 4, 20), (25, 4, 5)],
        {"policy": "las", "quantum_s": 10.0, "restart_cost_s": 8.0},
        "A 0-10 preempted, B 10-25 preempted, C 25-30, A 30-50 preempted, B 50-63, A 63-79",
    ),
    # A has 90 of 100 s left when B stops it at 10, and 89 when C (85) can stop it at 30: of the 10 s that it has run
    # from 20 on, 9 were the restart. If these counted, A would have 80 left and go on.
    "a restart lowers no remaining work": (
        [(0, 4, 100), (5, 4, 10), (29, 4, 85)],
        {"policy": "srtf", "quantum_s": 10.0, "restart_cost_s": 9.0},
        "A 0-10 preempted, B 10-20, A 20-30 preempted, C 30-115, A 115-213",
    ),
}


def on_four_gpus(*jobs: dict[str, Any], **rules: Any) -> str:
    """Return the schedule of jobs on one machine of four GPUs under a discipline of these rules."""
    return shown(run(workload(*jobs), gpu_machines(4), Discipline(**rules)))


@pytest.mark.parametrize(("jobs", "rules", "expected"), HAND.values(), ids=HAND.keys())
def test_schedules_are_as_worked_by_hand(jobs: list[Job], rules: dict[str, Any], expected: str) -> None:
    assert on_four_gpus(*({"at": at, "gpus": gpus, "run": run_s} for at, gpus, run_s in jobs), **rules) == expected


def test_a_restart_that_is_preempted_is_paid_once() -> None:
    """With a horizon a restart (15 s) may cost more than the quantum (10 s): A is stopped 5 s before it is done."""
    jobs = workload({"gpus": 4, "run": 50.0}, {"at": 5.0, "gpus": 4, "run": 10.0}, {"at": 25.0, "gpus": 4, "run": 10.0})
    rules = Discipline(policy="srtf", quantum_s=10.0, restart_cost_s=15.0)

    schedule = run(jobs, gpu_machines(4), rules, horizon_s=1000.0)

    assert shown(schedule) == "A 0-10 preempted, B 10-20, A 20-30 preempted, C 30-40, A 40-95"


def test_a_killed_job_that_was_stopped_before_pays_and_loses_as_it_should() -> None:
    # Shrunk, A dies after 60 s of running: 20 before it is stopped by B, 2 for the checkpoint, 40 after; then in full.
    assert (
        on_four_gpus(
            {"gpus": 4, "run": 100.0, "granted": (0, 0, 2), "granted_run": 60.0, "dies": True},
            {"at": 20.0, "gpus": 4, "run": 10.0},
            policy="srtf",
            quantum_s=10.0,
            restart_cost_s=2.0,
        )
        == "A 0-20 preempted, B 20-30, A 30-72 killed, A 72-172"
    )


def test_a_gang_stops_whole() -> None:
    jobs = workload({"gpus": 2, "instances": 4, "run": 100.0}, {"at": 50.0, "gpus": 1, "run": 1.0})

    schedule = run(jobs, gpu_machines(4, 4), Discipline(policy="srtf", quantum_s=10.0))

    assert shown(schedule) == "A 0-50 preempted, B 50-51, A 51-101"


@pytest.mark.parametrize("policy", sorted(QUEUE_POLICIES))
def test_preemption_is_as_the_policy_declares_unless_asked(policy: str) -> None:
    assert Discipline(policy=policy).preempts() == (policy in ("srtf", "las"))
    assert not Discipline(policy=policy, preempt=False).preempts()
    assert policy == "drf" or Discipline(policy=policy, preempt=True).preempts()


@given(
    drawn=rows(),
    policy=st.sampled_from(["srtf", "las", "sjf", "priority"]),
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
