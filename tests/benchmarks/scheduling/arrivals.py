"""Workloads to be timed on: drawn at a load for a small cluster, and shaped like Philly, or Philly's own log.

Nothing is timed here. Called by the other files of this folder.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Machine, paper_machines
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.types import FloatArray, IntArray

SMALL: Final = paper_machines()
"""4 machines of 8 GPUs, 96 cores, 512 GiB."""

PHILLY: Final = tuple(
    Machine(name=f"m{number}", cpu_cores=1.0, mem_gib=1.0, gpus=8 if number < 231 else 2) for number in range(552)
)
"""552 machines with 2490 GPUs, as in Philly's machine list; its jobs ask for GPUs only."""

PHILLY_TRACE: Final = "philly-rebuilt"

SHAPES: Final = 50
GANGS: Final = (1, 1, 1, 2, 4)
GPUS: Final = (1, 2, 4, 8, 16, 32)
GPU_SHARES: Final = (0.75, 0.07, 0.08, 0.07, 0.02, 0.01)
"""How many GPUs jobs ask for, roughly as in Philly."""


def drawn(jobs: int, load: float = 0.9, shapes: int = SHAPES) -> Workload:
    """Draw arrivals for `SMALL` that ask for `load` of its scarcest resource; run times spread over three decades."""
    rng = np.random.default_rng(0)
    kinds = np.stack(
        [
            rng.integers(1, 12, shapes) * 1000,
            rng.integers(1, 64, shapes) * 1024,
            rng.choice([0, 250, 500, 1000, 2000], shapes),
        ],
        axis=1,
    )
    units, instances = kinds[rng.integers(0, shapes, jobs)], rng.choice(GANGS, jobs)
    return _at_load(units, instances, rng.lognormal(6.0, 1.2, jobs), SMALL, load, rng)


def philly_like(jobs: int, load: float, machines: tuple[Machine, ...] = PHILLY) -> Workload:
    """Draw arrivals of GPU gangs, run times spread over six decades."""
    rng = np.random.default_rng(0)
    return _gpu_gangs(rng.choice(GPUS, jobs, p=GPU_SHARES), rng.lognormal(7.0, 2.0, jobs), machines, load, rng)


def philly_recorded(load: float) -> Workload | None:
    """Return Philly's own jobs, arriving in their order at an even rate that makes the load; None without TAUT_TRACES.

    The log is the rebuilt one: submit times, GPUs and most run times exact.
    """
    with tempfile.TemporaryDirectory() as scratch:
        if not philly_lake(Path(scratch)):
            return None
        with Lake(Path(scratch)) as lake:
            jobs = lake.table("jobs", PHILLY_TRACE).sort("submit_ts", "job_id").collect()
    gpus = (jobs["req_gpus"] * jobs["instances"]).to_numpy().round().astype(np.int64)
    run_s = jobs["run_s"].to_numpy()
    known = (gpus > 0) & (run_s > 0.0)
    rng = np.random.default_rng(0)
    found = _gpu_gangs(gpus[known], run_s[known].astype(np.float64), PHILLY, load, rng)
    begin = jobs["submit_ts"].dt.epoch("ms").to_numpy()[known] / 1000
    since = (begin - begin[0]) / (begin[-1] - begin[0])
    return replace(found, arrive_s=np.maximum.accumulate(since * found.arrive_s[-1]))


def philly_lake(folder: Path) -> bool:
    """Ingest Philly's rebuilt log into a lake; False, and nothing done, without TAUT_TRACES."""
    raw = Path(os.environ.get("TAUT_TRACES", "")) / "philly_rebuilt"
    if "TAUT_TRACES" not in os.environ or not raw.is_dir():
        return False
    ingest("philly", raw, folder, as_name=PHILLY_TRACE)
    return True


def _gpu_gangs(
    gpus: IntArray, run_s: FloatArray, machines: tuple[Machine, ...], load: float, rng: np.random.Generator
) -> Workload:
    each = np.minimum(gpus, 8)
    units = np.zeros((len(gpus), 3), dtype=np.int64)
    units[:, 2] = each * 1000
    return _at_load(units, -(-gpus // each), run_s, machines, load, rng)


def _at_load(
    units: IntArray,
    instances: IntArray,
    run_s: FloatArray,
    machines: tuple[Machine, ...],
    load: float,
    rng: np.random.Generator,
) -> Workload:
    """Spread jobs over as long as makes their work `load` of what the machines could do of the scarcest resource."""
    jobs = len(run_s)
    capacity = np.array([[m.cpu_cores * 1000, m.mem_gib * 1024, m.gpus * 1000] for m in machines]).sum(axis=0)
    span_s = ((units * instances[:, None] * run_s[:, None]).sum(axis=0) / capacity).max() / load
    return Workload(
        arrive_s=np.sort(rng.uniform(0.0, span_s, jobs)),
        request_units=units,
        granted_units=units,
        instances=instances.astype(np.int64),
        gpu_type=np.full(jobs, ANY_GPU_TYPE, dtype=np.int64),
        user=rng.integers(0, 300, jobs),
        priority=np.zeros(jobs),
        run_s=run_s,
        granted_run_s=run_s,
        dies=np.zeros(jobs, dtype=np.bool_),
        fails=np.zeros(jobs, dtype=np.bool_),
        predicted_s=run_s * rng.lognormal(0.0, 0.7, jobs),
    )


def waiting_at_once(jobs: int, waiting: int) -> Workload:
    """Draw arrivals for `SMALL` so that about `waiting` jobs wait throughout: that many are there from the begin."""
    found = drawn(jobs, load=0.98)
    arrive_s = found.arrive_s.copy()
    arrive_s[: min(waiting, jobs)] = 0.0
    return replace(found, arrive_s=arrive_s)
