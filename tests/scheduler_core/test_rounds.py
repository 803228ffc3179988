"""One scheduling round: scaling, passing over, never_fits, and rounds that follow a release."""

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given, settings

from scheduler_core.arrivals import Arrival
from scheduler_core.cluster import Cluster
from scheduler_core.errors import SchedulerError
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queueing import QUEUE_POLICIES
from scheduler_core.rounds import RoundResult, Scheduler
from scheduler_core.shrink import shrink
from scheduler_core.types import Job
from tests.scheduler_core.cases import WIDE, ToyPredictor, job, machines, request, workloads


def scheduler(policy: str = "fifo", count: int = 1, **fields: object) -> Scheduler:
    cluster = Cluster(machines(count=count))
    return Scheduler(cluster=cluster, policy=QUEUE_POLICIES[policy], placement=PLACEMENTS["best_fit"], **fields)  # type: ignore[arg-type]


def submit_all(one: Scheduler, jobs: Sequence[Job], now_s: float = 0.0) -> RoundResult:
    for serial, each in enumerate(jobs):
        one.submit(serial, each, now_s)
    return one.round(now_s)


def started(result: RoundResult) -> list[str]:
    return [placed.waiting.job.job_id for placed in result.placed]


def test_blocked_jobs_are_passed_over() -> None:
    jobs = [
        job("a", request(1, 1, 3)),
        job("b", request(1, 1, 2)),
        job("c", request(1, 1, 1)),
        job("d", request(1, 1, 1)),
    ]
    one = scheduler()

    assert started(submit_all(one, jobs)) == ["a", "c"]
    assert [waiting.job.job_id for waiting in one.waiting()] == ["b", "d"]


def test_a_release_lets_the_queue_in_by_order() -> None:
    one = scheduler()
    first = submit_all(one, [job("a", request(1, 1, 4)), job("b", request(1, 1, 3)), job("c", request(1, 1, 1))])

    assert started(one.round(1.0)) == []
    one.release(first.placed[0])
    assert started(one.round(2.0)) == ["b", "c"]
    assert one.waiting() == []


def test_a_gang_beyond_the_whole_cluster_is_reported_apart_even_if_its_target_would_fit() -> None:
    one = scheduler(scale=partial(shrink, predictor=ToyPredictor(known=WIDE)))

    result = submit_all(one, [job("huge", request(1, 1, 1), instances=5), job("whole", request(1, 1, 1), instances=4)])

    assert [waiting.job.job_id for waiting in result.never_fits] == ["huge"]
    assert started(result) == ["whole"]
    assert one.waiting() == []


def test_new_jobs_of_a_round_are_scaled_in_one_call_and_once() -> None:
    predictor = ToyPredictor(known=WIDE)
    one = scheduler(scale=partial(shrink, predictor=predictor))

    submit_all(one, [job(str(i), request(4, 8, 4)) for i in range(5)])
    one.round(1.0)

    assert predictor.calls == 1
    assert [waiting.granted.gpus for waiting in one.waiting()] == [2.0, 2.0, 2.0]


def test_a_killed_job_comes_back_with_its_full_request_at_its_old_place() -> None:
    one = scheduler(scale=partial(shrink, predictor=ToyPredictor(known=WIDE)))
    first = submit_all(one, [job("a", request(8, 8, 4))])
    one.submit(1, job("b", request(8, 8, 4)), 5.0)
    one.submit(2, job("c", request(8, 8, 4)), 6.0)
    second = one.round(6.0)
    assert started(second) == ["b"]

    one.release(first.placed[0])
    one.release(second.placed[0])
    one.resubmit(first.placed[0].waiting)

    again = one.round(7.0)
    assert started(again) == ["a"]
    assert again.placed[0].waiting.granted == request(8, 8, 4)
    assert again.placed[0].waiting.arrived_s == 0.0


def test_drf_serves_the_user_who_holds_least() -> None:
    one = scheduler("drf")
    first = submit_all(one, [job("a", request(1, 1, 3), user="greedy"), job("b", request(1, 1, 1), user="modest")])
    one.submit(2, job("c", request(1, 1, 1), user="greedy"), 1.0)
    one.submit(3, job("d", request(1, 1, 1), user="modest"), 2.0)
    one.round(2.0)

    one.release(first.placed[1])

    assert started(one.round(3.0)) == ["d"]


def test_srtf_serves_the_shortest_predicted() -> None:
    predictor = ToyPredictor(run_time=lambda r: 1000.0 / r[:, 0], runs=0)
    one = scheduler("srtf", scale=partial(shrink, predictor=predictor))

    result = submit_all(one, [job("long", request(1, 1, 3)), job("short", request(4, 1, 3))])

    assert started(result) == ["short"]


def test_a_scale_that_loses_jobs_is_refused() -> None:
    one = scheduler(scale=lambda jobs: [])

    with pytest.raises(SchedulerError, match="0 recommendations for 1 jobs"):
        submit_all(one, [job("a")])


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
@settings(deadline=None)
@given(arrivals=workloads())
def test_no_job_that_fits_is_left_waiting(placement: str, arrivals: list[Arrival]) -> None:
    cluster = Cluster(machines())
    one = Scheduler(cluster=cluster, policy=QUEUE_POLICIES["fifo"], placement=PLACEMENTS[placement])

    result = submit_all(one, [arrival.drawn.job for arrival in arrivals])

    assert not any(cluster.fits([waiting.demand])[0] for waiting in one.waiting())
    assert len(result.placed) + len(result.never_fits) + len(one.waiting()) == len(arrivals)
    for placed in result.placed:
        one.release(placed)
    assert (cluster.free == cluster.capacity).all()
