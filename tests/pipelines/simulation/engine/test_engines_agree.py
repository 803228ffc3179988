"""The two engines give the same schedule to the bit, whatever they are asked to run."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.simulator import simulate
from scheduler_core.cluster import paper_machines
from scheduler_core.queueing import QUEUE_POLICIES, Discipline
from tests.examples import examples
from tests.pipelines.simulation.engine.simulations import gpu_machines, workload
from tests.pipelines.simulation.engine.worlds import OPTIONS, World, world

SEEDS = st.integers(0, 2**32 - 1)

pytestmark = pytest.mark.slow  # compiles all rules


def ran(asked: World, engine: str) -> Schedule:
    return simulate(
        asked.jobs,
        asked.machines,
        asked.discipline,
        horizon_s=asked.horizon_s,
        engine=engine,
    )


def check_same(one: Schedule, other: Schedule) -> None:
    for name in {field.name for field in fields(Schedule)} - {"workload"}:
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype, name
            np.testing.assert_array_equal(mine, theirs, err_msg=name)
        else:
            assert mine == theirs, name


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("policy", sorted(QUEUE_POLICIES))
@settings(max_examples=examples(15))
@given(seed=SEEDS, jobs=st.integers(1, 40))
def test_both_engines_do_the_same(policy, option, seed, jobs):
    asked = world(seed, jobs, policy, option)
    check_same(ran(asked, "compiled"), ran(asked, "python"))


def test_the_worlds_hold_what_could_differ():
    endings, most_hosts, never_fitted = set(), 0, 0
    for seed in range(80):
        schedule = ran(world(seed, 40, "srtf", "preempt"), "compiled")
        endings |= set(schedule.ending.tolist())
        most_hosts = max(most_hosts, int(np.diff(schedule.host_offsets).max(initial=0)))
        never_fitted += int(schedule.never_fits.sum())
    assert endings == set(Ending)
    assert most_hosts > 2
    assert never_fitted > 0


def test_compiled_resumes_when_there_are_more_runs_than_were_made_room_for():
    jobs = workload(*({"at": float(at), "run": 1000.0 - 10 * at, "gpus": 1.0} for at in range(60)))
    rules = Discipline(policy="srtf", quantum_s=0.5)
    asked = World(jobs=jobs, machines=gpu_machines(1), discipline=rules, horizon_s=math.inf)
    found = ran(asked, "compiled")
    assert len(found.job) > len(jobs)
    check_same(found, ran(asked, "python"))


def test_columns_of_any_layout_are_taken():
    jobs = workload(*({"at": float(at), "gpus": 1.0} for at in range(9)))
    read_only = jobs.run_s[::-1][::-1]
    read_only.setflags(write=False)
    odd = replace(jobs, run_s=read_only, request_units=np.asfortranarray(jobs.request_units))
    check_same(simulate(odd, paper_machines(), engine="compiled"), simulate(jobs, paper_machines(), engine="python"))
