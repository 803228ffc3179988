"""Random small worlds for both engines: a workload, machines and a discipline, from one seed.

Numbers are few and often whole, so that moments, keys and shares coincide. Nothing is asserted here.
Imported by `test_engines_agree`.
"""

import math
from dataclasses import dataclass

import numpy as np

from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Machine
from scheduler_core.queueing import QUEUE_POLICIES, Discipline
from tests.scheduler_core.cases import POOLED

TYPES = ("T4", "V100")
NAMED = ("T4", "V100", "P100|T4", "A10|V100|T4")
OPTIONS = ("none", "overtakes", "easy", "preempt")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    jobs: Workload
    machines: tuple[Machine, ...]
    discipline: Discipline
    horizon_s: float


def world(seed: int, jobs: int, policy: str, option: str) -> World:
    """Draw a world of at most `jobs` arrivals."""
    rng = np.random.default_rng(seed)
    machines = tuple(_machine(rng, number) for number in range(rng.integers(1, 6)))
    horizon_s = float(rng.choice([math.inf, 30.0, 47.5, 100.0]))
    return World(
        jobs=_workload(rng, int(rng.integers(1, jobs + 1))),
        machines=machines,
        discipline=_discipline(rng, policy, option, endless=math.isinf(horizon_s)),
        horizon_s=horizon_s,
    )


def _machine(rng: np.random.Generator, number: int) -> Machine:
    return Machine(
        name=f"m{number}",
        cpu_cores=float(rng.choice([4, 8, 16])),
        mem_gib=float(rng.choice([8, 32])),
        gpus=int(rng.choice([0, 1, 2, 4])),
        gpu_type=rng.choice([None, "P100", *TYPES]),
    )


def _workload(rng: np.random.Generator, count: int) -> Workload:
    whole = rng.random() < 0.5

    def seconds(most: int) -> np.ndarray:
        return rng.integers(1, most, count).astype(float) if whole else rng.uniform(0.1, most, count)

    asked = np.stack(
        [
            rng.choice([0, 500, 1000, 2000, 4000], count),
            rng.choice([0, 1024, 3000, 8192], count),
            rng.choice([0, 250, 500, 1000, 2000], count),
        ],
        axis=1,
    )
    predicted_s = seconds(60)
    predicted_s[rng.random(count) < 0.2] = math.nan
    predicted_s[rng.random(count) < 0.03] = math.inf
    return Workload(
        arrive_s=np.sort(seconds(60)),
        request_units=asked,
        granted_units=np.where(rng.random((count, 3)) < 0.5, asked // 2, asked),
        instances=rng.choice([1, 1, 2, 3, 5], count),
        gpu_type=rng.choice([-1, -1, 0, 1, 2, 3], count),
        user=rng.integers(0, 4, count),
        priority=rng.integers(0, 3, count).astype(float),
        run_s=seconds(50),
        granted_run_s=seconds(60),
        dies=rng.random(count) < 0.2,
        fails=rng.random(count) < 0.1,
        predicted_s=predicted_s,
        gpu_types=NAMED,
    )


def _discipline(rng: np.random.Generator, policy: str, option: str, *, endless: bool) -> Discipline:
    options: dict[str, dict[str, object]] = {
        "none": {},
        "overtakes": {"overtakes": int(rng.integers(0, 4))},
        "easy": {"backfill": "easy", "backfill_depth": int(rng.choice([1, 2, 5, 1000]))},
        "preempt": {
            "preempt": not QUEUE_POLICIES[policy].dynamic,
            "quantum_s": float(rng.choice([5.0, 7.3, 20.0])),
            "restart_cost_s": float(rng.choice([0.0, 1.5, 1.5 if endless else 9.0])),
        },
    }
    return Discipline(
        **{
            "policy": policy,
            "placement": str(rng.choice(POOLED)),
            "aging": float(rng.choice([0.0, 0.0, 0.5, 1.0])),
            "match_gpu_type": bool(rng.random() < 0.3),
            "preempt": False,
            **options[option],
        }
    )
