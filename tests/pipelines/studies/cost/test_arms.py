"""The first-principle methods: whom they serve first, on what, and whom they leave alone."""

import numpy as np
import pytest

from pipelines.studies.cost.simulation import BASELINES, Asked, Baseline
from scheduler_core.planning.cost import Decision, Nodes, NodeType, Problem, WaitingJobs

SLOW = NodeType(name="slow", gpu_type="p100", gpus=2, idle_w=100.0, gpu_active_w=200.0)
FAST = NodeType(name="fast", gpu_type="v100", gpus=4, idle_w=150.0, gpu_active_w=270.0)
RNG = np.random.default_rng(0)


def problem(jobs: int, current: Decision | None = None, type_of: tuple[int, ...] = (1,)) -> Problem:
    """Return jobs that run 1200 s / GPUs on slow nodes and half of that on fast ones, at most on four GPUs."""
    counts = np.arange(5.0)
    run_s = np.full((jobs, 2, 5), np.nan)
    run_s[:, 0, 1:3] = 1200.0 / counts[1:3]
    run_s[:, 1, 1:] = 600.0 / counts[1:]
    return Problem(
        jobs=WaitingJobs(
            due_s=np.array([900.0, 300.0, 600.0])[:jobs],
            weight_usd_per_s=np.array([0.2, 0.1, 0.3])[:jobs],
            run_s=run_s,
        ),
        nodes=Nodes(types=(SLOW, FAST), type_of=np.array(type_of)),
        now_s=0.0,
        usd_per_kwh=0.1,
        current=current,
    )


def asked(*gpus: int) -> Asked:
    return Asked(submitted_s=np.array([1.0, 2.0, 3.0])[: len(gpus)], gpus=np.array(gpus))


@pytest.mark.parametrize(("order", "first"), [("fifo", 0), ("edf", 1), ("priority", 2)])
def test_the_first_in_the_order_gets_the_only_room(order: str, first: int) -> None:
    decision = BASELINES[f"{order}, fixed"](problem(3), asked(3, 3, 3), RNG)

    assert np.flatnonzero(decision.node >= 0).tolist() == [first]
    assert decision.gpus[first] == 3


def test_a_job_without_room_is_passed_over() -> None:
    decision = BASELINES["fifo, fixed"](problem(3), asked(3, 3, 1), RNG)

    assert decision.gpus.tolist() == [3, 0, 1]


def test_fixed_takes_the_faster_node_type_while_there_is_room() -> None:
    decision = BASELINES["fifo, fixed"](problem(3, type_of=(0, 1)), asked(2, 2, 2), RNG)

    assert decision.node.tolist() == [1, 1, 0]


def test_fastest_takes_the_fastest_configuration_there_is_room_for() -> None:
    # 150 s on four fast GPUs, then 600 s on two slow ones, then nothing is free
    decision = BASELINES["fifo, fastest"](problem(3, type_of=(0, 1)), asked(1, 1, 1), RNG)

    assert decision.node.tolist() == [1, 0, -1]
    assert decision.gpus.tolist() == [4, 2, 0]


def test_the_fullest_node_with_room_is_taken() -> None:
    current = Decision(node=np.array([1, -1]), gpus=np.array([1, 0]))

    decision = BASELINES["fifo, fixed"](problem(2, current, type_of=(1, 1, 1)), asked(1, 2), RNG)

    assert decision.node.tolist() == [1, 1]


def test_running_jobs_stay_unless_the_method_preempts() -> None:
    current = Decision(node=np.array([0, -1, -1]), gpus=np.array([4, 0, 0]))
    waits = problem(3, current)

    stays = Baseline(order="edf", configuration="fixed")(waits, asked(4, 4, 4), RNG)
    moves = Baseline(order="edf", configuration="fixed", preemptive=True)(waits, asked(4, 4, 4), RNG)

    assert stays.gpus.tolist() == [4, 0, 0]
    assert moves.gpus.tolist() == [0, 4, 0]


def test_a_job_no_node_can_run_as_asked_is_left_out() -> None:
    decision = BASELINES["fifo, fixed"](problem(2, type_of=(0,)), asked(4, 1), RNG)

    assert decision.node.tolist() == [-1, 0]
