"""Why a job waits: which resource, on how many machines, what would have to end, which rule, and when."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Machine, paper_machines
from scheduler_core.pending import Hold, Pending, pending
from scheduler_core.queueing import Discipline
from scheduler_core.round import Round, round_of
from scheduler_core.scene import Scene
from scheduler_core.snapshot import MachineState, QueuedJob, RunningJob, Snapshot, Spot
from scheduler_core.types import Request
from tests.pipelines.simulation.engine.simulations import gpu_machines, run, starts_of, workload


def gang(gpus: float, lasts_s: float = 100.0, instances: int = 1, cores: int = 1, **fields: Any) -> QueuedJob:
    request = Request(cpu_cores=cores, mem_gib=0.0, gpus=gpus)
    return QueuedJob(job_id="", request=request, instances=instances, run_time_s=lasts_s, **fields)


def after_a_round(
    machines: tuple[Machine, ...], *gangs: QueuedJob, closed: tuple[int, ...] = (), **rules: Any
) -> Round:
    states = tuple(MachineState(machine=machine, closed=at in closed) for at, machine in enumerate(machines))
    jobs = tuple(replace(each, job_id=str(serial)) for serial, each in enumerate(gangs))
    rules = {"placement": "first_fit", **rules}
    return round_of(Scene(Snapshot(machines=states, jobs=jobs, rules=Discipline(**rules))))


def why_of(after: Round, serial: int) -> Pending:
    return pending(after, serial, after.expected_starts_s([serial])[serial])


def test_free_gpus_on_the_wrong_machines_are_fragmentation() -> None:
    why = why_of(after_a_round(gpu_machines(4, 4), gang(3, 50.0), gang(3, 80.0), gang(2, 10.0)), 2)
    assert (why.hold, why.hosted) == (Hold.ROOM, 0)
    assert (why.must_end, why.room_in_s, why.expected_wait_s) == (("0",), 50.0, 50.0)
    assert why.text == (
        "Job 2 is number 1 of 1 in the queue. 0 of its 1 instances would fit now. "
        "GPUs: an instance requests 2, more than is free on 2 of 2 machines; the gang requests 2, and 2 are "
        "free in total. "
        "Enough is free in total, but not on the same machines: it is fragmented. "
        "It fits once these running jobs have ended: 0 (expected in 50 s). Its start is expected in 50 s. "
        "Now the job does not fit; 2 of 2 machines: not enough GPUs."
    )


def test_the_resource_that_binds_is_named_even_if_it_is_not_the_gpu() -> None:
    why = why_of(after_a_round(gpu_machines(4, cpu_cores=8), gang(1, cores=6), gang(1, cores=4)), 1)
    text = why.text
    assert "fragmented" not in text
    assert "Cores: an instance requests 4, more than is free on 1 of 1 machines; the gang requests 4, and 2 are" in text
    assert "GPUs:" not in text


def test_only_runs_that_are_needed_must_end() -> None:
    # m0: 1 (2 GPUs, ends at 10) and 0 (2, at 90); m1: 2 (4, at 50). A gang of 4 needs m1 alone, and not job 1's end.
    why = why_of(after_a_round(gpu_machines(4, 4), gang(2, 90.0), gang(2, 10.0), gang(4, 50.0), gang(4)), 3)
    assert (why.must_end, why.room_in_s) == (("2",), 50.0)


def test_a_gang_counts_its_instances() -> None:
    why = why_of(after_a_round(gpu_machines(4, 4), gang(1, 30.0), gang(2, instances=4)), 1)
    assert (why.hosted, why.instances, why.must_end) == (3, 4, ("0",))
    assert "3 of its 4 instances would fit now" in why.text


def test_the_expected_wait_lets_those_before_it_start_first() -> None:
    after = after_a_round(gpu_machines(4), gang(4, 50.0), gang(4, 70.0), gang(1, 10.0), gang(4, 1.0))
    # Job 2 has room when 0 ends, but 1 takes all of it: it starts when that ends.
    assert [why_of(after, serial).expected_wait_s for serial in (1, 2, 3)] == [50.0, 120.0, 130.0]
    assert why_of(after, 2).room_in_s == 50.0


def test_an_end_that_nobody_predicts_is_said_to_be_unknown() -> None:
    why = why_of(after_a_round(gpu_machines(4), gang(4, math.nan), gang(4)), 1)
    assert (why.must_end, why.room_in_s, why.expected_wait_s) == (("0",), math.inf, math.inf)
    assert "at an unknown time" in why.text


def test_machines_of_other_types_and_machines_that_are_away_are_counted_apart() -> None:
    machines = tuple(
        Machine(name=str(at), cpu_cores=8, mem_gib=8, gpus=4, gpu_type=kind)
        for at, kind in enumerate(["T4", "T4", "P100"])
    )
    why = why_of(after_a_round(machines, gang(4, instances=2, gpu_type="T4"), closed=(1,)), 0)
    assert (why.must_end, why.hosted) == ((), 1)
    assert why.expected_wait_s == math.inf
    assert "machines must come up" in why.text
    assert "Machines of another GPU type: 1. Machines it could use that are down: 1." in why.text


HEAD = (gang(3, 100.0), gang(4))


@pytest.mark.parametrize(
    ("behind", "rules", "hold"),
    [
        ([gang(1)], {"overtakes": 0}, Hold.OVERTAKES),
        # The head takes all at 100; a job behind it would run longer.
        ([gang(1, 101.0)], {"backfill": "easy"}, Hold.RESERVATION),
        ([gang(4), gang(1, 1.0)], {"backfill": "easy", "backfill_depth": 1}, Hold.DEPTH),
        ([gang(1, 500.0)], {"backfill": "easy", "backfill_depth": 1}, Hold.RESERVATION),
    ],
)
def test_the_rule_that_holds_a_job_is_named_with_the_head(
    behind: list[QueuedJob], rules: dict[str, Any], hold: Hold
) -> None:
    after = after_a_round(gpu_machines(4), *HEAD, *behind, **rules)
    why = why_of(after, 1 + len(behind))
    assert (why.hold, why.head, why.room_in_s) == (hold, "1", 0.0)
    assert "job 1" in why.text


def test_a_job_that_can_never_fit_is_told_what_the_whole_cluster_has() -> None:
    why = why_of(after_a_round(paper_machines(), gang(500.0)), 0)
    assert (why.hold, why.place, why.must_end, why.expected_wait_s) == (Hold.NEVER, 0, (), math.inf)
    assert "Job 0 can never start: it requests more than the whole empty cluster has." in why.text
    assert "GPUs: an instance requests 500, more than any of them has; the gang requests 500, and the whole" in why.text


def test_a_gang_that_can_never_fit_is_measured_by_the_machines_of_its_type() -> None:
    kinds = tuple(Machine(name=kind, cpu_cores=96, mem_gib=512, gpus=8, gpu_type=kind) for kind in ("T4", "P100"))
    why = why_of(after_a_round(kinds, gang(4.0, instances=3, gpu_type="T4")), 0)
    assert (why.hosted, why.instances) == (2, 3)
    assert "GPUs: an instance requests 4; the gang requests 12, and all of its GPU type has 8." in why.text


SIZES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(1, 90)), min_size=1, max_size=12)


def gangs_of(sizes: list[tuple[int, int, int]]) -> list[QueuedJob]:
    return [gang(gpus, float(lasts), n, user=str(at % 3)) for at, (gpus, n, lasts) in enumerate(sizes)]


@given(SIZES, st.sampled_from([{}, {"overtakes": 0}, {"overtakes": 2}, {"backfill": "easy"}, {"policy": "drf"}]))
def test_what_is_said_comes_true(sizes: list[tuple[int, int, int]], rules: dict[str, Any]) -> None:
    """Let the named jobs end, and not one fewer: then the gang fits; one that a rule holds fits already."""
    after = after_a_round(gpu_machines(4, 4), *gangs_of(sizes), **rules)
    for serial in after.ranked:
        why, demand, room = why_of(after, serial), after.scene.demand(after.scene.jobs[serial]), after.room
        assert room.fits(demand) == (why.hold != Hold.ROOM)
        assert why.expected_wait_s >= why.room_in_s
        for ended in why.must_end:
            assert not room.fits(demand), "every named end is needed"
            room = room.with_([after.allocation(int(ended))])
        assert room.fits(demand)


@given(SIZES)
def test_the_last_in_line_starts_when_it_was_told(sizes: list[tuple[int, int, int]]) -> None:
    after = after_a_round(gpu_machines(4, 4), *gangs_of(sizes))
    rows = [{"gpus": gpus, "cores": 1, "instances": n, "run": float(lasts)} for gpus, n, lasts in sizes]
    starts = starts_of(run(workload(*rows), gpu_machines(4, 4), Discipline(placement="first_fit")))
    for serial in after.ranked[-1:]:
        assert why_of(after, serial).expected_wait_s == starts[serial]


def test_a_part_of_a_gpu_split_over_devices_is_said_to_be() -> None:
    running = RunningJob(
        job_id="r", request=Request(cpu_cores=1, mem_gib=0, gpus=0.6), spots=(Spot(machine="m0", instances=2),)
    )
    jobs = (replace(gang(0.8), job_id="0"),)
    states = tuple(MachineState(machine=machine) for machine in gpu_machines(2))
    rules = Discipline(placement="first_fit", sharing="devices")
    after = round_of(Scene(Snapshot(machines=states, running=(running,), jobs=jobs, rules=rules)))
    why = why_of(after, 1)
    assert (why.hold, why.must_end) == (Hold.ROOM, ("r",))
    assert "no device of 1 of 1 machines has that free" in why.text
