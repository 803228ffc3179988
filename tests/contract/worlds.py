"""Drawn clusters with their jobs, and the schedule of each as figures that change if any run does.

The one place of this suite that calls Python instead of a command: no command prints a whole schedule.
"""

import hashlib
import math
from typing import Any

import numpy as np

from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline

POLICIES = ("fifo", "sjf", "srtf", "qssf", "las", "", "", "", "drf", "priority")
"""By the number of a world modulo ten; there is no world of an empty one."""
POOLED = ("best_fit", "first_fit", "consolidate", "spread")
BY_DEVICE = ("fgd", "fgd", "dot_product", "best_fit_gpu", "gpu_packing", "gpu_clustering")
GPU_TYPES = ("T4", "V100", "P100|T4")
JOBS = 150


def discipline(number: int) -> Discipline:
    """Return the rules of a world: every policy, placement, backfill and preemption occurs."""
    policy = POLICIES[number % len(POLICIES)]
    round_of = number // len(POLICIES)
    if round_of == 0:
        return Discipline(policy=policy, placement=POOLED[number % 4], match_gpu_type=number % 2 == 0)
    if round_of == 1:
        options: dict[str, Any] = {"backfill": "easy"} if number % 2 else {"overtakes": 2}
        return Discipline(policy=policy, placement=POOLED[number % 4], preempt=False, aging=0.01, **options)
    return Discipline(policy=policy, placement=BY_DEVICE[number % 6], restart_cost_s=30.0)


def schedule(number: int) -> dict[str, Any]:
    """Simulate a world; return the counts, the sums and a digest of its runs."""
    rng = np.random.default_rng(number)
    machines = [
        Machine(name=f"m{i}", cpu_cores=16.0, mem_gib=64.0, gpus=int(rng.choice([0, 2, 4])), gpu_type=GPU_TYPES[i % 2])
        for i in range(6)
    ]
    rng.uniform(0.0, 20_000.0, 3)  # as if machines failed, so that the jobs are those of earlier records
    rules = discipline(number)
    found = simulate(_workload(rng), machines, rules, horizon_s=80_000.0)
    digest = hashlib.sha256()
    for column in (found.job, found.start_s, found.end_run_s, found.full, found.ending, found.host_offsets, found.hosts,
                   found.host_counts):  # fmt: skip
        digest.update(np.round(np.asarray(column, dtype=np.float64), 3).tobytes())
    return {
        "policy": rules.policy,
        "placement": rules.placement,
        "runs": len(found.job),
        "finished": int(np.isfinite(found.finished_s).sum()),
        "start_s": math.fsum(found.start_s),
        "finished_s": math.fsum(found.finished_s[np.isfinite(found.finished_s)]),
        "digest": digest.hexdigest(),
    }


def _workload(rng: np.random.Generator) -> Workload:
    request_units = np.stack(
        [
            rng.choice([500, 2000, 4000, 8000], JOBS),
            rng.choice([1024, 4096, 16384], JOBS),
            rng.choice([0, 250, 500, 1000, 2000], JOBS),
        ],
        axis=1,
    )
    run_s = np.round(rng.lognormal(6.5, 1.2, JOBS), 1) + 1.0
    predicted_s = np.where(rng.random(JOBS) < 0.1, np.nan, run_s * rng.lognormal(0.0, 0.5, JOBS))
    return Workload(
        arrive_s=np.sort(np.round(rng.uniform(0.0, 30_000.0, JOBS), 1)),
        request_units=request_units,
        granted_units=np.where(rng.random((JOBS, 3)) < 0.3, request_units // 2, request_units),
        instances=rng.choice([1, 1, 1, 2, 4], JOBS),
        gpu_type=rng.choice([-1, -1, 0, 1, 2], JOBS),
        user=rng.integers(0, 5, JOBS),
        priority=rng.integers(0, 3, JOBS).astype(float),
        run_s=run_s,
        granted_run_s=run_s * rng.choice([1.0, 1.1, 1.5], JOBS),
        dies=rng.random(JOBS) < 0.1,
        fails=rng.random(JOBS) < 0.1,
        predicted_s=predicted_s,
        gpu_types=GPU_TYPES,
    )
