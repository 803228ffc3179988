"""The jobs of the plain reference: what they ask, use and vary, from a world. Nothing is asserted here."""

import math
from dataclasses import dataclass, field

import numpy as np

from pipelines.simulation.shared.variation import draw
from scheduler_core.cluster import Cluster, Demand
from tests.pipelines.simulation.shared.worlds import World

CPU, GPU = 0, 1


@dataclass
class Instance:
    number: int
    machine: int = -1
    devices: list[int] = field(default_factory=list)
    fast: list[float] = field(default_factory=lambda: [0.0, 0.0])
    need: list[float] = field(default_factory=lambda: [0.0, 0.0])
    share: list[float] = field(default_factory=lambda: [0.0, 0.0])
    used: list[float] = field(default_factory=lambda: [0.0, 0.0])


@dataclass
class Sample:
    at_s: float
    used: list[list[float]]  # by resource, of every instance
    memory: list[float]
    presses: list[bool] = field(default_factory=lambda: [False, False])


@dataclass
class Reserved:
    mean: list[float]
    sd: list[float]
    memory: list[float]


@dataclass
class Job:
    row: int  # in the workload
    serial: int  # among the jobs that can run
    arrive_s: float
    run_s: float
    key: float
    request: list[float]  # CPU, GPU
    memory: list[float]
    prior: Reserved
    compute: list[float]
    peak: list[float]
    instances: list[Instance]
    sigma: list[float] = field(default_factory=list)
    scale: list[float] = field(default_factory=list)
    ramp_s: float = 0.0
    ramp_level: float = 1.0
    before_peak: float = 1.0
    peak_at_s: float = 0.0
    full: bool = False
    left_s: float = 0.0
    speed: float = 1.0
    age: int = 0
    slow: list[float] = field(default_factory=lambda: [0.0, 0.0])
    samples: list[Sample] = field(default_factory=list)
    reserved: Reserved = field(default_factory=lambda: Reserved([0, 0], [0, 0], [0, 0]))
    lost_s: float = 0.0

    def uses(self, resource: int) -> float:
        """Return the memory that each instance uses now."""
        return self.peak[resource] * (1.0 if self.until_peak_s() <= 0.0 else self.before_peak)

    def until_peak_s(self) -> float:
        """Return the work left until the memory peak; 0 if it has begun, rounding apart."""
        left_s = self.peak_at_s - (self.run_s - self.left_s)
        return left_s if left_s > 1e-9 * max(1.0, self.run_s) else 0.0


def jobs_of(world: World) -> list[Job]:
    """Return the jobs that fit the empty cluster."""
    cluster = Cluster(world.machines, world.discipline.sharing or "pooled")
    work = world.workload
    asked = [tuple(int(value) for value in row) for row in work.request_units]
    fitting = [
        row
        for row, (cpu, mem, gpu) in enumerate(asked)
        if cluster.could_host(Demand(units=(cpu, mem, gpu), instances=int(work.instances[row])))
    ]
    jobs = [_job(world, row, serial) for serial, row in enumerate(fitting)]
    varied = draw(
        world.variation,
        np.array([job.compute for job in jobs]).reshape(-1, 2),
        np.array([job.request for job in jobs]).reshape(-1, 2),
        work.run_s[fitting],
        world.load.language[fitting],
        world.seed,
    )
    for at, job in enumerate(jobs):
        job.sigma, job.scale = varied.sigma[at].tolist(), varied.scale[at].tolist()
        job.ramp_s, job.ramp_level = float(varied.ramp_s[at]), float(varied.ramp_level[at])
        job.before_peak, job.peak_at_s = float(varied.before_peak[at]), float(varied.peak_at_s[at])
    return jobs


def _job(world: World, row: int, serial: int) -> Job:
    work, arm = world.workload, world.reserving
    cpu, memory, gpu = (float(value) for value in work.request_units[row])
    granted_cpu, granted_memory, granted_gpu = (float(value) for value in work.granted_units[row])
    if world.discipline.sharing == "devices" and gpu > 1000.0:
        granted_gpu = 1000.0 * math.ceil(gpu / 1000.0) if granted_gpu == gpu else granted_gpu
        gpu = 1000.0 * math.ceil(gpu / 1000.0)
    (used_cpu, used_gpu), (used_memory, used_gpu_memory) = world.load.compute[row], world.load.memory[row]
    prior = Reserved([granted_cpu, granted_gpu], [0.0, 0.0], [granted_memory, granted_gpu])
    if arm.prior is not None:
        prior.mean, prior.sd = arm.prior[row, [0, 2]].tolist(), arm.prior[row, [1, 3]].tolist()
    guess = float(work.predicted_s[row])
    by_size = world.discipline.policy in ("sjf", "srtf")
    return Job(
        row=row,
        serial=serial,
        arrive_s=float(work.arrive_s[row]),
        run_s=float(work.run_s[row]),
        key=float(work.arrive_s[row]) if not by_size else math.inf if math.isnan(guess) else guess,
        request=[cpu, gpu],
        memory=[memory, gpu],
        prior=prior,
        compute=[min(used_cpu, cpu), min(used_gpu, gpu)],
        peak=[min(used_memory, memory), min(used_gpu_memory, gpu)],
        instances=[Instance(number) for number in range(work.instances[row])],
    )
