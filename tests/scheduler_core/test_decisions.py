"""Where queued jobs of a snapshot start, the reasons, and what contradicts itself in a snapshot."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings

from scheduler_core.decisions import Decision, place_queue
from scheduler_core.errors import BadInput
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queueing import Discipline
from scheduler_core.snapshot import QueuedJob, Snapshot, Spot
from tests.examples import examples
from tests.scheduler_core.snapshots import asked, machine, runs, snapshots

POOLED = ("best_fit", "consolidate", "first_fit", "spread")


def job(job_id: str = "j", **fields: object) -> QueuedJob:
    return QueuedJob(**{"job_id": job_id, "request": asked(), **fields})


def check_capacity(snapshot: Snapshot, decisions: list[Decision]) -> None:
    """Check that jobs that run or start exceed no machine, and that constraints hold."""
    states = {state.machine.name: state for state in snapshot.machines}
    used: dict[str, Counter[str]] = {name: Counter() for name in states}
    queued = {each.job_id: each for each in snapshot.jobs}
    held = [(each.request, each.spots) for each in snapshot.running]
    for decision in decisions:
        each = queued[decision.job_id]
        held.append((each.request, decision.spots))
        assert sum(spot.instances for spot in decision.spots) in (0, each.instances)
        for spot in decision.spots:
            state = states[spot.machine]
            assert not state.closed
            assert not each.machines or spot.machine in each.machines
            assert each.gpu_type is None or state.machine.gpu_type in each.gpu_type.split("|")
            assert each.device_mem_gib == 0.0 or state.device_mem_gib >= each.device_mem_gib
            for device in spot.devices:
                used[spot.machine][f"gpu{device}"] += round(1000 * min(each.request.gpus, 1))
                assert device < state.machine.gpus
    for request, spots in held:
        for spot in spots:
            used[spot.machine] += Counter(
                cpu=round(1000 * request.cpu_cores) * spot.instances,
                mem=round(1024 * request.mem_gib) * spot.instances,
                gpu=round(1000 * request.gpus) * spot.instances,
            )
    for name, state in states.items():
        limits = {"cpu": state.machine.cpu_cores * 1000, "mem": 64 * 1024, "gpu": state.machine.gpus * 1000}
        assert all(amount <= limits.get(what, 1000) for what, amount in used[name].items())


@given(snapshots(POOLED))
@settings(max_examples=examples(40), deadline=None)
def test_a_placement_exceeds_no_machine_and_breaks_no_constraint(snapshot: Snapshot) -> None:
    decisions = place_queue(snapshot)

    assert [each.job_id for each in decisions] == [each.job_id for each in snapshot.jobs]
    assert all(each.text and each.code for each in decisions)
    check_capacity(snapshot, decisions)


@pytest.mark.slow
@given(snapshots(tuple(sorted(PLACEMENTS))))
@settings(max_examples=examples(30), deadline=None)
def test_no_placement_exceeds_a_machine(snapshot: Snapshot) -> None:
    check_capacity(snapshot, place_queue(snapshot))


@pytest.mark.slow
@given(snapshots(tuple(sorted(PLACEMENTS))))
@settings(max_examples=examples(60), deadline=None)
def test_compiled_rules_decide_and_explain_as_python_does(snapshot: Snapshot) -> None:
    assert place_queue(snapshot, compiled=True) == place_queue(snapshot, compiled=False)


def test_a_job_that_starts_is_told_where_and_by_which_rule() -> None:
    running = (runs("r", "b", asked(cores=8, gpus=2, mem=16)), runs("s", "a", asked(cores=4)))

    [found] = place_queue(Snapshot(machines=(machine("a"), machine("b"), machine("c")), running=running, jobs=(job(),)))

    assert (found.spots, found.code, found.text) == ((Spot(machine="b"),), "least_free", "least free capacity")


@pytest.mark.slow
def test_fgd_keeps_a_whole_gpu_for_the_job_that_needs_it() -> None:
    machines = (machine("a", gpus=1), machine("b", gpus=1))
    running = (runs("r", "b", asked(gpus=0.5), devices=(0,)),)
    jobs = (job("small", request=asked(gpus=0.5)), job("large", request=asked(gpus=1)))

    small, large = place_queue(
        Snapshot(machines=machines, running=running, jobs=jobs, rules=Discipline(placement="fgd"))
    )

    assert (small.spots, large.spots) == ((Spot(machine="b", devices=(0,)),), (Spot(machine="a", devices=(0,)),))


def test_machines_that_cannot_take_a_job_are_counted_by_cause() -> None:
    machines = (
        machine("a", gpu_type="V100"),
        machine("b", gpu_type="T4", closed=True),
        machine("c", gpu_type="T4", device_mem_gib=16.0),
        machine("d", gpu_type="T4", device_mem_gib=32.0),
    )
    running = (runs("r", "d", asked(cores=12, gpus=4)),)
    waiting = job(request=asked(cores=8, gpus=1), gpu_type="T4", device_mem_gib=24.0)

    [found] = place_queue(Snapshot(machines=machines, running=running, jobs=(waiting,)))

    assert found.short == {"gpu_type": 1, "device_mem_gib": 2, "cpu_cores": 1, "gpus": 1}
    assert found.text == (
        "the job does not fit; 1 of 4 machines: another GPU type, 2 of 4 machines: not enough GPU memory, "
        "1 of 4 machines: not enough CPU cores, 1 of 4 machines: not enough GPUs"
    )


def test_a_rule_that_holds_a_job_back_names_the_head() -> None:
    running = (runs("r", "a", asked(gpus=2), 100.0),)
    jobs = (job("head", request=asked(gpus=4)), job("next", request=asked(gpus=1), run_time_s=1000.0))

    strict = Snapshot(machines=(machine("a"),), running=running, jobs=jobs, rules=Discipline(overtakes=0))
    easy = replace(strict, rules=Discipline(backfill="easy"))

    assert [each.code for each in place_queue(strict)] == ["room", "overtakes"]
    assert [each.code for each in place_queue(easy)] == ["room", "reservation"]
    assert "job head" in place_queue(easy)[1].text


AT_FAULT = {
    "machines.1.machine": {"machines": (machine("a"), machine("a"))},
    "running.1.job_id": {"running": (runs("r", "a", asked()), runs("r", "a", asked()))},
    "jobs.0.job_id": {"running": (runs("j", "a", asked()),)},
    "running.0.on.0.machine": {"running": (runs("r", "b", asked()),)},
    "running.0": {"running": (runs("r", "a", asked(cores=17)),)},
    "running.1": {"running": (runs("r", "a", asked(gpus=3)), runs("s", "a", asked(gpus=2)))},
    "running.0.on": {"running": (replace(runs("r", "a", asked()), spots=(Spot(machine="a"), Spot(machine="a"))),)},
    "running.0.on.0.devices": {"running": (runs("r", "a", asked(gpus=2), devices=(4, 5)),)},
    "jobs.0.machines.0": {"jobs": (job(machines=("b",)),)},
    "sharing": {"rules": Discipline(placement="fgd", sharing="pooled")},
}


@pytest.mark.parametrize("field", AT_FAULT)
def test_a_contradiction_is_named_by_its_field(field: str) -> None:
    sound = Snapshot(machines=(machine("a"),), jobs=(job(),))

    with pytest.raises(BadInput) as error:
        place_queue(replace(sound, **AT_FAULT[field]))

    assert str(error.value).startswith(f"{field}: ")
