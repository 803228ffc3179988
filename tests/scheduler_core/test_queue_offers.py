"""Places looked ahead for against one by one: the same starts, stops, heads and memory of what is blocked."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core import queue
from scheduler_core.cluster import Machine
from scheduler_core.queue_policies import QUEUE_POLICIES
from scheduler_core.queueing import Discipline
from scheduler_core.rounds import Scheduler
from tests.examples import examples
from tests.scheduler_core.cases import POOLED, job, request

STATIC = sorted(name for name, policy in QUEUE_POLICIES.items() if not policy.dynamic)

MACHINES = tuple(
    Machine(name=f"m{at}", cpu_cores=cores, mem_gib=32.0, gpus=gpus, gpu_type=kind)
    for at, (cores, gpus, kind) in enumerate([(8.0, 4, "T4"), (16.0, 2, "V100"), (8.0, 4, None), (16.0, 8, "T4")])
)

RULES: dict[str, dict[str, Any]] = {
    "none": {"preempt": False},
    "overtakes": {"preempt": False, "overtakes": 2},
    "easy": {"preempt": False, "backfill": "easy", "backfill_depth": 3},
    "preempting": {"preempt": True, "quantum_s": 60.0},
}

JOBS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 4.0, 6.0]),
        st.sampled_from([0.0, 0.25, 1.0, 3.0]),
        st.integers(1, 4),
        st.sampled_from([None, None, "T4", "V100|T4", "A100"]),
        st.integers(0, 3),
    ),
    max_size=30,
)
"""Cores, GPUs, instances, GPU type, priority."""


def rounds(one: Scheduler, waves: list[list[Any]], ends: list[set[int]], away: int | None) -> list[Any]:
    """Submit wave by wave, a round each; then some jobs end. Return all that can be seen from outside."""
    seen: list[Any] = []
    if away is not None:
        one.down(away)
    for at, (wave, ended) in enumerate(zip(waves, ends, strict=True)):
        now_s = 100.0 * at
        for number, (cores, gpus, instances, kind, priority) in enumerate(wave):
            wants = request(cores, 1.0, gpus)
            new = job(str(number), wants, instances=instances, gpu_type=kind, user=str(number % 3))
            one.submit(new, now_s + number % 4, priority=priority)
        result = one.round(now_s)
        seen.append([(run.waiting.serial, run.allocation) for run in result.started])
        seen.append([run.waiting.serial for run in result.preempted])
        seen.append((one.head, one.overtaken, [serial for _, serial, _ in one.queue.ranked(now_s)]))
        for serial in sorted(ended & set(one.occupancy.running)):
            one.release(serial, killed=serial % 2 == 1)
    return seen


@pytest.mark.parametrize("placement", POOLED)
@pytest.mark.parametrize("rule", sorted(RULES))
@settings(max_examples=examples(40))
@given(
    policy=st.sampled_from(STATIC),
    waves=st.lists(JOBS, min_size=1, max_size=3),
    data=st.data(),
    away=st.sampled_from([None, 0, 3]),
)
def test_looking_ahead_does_not_show(
    rule: str, placement: str, policy: str, waves: list[list[Any]], data: st.DataObject, away: int | None
) -> None:
    rules = Discipline(policy=policy, placement=placement, match_gpu_type=True, **RULES[rule])
    ends = [data.draw(st.sets(st.integers(0, 60), max_size=15)) for _ in waves]
    one_by_one = rounds(Scheduler(MACHINES, rules, look_ahead_jobs=None), waves, ends, away)

    with pytest.MonkeyPatch.context() as patched:
        for name, few in (("FIRST_BATCH", 3), ("LARGEST_BATCH", 8), ("SMALLEST_BATCH", 2)):
            patched.setattr(queue, name, few)
        ahead = rounds(Scheduler(MACHINES, rules, look_ahead_jobs=1), waves, ends, away)

    assert ahead == one_by_one


def test_what_did_not_fit_is_known_to_be_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "SMALLEST_BATCH", 1)
    one = Scheduler(MACHINES, look_ahead_jobs=1)
    for gpus in (8, 4, 4, 2):
        one.submit(job("a", request(1, 1, gpus)), 0.0)

    result = one.round(0.0)

    assert [run.waiting.serial for run in result.started] == [0, 1, 2, 3]
    one.submit(job("b", request(1, 1, 1)), 1.0)
    one.round(1.0)
    [waiting] = one.queue
    assert one.occupancy.is_blocked(waiting.demand)
    one.release(0)
    assert not one.occupancy.is_blocked(waiting.demand)


def test_whatever_is_not_static_and_pooled_goes_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("looked ahead")

    monkeypatch.setattr(queue.Offers, "_looking_ahead", refuse)
    own = replace(QUEUE_POLICIES["drf"], by_user=False)
    for rules in (
        Discipline(policy="drf"),
        Discipline(policy=own),
        Discipline(sharing="devices"),
        Discipline(placement=lambda demand, room: room.allocation(demand, [(0, 1)])),
    ):
        one = Scheduler(MACHINES, rules, look_ahead_jobs=1)
        one.submit(job(), 0.0)
        assert len(one.round(0.0).started) == 1


def test_small_rounds_import_nothing_that_compiles() -> None:
    script = (
        "import sys; from scheduler_core.cluster import paper_machines; from scheduler_core.rounds import Scheduler;"
        "from scheduler_core.types import Job, Request; one = Scheduler(paper_machines());"
        "ask = Request(cpu_cores=1.0, mem_gib=1.0, gpus=0.1);"
        "[one.submit(Job(job_id='a', trace='t', task_type='ctr', request=ask), 0.0) for _ in range(500)];"
        "assert one.round(0.0).started; assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
