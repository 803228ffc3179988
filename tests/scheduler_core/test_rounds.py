"""The library object a real scheduler drives: submit, release, round; scaling, passing over, and what is refused."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.errors import BadInput, SchedulerError
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queue_policies import QUEUE_POLICIES, QueuePolicy
from scheduler_core.queueing import Discipline
from scheduler_core.rounds import RoundResult, Scheduler
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import Job, Reason, Recommendation, Request
from tests.examples import examples
from tests.scheduler_core.cases import REQUESTS, WIDE, ToyPredictor, job, machines, request

HALVING = ShrinkPolicy(alpha0=0.5)


def scheduler(policy: str | QueuePolicy = "fifo", count: int = 1, scale: Any = None, **fields: Any) -> Scheduler:
    return Scheduler(machines(count=count), Discipline(policy=policy, **fields), scale=scale)


def submit_all(one: Scheduler, jobs: Sequence[Job], now_s: float = 0.0) -> RoundResult:
    for each in jobs:
        one.submit(each, now_s)
    return one.round(now_s)


def started(result: RoundResult) -> list[int]:
    return [run.waiting.serial for run in result.started]


def queued(one: Scheduler) -> list[int]:
    return [serial for _, serial, _ in one.queue.ranked(0.0)]


def gpu_jobs(*gpus: float, **fields: Any) -> list[Job]:
    return [job(str(at), request(1, 1, each), **fields) for at, each in enumerate(gpus)]


def test_blocked_jobs_are_passed_over() -> None:
    one = scheduler()

    assert started(submit_all(one, gpu_jobs(3, 2, 1, 1))) == [0, 2]
    assert queued(one) == [1, 3]


@pytest.mark.parametrize(("overtakes", "expected"), [(None, [1, 2, 3]), (0, []), (1, [1]), (2, [1, 2])])
def test_the_head_is_passed_within_its_bound(overtakes: int | None, expected: list[int]) -> None:
    one = scheduler(overtakes=overtakes)
    submit_all(one, gpu_jobs(1))

    assert started(submit_all(one, gpu_jobs(4, 1, 1, 1))) == [serial + 1 for serial in expected]
    assert (one.head, one.overtaken) == (1, len(expected))


def test_the_bound_counts_over_rounds_and_begins_anew_with_a_new_head() -> None:
    one = scheduler(overtakes=1)
    submit_all(one, gpu_jobs(2))
    assert started(submit_all(one, gpu_jobs(4, 1))) == [2]
    assert started(submit_all(one, gpu_jobs(1))) == []
    assert (one.head, one.overtaken) == (1, 1)

    for ended in (0, 2):
        one.release(ended)
    assert started(one.round(9.0)) == [1]
    # 3 was passed over by nobody yet: it is no head, it did not fit behind one that was.
    assert (one.head, one.overtaken) == (3, 0)


def test_a_release_lets_the_queue_in_by_order() -> None:
    one = scheduler()
    submit_all(one, gpu_jobs(4, 3, 1))

    assert started(one.round(1.0)) == []
    one.release(0)
    assert started(one.round(2.0)) == [1, 2]
    assert queued(one) == []


def test_a_gang_beyond_the_whole_cluster_is_reported_apart_even_if_its_target_would_fit() -> None:
    one = scheduler(scale=partial(shrink, predictor=ToyPredictor(known=WIDE), policy=HALVING))

    result = submit_all(one, [job("huge", request(1, 1, 1), instances=5), job("whole", request(1, 1, 1), instances=4)])

    assert [waiting.serial for waiting in result.never_fits] == [0]
    assert started(result) == [1]
    assert queued(one) == []


def test_new_jobs_of_a_round_are_scaled_in_one_call_and_once() -> None:
    predictor = ToyPredictor(known=WIDE)
    one = scheduler(scale=partial(shrink, predictor=predictor, policy=HALVING))

    submit_all(one, [job(str(i), request(4, 8, 4)) for i in range(5)])
    one.round(1.0)

    assert predictor.calls == 1
    assert [waiting.demand.units[2] for waiting in one.queue] == [2000, 2000, 2000]
    assert [run.waiting.advice.target.gpus for run in one.occupancy.running.values() if run.waiting.advice] == [
        2.0,
        2.0,
    ]


def test_a_killed_job_comes_back_with_its_full_request_at_its_old_place() -> None:
    one = scheduler(scale=partial(shrink, predictor=ToyPredictor(known=WIDE), policy=HALVING))
    submit_all(one, [job("a", request(8, 8, 4))])
    one.submit(job("b", request(8, 8, 4)), 5.0)
    one.submit(job("c", request(8, 8, 4)), 6.0)
    assert started(one.round(6.0)) == [1]

    one.release(0, killed=True)
    one.release(1)

    again = one.round(7.0)
    assert started(again) == [0]
    assert again.started[0].waiting.full
    assert again.started[0].allocation.demand.units == (8000, 8 * 1024, 4000)
    assert again.started[0].waiting.arrived_s == 0.0


def test_drf_ranks_anew_after_every_start() -> None:
    one = scheduler("drf")
    wanted = [job(str(at), request(1, 1, 1), user=user) for at, user in enumerate(["a", "a", "a", "b", "b"])]

    # a takes 1/4; b takes 1/4; the tie goes to the earlier job, a's; then b's.
    assert started(submit_all(one, wanted)) == [0, 3, 1, 4]


def test_srtf_serves_the_shortest_predicted() -> None:
    predictor = ToyPredictor(run_time=lambda r: 1000.0 / r[:, 0], runs=0)
    one = scheduler("srtf", scale=partial(shrink, predictor=predictor, policy=HALVING))

    assert started(submit_all(one, [job("long", request(1, 1, 3)), job("short", request(4, 1, 3))])) == [1]


def test_a_policy_of_ones_own_orders() -> None:
    last_in_first_out = QueuePolicy(key=lambda job, state, now_s: -job.serial)

    assert started(submit_all(scheduler(last_in_first_out), gpu_jobs(4, 4, 4))) == [2]


def test_a_key_that_does_not_order_is_refused() -> None:
    one = scheduler(QueuePolicy(key=lambda job, state, now_s: float("nan")))

    with pytest.raises(BadInput, match="the key NaN"):
        submit_all(one, gpu_jobs(1))


@pytest.mark.parametrize(
    "odd",
    [{"instances": 0}, {"instances": -2}, {"wants": Request(cpu_cores=None, mem_gib=1.0, gpus=1.0)}],  # type: ignore[arg-type]  # what callers do
)
def test_a_job_that_cannot_be_meant_is_refused_and_leaves_no_trace(odd: dict[str, Any]) -> None:
    one = scheduler()

    with pytest.raises(BadInput):
        one.submit(job("odd", **odd), 0.0)

    assert one.submit(job("a"), 0.0) == 0
    assert started(one.round(0.0)) == [0]


def test_a_machine_that_is_not_there_cannot_go_down() -> None:
    one = scheduler(count=2)
    submit_all(one, gpu_jobs(4, 4))

    for machine in (99, -1):
        with pytest.raises(BadInput, match="expected an index of 0 to 1"):
            one.down(machine)
    assert len(one.occupancy.running) == 2


def test_releasing_what_does_not_run_is_refused() -> None:
    with pytest.raises(SchedulerError, match="found no running job 7"):
        scheduler().release(7)


def answering(change: Any) -> Any:
    return lambda jobs: [change(answer) for answer in shrink(jobs, ToyPredictor(known=WIDE))]


def raising(jobs: Sequence[Job]) -> list[Recommendation]:
    raise TimeoutError("slow drip")


def target(answer: Recommendation, **fields: float) -> Recommendation:
    return replace(answer, target=replace(answer.target, **fields))


@pytest.mark.parametrize(
    ("scale", "note"),
    [
        (raising, "TimeoutError: slow drip"),
        (lambda jobs: None, "TypeError"),
        (lambda jobs: [], "0 recommendations for 2 jobs"),
        (answering(lambda answer: None), "found a NoneType"),
        (lambda jobs: answering(lambda answer: answer)(jobs[::-1]), "the recommendation of"),
        (answering(lambda answer: target(answer, gpus=float("nan"))), "found the target"),
        (answering(lambda answer: target(answer, gpus=-1.0)), "found the target"),
        (answering(lambda answer: target(answer, gpus=9.0)), "found the target"),
        (answering(lambda answer: replace(answer, run_time_p50_s=-1.0)), "a run time of -1.0 s"),
        (answering(lambda answer: replace(answer, run_time_p50_s=float("inf"))), "a run time of inf s"),
    ],
)
def test_whatever_a_scale_does_no_job_is_lost(scale: Any, note: str) -> None:
    one = scheduler(scale=scale)

    result = submit_all(one, gpu_jobs(2, 2))

    assert started(result) == [0, 1]
    for run in result.started:
        assert run.allocation.demand.units == (1000, 1024, 2000), "the request stands"
        assert run.waiting.advice is not None
        assert set(run.waiting.advice.reasons.values()) == {Reason.PREDICTOR_UNAVAILABLE}
        assert note in run.waiting.advice.note


def test_one_answer_that_is_nonsense_costs_only_its_own_job() -> None:
    def half(jobs: Sequence[Job]) -> list[Recommendation]:
        first, second = shrink(jobs, ToyPredictor(known=WIDE), HALVING)
        return [target(first, gpus=-1.0), second]

    result = submit_all(scheduler(scale=half), gpu_jobs(2, 2))

    assert [run.allocation.demand.units[2] for run in result.started] == [2000, 1000]


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
@pytest.mark.parametrize("policy", sorted(QUEUE_POLICIES))
@settings(max_examples=examples(15))
@given(wanted=st.lists(st.tuples(REQUESTS, st.integers(1, 5)), min_size=1, max_size=12))
def test_no_job_that_fits_is_left_waiting(policy: str, placement: str, wanted: list[tuple[Request, int]]) -> None:
    one = Scheduler(
        machines(count=3, cpu_cores=64.0, mem_gib=256.0, gpus=8), Discipline(policy=policy, placement=placement)
    )

    result = submit_all(one, [job(str(at), wants, instances=n) for at, (wants, n) in enumerate(wanted)])

    assert not any(one.occupancy.room.fits(waiting.demand) for waiting in one.queue)
    assert len(result.started) + len(result.never_fits) + len(one.queue) == len(wanted)
    for run in result.started:
        one.release(run.waiting.serial)
    assert np.array_equal(one.occupancy.cluster.free, one.occupancy.cluster.capacity)
