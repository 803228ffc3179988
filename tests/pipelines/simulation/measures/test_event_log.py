"""The event log: its order at one moment, its texts and amounts, and what holds of every log."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.event_log import events
from scheduler_core.cluster import Cluster
from tests.examples import examples
from tests.pipelines.simulation.engine.schedules import Came, Ran, schedule, schedules


def rows(ran: Schedule, *names: str) -> list[tuple[object, ...]]:
    columns = events(ran)
    return list(zip(*(columns[name].tolist() for name in names), strict=True))


def test_a_life_with_a_kill_by_hand() -> None:
    killed = Came(granted=(2.0, 4.0, 1.0), run_s=40.0, granted_run_s=20.0, dies=True, instances=3)
    ran = [
        Ran(job=0, start_s=0.0, end_s=20.0, ending=Ending.KILLED, hosts=((1, 2), (0, 1))),
        Ran(job=0, start_s=25.0, end_s=65.0, full=True, hosts=((0, 3),)),
    ]

    assert rows(
        schedule([killed], ran, on=2),
        *("time_s", "event", "serial", "instances", "cpu_cores", "mem_gib", "gpus", "machines"),
    ) == [
        (0.0, "arrive", 0, 3, 4.0, 8.0, 2.0, ""),
        (0.0, "start", 0, 3, 2.0, 4.0, 1.0, "m1:2 m0:1"),
        (20.0, "kill", 0, 3, 2.0, 4.0, 1.0, "m1:2 m0:1"),
        (25.0, "start", 0, 3, 4.0, 8.0, 2.0, "m0:3"),
        (65.0, "complete", 0, 3, 4.0, 8.0, 2.0, "m0:3"),
    ]


def test_at_one_moment_what_is_given_back_comes_before_what_is_taken() -> None:
    came = [*(Came(at_s=0.0) for _ in range(4)), Came(at_s=10.0, never_fits=True), Came(at_s=10.0), Came(at_s=200.0)]
    ran = [
        Ran(job=2, start_s=0.0, end_s=10.0, ending=Ending.PREEMPTED),
        Ran(job=1, start_s=0.0, end_s=10.0, ending=Ending.FAILED),
        Ran(job=0, start_s=0.0, end_s=10.0),
        Ran(job=5, start_s=10.0, end_s=160.0, ending=Ending.RUNNING),
    ]

    assert [row[1:] for row in rows(schedule(came, ran), "time_s", "event", "serial") if row[0] == 10.0] == [
        ("fail", 1),
        ("complete", 0),
        ("arrive", 4),
        ("never_fits", 4),
        ("arrive", 5),
        ("preempt", 2),
        ("start", 5),
    ]
    assert len(rows(schedule(came, ran), "event")) == 7 + 7, "neither who comes, nor who ends after the end"


def test_devices_are_said_where_gpus_are_not_pooled() -> None:
    ran = [
        Ran(job=0, start_s=0.0, end_s=20.0, hosts=((1, 2), (0, 1))),
        Ran(job=1, start_s=5.0, end_s=25.0, hosts=((0, 1),)),
    ]
    pooled = schedule([Came(instances=3), Came(at_s=5.0)], ran, on=2)
    held = np.array([[400, 0, 400, 0], [0, 400, 0, 0], [1000, 0, 0, 1000]])

    assert "devices" not in events(pooled)
    assert rows(replace(pooled, host_devices=held), "event", "serial", "devices") == [
        ("arrive", 0, ""),
        ("start", 0, "m1/0:0.4 m1/2:0.4 m0/1:0.4"),
        ("arrive", 1, ""),
        ("start", 1, "m0/0:1 m0/3:1"),
        ("complete", 0, "m1/0:0.4 m1/2:0.4 m0/1:0.4"),
        ("complete", 1, "m0/0:1 m0/3:1"),
    ]


@settings(max_examples=examples(40), deadline=None)
@given(ran=schedules())
def test_replaying_the_log_never_exceeds_a_machine_and_ends_as_it_should(ran: Schedule) -> None:
    columns = events(ran)
    free = Cluster(ran.machines).capacity.sum(axis=0).astype(np.float64)
    units = np.array([1000.0, 1024.0, 1000.0])

    assert (np.diff(columns["time_s"]) >= 0.0).all()
    for event, instances, *amounts in zip(
        *(columns[name].tolist() for name in ("event", "instances", "cpu_cores", "mem_gib", "gpus")), strict=True
    ):
        if event not in ("arrive", "never_fits"):
            free += (-1.0 if event == "start" else 1.0) * instances * np.array(amounts) * units
        assert (free >= 0.0).all()
    names = columns["event"].tolist()
    assert names.count("start") == len(ran.job)
    assert names.count("complete") == (ran.ending == Ending.COMPLETED).sum()
    assert names.count("never_fits") == (ran.never_fits & (ran.workload.arrive_s <= ran.end_s)).sum()
