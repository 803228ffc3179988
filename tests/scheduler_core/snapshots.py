"""Snapshots for the tests of placements and explanations: small clusters drawn at random, and ones made by hand."""

import math
from typing import Any

from hypothesis import strategies as st

from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from scheduler_core.snapshot import MachineState, QueuedJob, RunningJob, Snapshot, Spot
from scheduler_core.types import Request


def machine(name: str, gpus: int = 4, cores: float = 16, gpu_type: str | None = None, **fields: Any) -> MachineState:
    return MachineState(
        machine=Machine(name=name, cpu_cores=cores, mem_gib=64, gpus=gpus, gpu_type=gpu_type),
        **fields,
    )


def asked(cores: float = 1, gpus: float = 1, mem: float = 4) -> Request:
    return Request(cpu_cores=cores, mem_gib=mem, gpus=gpus)


def runs(job_id: str, on: str, request: Request, ends_in_s: float = math.inf, **spot: Any) -> RunningJob:
    return RunningJob(job_id=job_id, request=request, spots=(Spot(machine=on, **spot),), ends_in_s=ends_in_s)


REQUESTS = st.builds(
    asked,
    cores=st.sampled_from([0.5, 1, 6, 12, 16]),
    gpus=st.sampled_from([0, 0.25, 0.5, 1, 2, 4]),
    mem=st.sampled_from([0, 4, 30, 60]),
)


@st.composite
def snapshots(draw: st.DrawFn, placements: tuple[str, ...], backfills: tuple[str, ...] = ("none", "easy")) -> Snapshot:
    """Draw up to four machines with running jobs that fit them, and a queue with every kind of constraint."""
    names = [f"m{at}" for at in range(draw(st.integers(1, 4)))]
    machines = tuple(
        machine(
            name,
            gpus=draw(st.sampled_from([0, 1, 4])),
            gpu_type=draw(st.sampled_from([None, "T4", "V100"])),
            device_mem_gib=draw(st.sampled_from([math.nan, 16.0, 32.0])),
            closed=draw(st.integers(0, 5)) == 0,
        )
        for name in names
    )
    left = {state.machine.name: [16.0, 64.0, float(state.machine.gpus)] for state in machines}
    running = []
    for at in range(draw(st.integers(0, 5))):
        on, request = draw(st.sampled_from(names)), draw(REQUESTS)
        # A part of a GPU counts as a whole one here, so that the jobs fit by device, too.
        taken = request.cpu_cores, request.mem_gib, math.ceil(request.gpus)
        after = [has - amount for has, amount in zip(left[on], taken, strict=True)]
        if min(after) >= 0:
            left[on] = after
            running.append(runs(f"r{at}", on, request, draw(st.sampled_from([60.0, 600.0, math.inf]))))
    jobs = tuple(
        QueuedJob(
            job_id=f"j{at}",
            request=draw(REQUESTS),
            instances=draw(st.integers(1, 4)),
            gpu_type=draw(st.sampled_from([None, None, "T4", "T4|V100"])),
            machines=draw(st.sampled_from([(), (), (names[0],)])),
            device_mem_gib=draw(st.sampled_from([0.0, 0.0, 24.0])),
            user=draw(st.sampled_from(["u", "v"])),
            priority=float(draw(st.integers(0, 2))),
            run_time_s=draw(st.sampled_from([30.0, 900.0, math.nan])),
        )
        for at in range(draw(st.integers(1, 5)))
    )
    backfill = draw(st.sampled_from(backfills))
    rules = Discipline(
        policy=draw(st.sampled_from(["fifo", "sjf", "priority", *([] if backfill == "easy" else ["drf"])])),
        placement=draw(st.sampled_from(placements)),
        backfill=backfill,  # type: ignore[arg-type]  # one of its names
        overtakes=None if backfill == "easy" else draw(st.sampled_from([None, 0, 1])),
        sharing=draw(st.sampled_from([None, "devices"])),
    )
    return Snapshot(machines=machines, running=tuple(running), jobs=jobs, rules=rules)
