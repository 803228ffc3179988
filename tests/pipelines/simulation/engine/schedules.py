"""Schedules made by hand: jobs and runs as rows, turned into the columns that metrics read.

Builders and hypothesis strategies only; nothing is asserted here. Imported by the tests of what is measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import UNITS, Machine

Amounts = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Came:
    """An arrival: amounts are cores, GiB and GPUs per instance; it is granted its request unless told."""

    at_s: float = 0.0
    request: Amounts = (4.0, 8.0, 2.0)
    granted: Amounts | None = None
    run_s: float = 50.0
    granted_run_s: float | None = None
    instances: int = 1
    user: int = 0
    dies: bool = False
    fails: bool = False
    never_fits: bool = False


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A run: hosts as pairs of machine and instances."""

    job: int
    start_s: float
    end_s: float
    ending: Ending = Ending.COMPLETED
    full: bool = False
    hosts: tuple[tuple[int, int], ...] = ((0, 1),)


def machines(count: int = 1) -> tuple[Machine, ...]:
    return tuple(Machine(name=f"m{i}", cpu_cores=8.0, mem_gib=16.0, gpus=4) for i in range(count))


def schedule(came: Sequence[Came], ran: Sequence[Ran] = (), *, end_s: float = 100.0, on: int = 1) -> Schedule:
    finished = np.full(len(came), math.nan)
    for run in ran:
        if run.ending in (Ending.COMPLETED, Ending.FAILED):
            finished[run.job] = run.end_s
    hosts = [host for run in ran for host in run.hosts]
    return Schedule(
        workload=workload(came),
        machines=machines(on),
        end_s=end_s,
        job=np.array([run.job for run in ran], dtype=np.int64),
        start_s=np.array([run.start_s for run in ran], dtype=np.float64),
        end_run_s=np.array([run.end_s for run in ran], dtype=np.float64),
        full=np.array([run.full for run in ran], dtype=np.bool_),
        ending=np.array([run.ending for run in ran], dtype=np.int8),
        host_offsets=np.cumsum([0, *(len(run.hosts) for run in ran)]).astype(np.int64),
        hosts=np.array([machine for machine, _ in hosts], dtype=np.int64),
        host_counts=np.array([count for _, count in hosts], dtype=np.int64),
        never_fits=np.array([job.never_fits for job in came], dtype=np.bool_),
        finished_s=finished,
    )


def workload(came: Sequence[Came]) -> Workload:
    count = len(came)
    return Workload(
        arrive_s=np.array([job.at_s for job in came], dtype=np.float64),
        request_units=units([job.request for job in came]),
        granted_units=units([job.granted or job.request for job in came]),
        instances=np.array([job.instances for job in came], dtype=np.int64),
        gpu_type=np.full(count, -1, dtype=np.int64),
        user=np.array([job.user for job in came], dtype=np.int64),
        priority=np.zeros(count),
        run_s=np.array([job.run_s for job in came], dtype=np.float64),
        granted_run_s=np.array([job.granted_run_s or job.run_s for job in came], dtype=np.float64),
        dies=np.array([job.dies for job in came], dtype=np.bool_),
        fails=np.array([job.fails for job in came], dtype=np.bool_),
        predicted_s=np.full(count, math.nan),
    )


def units(amounts: Sequence[Amounts]) -> np.ndarray:
    return (np.array(amounts, dtype=np.float64).reshape(len(amounts), 3) * np.array(UNITS)).astype(np.int64)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw jobs that each run alone on a machine, one after the other, in up to three pieces, however they end."""
    end_s, on = float(draw(st.integers(20, 120))), draw(st.integers(1, 3))
    free_s = [0.0] * on
    came: list[Came] = []
    ran: list[Ran] = []
    amount = st.tuples(st.integers(0, 8), st.integers(0, 16), st.integers(0, 4))
    for serial in range(draw(st.integers(0, 8))):
        wants = draw(amount)
        request = (float(wants[0]), float(wants[1]), float(wants[2]))
        granted = (request[0] / 2, request[1], request[2] / 2)
        run_s = float(draw(st.integers(1, 60)))
        at_s = (came[-1].at_s if came else 0.0) + draw(st.integers(0, 30))
        came.append(
            Came(
                at_s=at_s,
                request=request,
                granted=granted,
                run_s=run_s,
                granted_run_s=2 * run_s,
                user=draw(st.integers(0, 2)),
                never_fits=draw(st.integers(0, 9)) == 0,
            )
        )
        machine = draw(st.integers(0, on - 1))
        full, losses = False, (Ending.KILLED, Ending.PREEMPTED)
        endings = [*draw(st.lists(st.sampled_from(losses), max_size=2)), Ending.COMPLETED]
        for ending in endings[: 0 if came[-1].never_fits else draw(st.integers(0, len(endings)))]:
            start_s = max(at_s, free_s[machine]) + draw(st.integers(0, 5))
            last_s = start_s + (draw(st.integers(1, 20)) if ending in losses else run_s)
            if start_s > end_s:
                break
            how = ending if last_s <= end_s else Ending.RUNNING
            ran.append(Ran(job=serial, start_s=start_s, end_s=last_s, ending=how, full=full, hosts=((machine, 1),)))
            free_s[machine] = last_s
            full = full or ending == Ending.KILLED
            if how == Ending.RUNNING:
                break
    in_order = sorted(ran, key=lambda run: run.start_s)
    return schedule(came, in_order, end_s=end_s, on=on)
