"""Small workloads and what a schedule of them says, for the simulator's tests.

Builders, hypothesis strategies and readers only; nothing is asserted here.
Imported by the tests of this folder.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Machine
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.queueing import Discipline

NAN = float("nan")

COLUMNS = ("job", "start_s", "end_run_s", "full", "ending", "host_offsets", "hosts", "host_counts", "finished_s")


def workload(*rows: dict[str, Any], gpu_types: tuple[str, ...] = ()) -> Workload:
    """Return rows as a workload: `at` and `run` in seconds, `gpus` per instance; the rest by name.

    `granted` is (cores, GiB, GPUs) of the first start, by default the request; `predicted` is by default the run time.
    """
    asked = [[row.get("cores", 0.0) * 1000, row.get("gib", 0.0) * 1024, row.get("gpus", 0.0) * 1000] for row in rows]
    given = [
        [value * unit for value, unit in zip(row["granted"], (1000, 1024, 1000), strict=True)]
        if "granted" in row
        else asked[at]
        for at, row in enumerate(rows)
    ]

    def column(name: str, otherwise: Any, dtype: type) -> np.ndarray[Any, Any]:
        return np.array([row.get(name, otherwise) for row in rows], dtype=dtype)

    run_s = column("run", 100.0, np.float64)
    return Workload(
        arrive_s=column("at", 0.0, np.float64),
        request_units=np.array(asked, dtype=np.int64).reshape(-1, 3),
        granted_units=np.array(given, dtype=np.int64).reshape(-1, 3),
        instances=column("instances", 1, np.int64),
        gpu_type=column("gpu_type", ANY_GPU_TYPE, np.int64),
        user=column("user", 0, np.int64),
        priority=column("priority", 0.0, np.float64),
        run_s=run_s,
        granted_run_s=np.array([row.get("granted_run", row.get("run", 100.0)) for row in rows], dtype=np.float64),
        dies=column("dies", False, np.bool_),
        fails=column("fails", False, np.bool_),
        predicted_s=np.array([row.get("predicted", row.get("run", 100.0)) for row in rows], dtype=np.float64),
        gpu_types=gpu_types,
    )


def gpu_machines(*gpus: int, cpu_cores: float = 64.0, mem_gib: float = 64.0) -> tuple[Machine, ...]:
    return tuple(Machine(name=f"m{i}", cpu_cores=cpu_cores, mem_gib=mem_gib, gpus=n) for i, n in enumerate(gpus))


def run(jobs: Workload, machines: Sequence[Machine], discipline: Discipline | None = None, **fields: Any) -> Schedule:
    return simulate(jobs, machines, discipline, **{"engine": "python", **fields})


def hosts_of(schedule: Schedule, at: int) -> dict[int, int]:
    """Return what run `at` held where: machine -> instances, in the order of first use."""
    begin, end = schedule.host_offsets[at], schedule.host_offsets[at + 1]
    held = zip(schedule.hosts[begin:end].tolist(), schedule.host_counts[begin:end].tolist(), strict=True)
    return dict(held)


def simulated(schedule: Schedule) -> list[tuple[int, float, float, str]]:
    """Return every run as (job, start, end, ending) in the order of starts."""
    return [
        (job, start_s, end_s, Ending(ending).name.lower())
        for job, start_s, end_s, ending in zip(
            schedule.job.tolist(),
            schedule.start_s.tolist(),
            schedule.end_run_s.tolist(),
            schedule.ending.tolist(),
            strict=True,
        )
    ]


def shown(schedule: Schedule) -> str:
    """Return every run in the order of starts as "A 0-5 preempted, B 5-15": jobs are letters, and B completed."""
    return ", ".join(
        f"{chr(ord('A') + job)} {start_s:g}-{end_s:g}{'' if how == 'completed' else ' ' + how}"
        for job, start_s, end_s, how in simulated(schedule)
    )


def starts_of(schedule: Schedule) -> dict[int, float]:
    """Return each job's first start."""
    return {job: start_s for job, start_s, _, _ in reversed(simulated(schedule))}


@st.composite
def rows(draw: st.DrawFn, most: int = 12, kinds: int = 0) -> list[dict[str, Any]]:
    """Draw up to `most` arrivals in order; some exceed `gpu_machines(4, 4)`, moments coincide, some die or fail."""
    drawn = []
    for at in sorted(draw(st.lists(st.integers(0, 50), min_size=1, max_size=most))):
        gpus = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 4.0]))
        cores = draw(st.integers(0, 12))
        run_s = draw(st.integers(1, 60))
        row: dict[str, Any] = {
            "at": float(at),
            "gpus": gpus,
            "cores": cores,
            "instances": draw(st.integers(1, 5)),
            "run": float(run_s),
            "user": draw(st.integers(0, 2)),
            "priority": float(draw(st.integers(0, 2))),
            "predicted": draw(st.one_of(st.just(NAN), st.just(float(run_s)), st.integers(0, 80).map(float))),
            "fails": draw(st.booleans()),
            "gpu_type": draw(st.integers(-1, kinds - 1)),
        }
        if draw(st.booleans()):
            row["granted"] = (cores / 2, 0.0, gpus / 2)
            row["granted_run"] = float(draw(st.integers(1, 60)))
            row["dies"] = draw(st.booleans())
        drawn.append(row)
    return drawn


DISCIPLINES = st.builds(
    Discipline,
    policy=st.sampled_from(["fifo", "sjf", "qssf", "priority"]),
    placement=st.sampled_from(["first_fit", "best_fit", "consolidate", "spread"]),
    aging=st.sampled_from([0.0, 0.5, 2.0]),
    overtakes=st.sampled_from([None, 0, 1, 3]),
)

ANY_DISCIPLINE = st.one_of(
    DISCIPLINES,
    st.builds(
        Discipline,
        policy=st.sampled_from(["fifo", "sjf", "drf", "las", "srtf"]),
        placement=st.sampled_from(["first_fit", "best_fit", "consolidate", "spread"]),
        backfill=st.just("easy"),
        backfill_depth=st.sampled_from([1, 3, 1000]),
        preempt=st.just(False),
    ),
    st.builds(
        Discipline,
        policy=st.sampled_from(["fifo", "sjf", "srtf", "qssf", "las", "priority"]),
        placement=st.sampled_from(["best_fit", "consolidate"]),
        aging=st.sampled_from([0.0, 0.5]),
        preempt=st.just(True),
        restart_cost_s=st.sampled_from([0.0, 2.0]),
        quantum_s=st.sampled_from([3.0, 10.0]),
    ),
    st.builds(
        Discipline, policy=st.just("drf"), overtakes=st.sampled_from([None, 0, 2]), aging=st.sampled_from([0, 1])
    ),
)
