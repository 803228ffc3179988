"""Random small worlds of shared machines: jobs, their use, machines, an arm and a variation, from one seed.

Machines are few and full, so that jobs wait, slow each other down and are killed. Nothing is asserted here. Imported by
the tests of this folder.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.simulation.engine.schedule import Ending
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.shared.inputs import Load, Reserving
from pipelines.simulation.shared.run import SharedRun, simulate_shared
from pipelines.simulation.shared.variation import PROTOTYPE, Variation
from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from scheduler_core.reserve import ReservePolicy

ARMS = ("requested", "shrunk", "overcommit", "reclaim", "reclaim_prior")
POLICIES = ("fifo", "sjf", "srtf")
SHARINGS = ("pooled", "devices")
VARIATIONS = {
    "default": Variation(),
    "prototype": PROTOTYPE,
    "ideal": Variation(interference=False, cv=1.0),
    "late_peaks": Variation(cv=0.4, early_share=0.2, late_share=0.8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    workload: Workload
    load: Load
    machines: tuple[Machine, ...]
    reserving: Reserving
    variation: Variation
    discipline: Discipline
    horizon_s: float
    seed: int


def simulated(world: World) -> SharedRun:
    """Simulate a world with the engine."""
    return simulate_shared(
        world.workload,
        world.load,
        world.machines,
        world.reserving,
        variation=world.variation,
        discipline=world.discipline,
        horizon_s=world.horizon_s,
        seed=world.seed,
    )


def killed_of(run: SharedRun) -> list[int]:
    """Return the job of every kill."""
    return run.schedule.job[run.schedule.ending == Ending.KILLED].tolist()


def world(seed: int, jobs: int, *, arm: str, policy: str, sharing: str, variation: str) -> World:
    """Draw a world of at most `jobs` arrivals."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, jobs + 1))
    workload = _workload(rng, count, shrunk=arm == "shrunk")
    asked = workload.request_units.astype(float)
    used = asked * np.minimum(rng.beta(1.0, 1.5, asked.shape) * rng.choice([1.0, 2.0], asked.shape), 1.5)
    load = Load(
        compute=used[:, [0, 2]],
        memory=asked[:, 1:] * rng.uniform(0.5, 1.3, (count, 2)),
        language=rng.random(count) < 0.3,
    )
    return World(
        workload=workload,
        load=load,
        machines=tuple(_machine(rng, number) for number in range(rng.integers(1, 4))),
        reserving=_reserving(rng, arm, workload, load),
        variation=VARIATIONS[variation],
        discipline=Discipline(policy=policy, preempt=False, sharing=sharing),  # type: ignore[arg-type]
        horizon_s=float(rng.choice([3000.0, 5417.5, 20000.0])),
        seed=seed,
    )


def _machine(rng: np.random.Generator, number: int) -> Machine:
    return Machine(
        name=f"m{number}",
        cpu_cores=float(rng.choice([8, 16])),
        mem_gib=float(rng.choice([16, 24])),
        gpus=int(rng.choice([0, 1, 2, 4])),
    )


def _workload(rng: np.random.Generator, count: int, *, shrunk: bool) -> Workload:
    asked = np.stack(
        [
            rng.choice([0, 1000, 2000, 4000, 6000], count),
            rng.choice([0, 2048, 5000, 5000, 9000], count),
            rng.choice([0, 250, 500, 500, 1000, 1500, 2000], count),
        ],
        axis=1,
    )
    run_s = rng.uniform(30.0, 4000.0, count)
    predicted_s = run_s * rng.uniform(0.5, 2.0, count)
    predicted_s[rng.random(count) < 0.2] = math.nan
    return Workload(
        arrive_s=np.sort(rng.uniform(0.0, 2000.0, count)).round(),
        request_units=asked,
        granted_units=np.ceil(asked * rng.choice([0.5, 0.75, 1.0], (count, 1))).astype(int) if shrunk else asked,
        instances=rng.choice([1, 1, 1, 2, 3], count),
        gpu_type=np.full(count, -1),
        user=rng.integers(0, 3, count),
        priority=np.zeros(count),
        run_s=run_s,
        granted_run_s=run_s,
        dies=np.zeros(count, dtype=bool),
        fails=rng.random(count) < 0.1,
        predicted_s=predicted_s,
    )


def _reserving(rng: np.random.Generator, arm: str, workload: Workload, load: Load) -> Reserving:
    policy = ReservePolicy(
        probation_s=float(rng.choice([120.0, 300.0, 600.0])),
        z=float(rng.choice([0.0, 1.0, 2.0])),
        memory_margin=float(rng.choice([1.0, 1.2, 2.0])),
        press_z=float(rng.choice([1.0, 3.0])),
        close_s=float(rng.choice([0.0, 300.0])),
        device_load=float(rng.choice([0.6, 0.8, 1.0])),
    )
    asked = workload.request_units[:, [0, 2]].astype(float)
    mean = np.minimum(load.compute, asked)
    sd = np.minimum(mean, asked - mean) * rng.uniform(0.0, 0.5, mean.shape)
    prior = np.column_stack([mean[:, 0], sd[:, 0], mean[:, 1], sd[:, 1]])
    arms: dict[str, dict[str, Any]] = {
        "requested": {},
        "shrunk": {},
        "overcommit": {"overcommit": (2.0, 1.5, 1.5)},
        "reclaim": {"policy": policy},
        "reclaim_prior": {"policy": policy, "prior": prior},
    }
    return Reserving(**arms[arm])
