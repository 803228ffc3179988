"""What waiting jobs lack, against gangs on small machines worked by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from pipelines.studies.shrinking.runs import lacking
from scheduler_core.cluster import Machine
from scheduler_core.gangs import ANY_GPU_TYPE

HOUR_S = 3600.0
TWO = tuple(Machine(name=name, cpu_cores=10.0, mem_gib=100.0, gpus=2) for name in ("a", "b"))


def ran(
    gangs: Sequence[tuple[float, float, float, int]],
    *,
    dies: Sequence[bool] | None = None,
    granted: Sequence[tuple[float, float, float, int]] | None = None,
    machines: Sequence[Machine] = TWO,
) -> Schedule:
    """Run gangs of (cores, GiB, GPUs, instances), all there at the start, an hour each or half of it until it dies."""
    units = np.array([[1000, 1024, 1000]])
    count = len(gangs)
    asked, given = (np.array([row[:3] for row in rows]) * units for rows in (gangs, granted or gangs))
    hours, dying = np.full(count, HOUR_S), np.array(dies or [False] * count)
    workload = Workload(
        arrive_s=np.zeros(count),
        request_units=asked.astype(np.int64),
        granted_units=given.astype(np.int64),
        instances=np.array([row[3] for row in gangs]),
        gpu_type=np.full(count, ANY_GPU_TYPE),
        gpu_types=(),
        user=np.zeros(count, dtype=np.int64),
        priority=np.zeros(count),
        run_s=hours,
        granted_run_s=np.where(dying, hours / 2.0, hours),
        dies=dying,
        fails=np.zeros(count, dtype=np.bool_),
        predicted_s=hours,
    )
    return simulate(workload, machines, horizon_s=1.5 * HOUR_S, engine="plain")


@pytest.mark.parametrize(
    ("waiting", "lacks"),
    [
        # Each machine has 4 cores, 60 GiB and 1 GPU left.
        ((6.0, 10.0, 1.0, 1), {"cpu_cores"}),
        ((4.0, 10.0, 2.0, 1), {"gpus"}),
        ((1.0, 80.0, 0.0, 1), {"mem_gib"}),
        ((6.0, 80.0, 2.0, 1), {"cpu_cores", "mem_gib", "gpus"}),
        # Two instances of four on each machine by CPU, one by GPU.
        ((2.0, 10.0, 1.0, 4), {"gpus"}),
    ],
)
def test_a_gang_lacks_what_it_has_no_room_for_were_all_else_free(
    waiting: tuple[float, float, float, int], lacks: set[str]
) -> None:
    found = lacking(ran([(6.0, 40.0, 1.0, 2), waiting]), look_s=0.4 * HOUR_S)

    assert {name for name, share in found.items() if share == 1.0} == lacks
    assert {name for name, share in found.items() if share == 0.0} == set(found) - lacks


def test_what_is_found_on_different_machines_is_lacked_by_itself_nowhere() -> None:
    other = (
        Machine(name="a", cpu_cores=10.0, mem_gib=9.0, gpus=0),
        Machine(name="b", cpu_cores=2.0, mem_gib=9.0, gpus=2),
    )
    running, held = (10.0, 1.0, 0.0, 1), (2.0, 1.0, 1.0, 1)

    # The second takes the cores of `b`, the only machine with GPUs, and leaves a GPU there.
    found = lacking(ran([held, running, (1.0, 1.0, 1.0, 1)], machines=other), look_s=0.4 * HOUR_S)

    assert found == {"cpu_cores": 1.0, "mem_gib": 0.0, "gpus": 0.0}
    apart = lacking(ran([held, (9.0, 1.0, 0.0, 1), (1.0, 1.0, 1.0, 1)], machines=other), look_s=0.4 * HOUR_S)
    assert apart == {"cpu_cores": 0.0, "mem_gib": 0.0, "gpus": 0.0}


def test_shares_are_over_waiting_jobs_and_moments() -> None:
    # Three wait at 0.4 and 0.8 h, of which one lacks GPUs; at 1.2 h they run.
    found = lacking(
        ran([(8.0, 1.0, 1.0, 2), (5.0, 1.0, 1.0, 1), (5.0, 1.0, 2.0, 1), (5.0, 1.0, 0.0, 1)]), look_s=0.4 * HOUR_S
    )

    assert found == {"cpu_cores": 1.0, "mem_gib": 0.0, "gpus": pytest.approx(1 / 3)}


def test_nothing_is_said_where_nobody_waits() -> None:
    assert all(math.isnan(share) for share in lacking(ran([(1.0, 1.0, 0.0, 1)])).values())


def test_a_killed_job_waits_with_its_full_request() -> None:
    # The second dies of its one core after half an hour, and then needs nine: each machine has four left.
    asked = [(6.0, 1.0, 0.0, 2), (9.0, 1.0, 0.0, 1)]
    given = [(6.0, 1.0, 0.0, 2), (1.0, 1.0, 0.0, 1)]

    found = lacking(ran(asked, dies=[False, True], granted=given), look_s=0.9 * HOUR_S)

    assert found["cpu_cores"] == 1.0
