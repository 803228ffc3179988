"""What the plain reference may allocate on shared machines, and where a gang goes. Nothing is asserted here."""

import math

from scheduler_core.reserve import ReservePolicy
from tests.pipelines.simulation.shared.reference_jobs import CPU, GPU, Instance, Job, Reserved, jobs_of
from tests.pipelines.simulation.shared.worlds import World

ROUNDING = 1e-6
"""Units by which a demand may exceed what is free."""


class Machines:
    """Machines, the jobs that wait and run, and what is free for them."""

    def __init__(self, world: World) -> None:
        self.world, self.policy = world, world.reserving.policy or ReservePolicy()
        self.by_device = world.discipline.sharing == "devices"
        self.capacity = [[m.cpu_cores * 1000.0, m.mem_gib * 1024.0] for m in world.machines]
        self.gpus = [[1000.0] * m.gpus if self.by_device else [1000.0 * m.gpus] for m in world.machines]
        self.closed_until_s = [-math.inf] * len(world.machines)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.now_s = 0.0
        self.jobs = jobs_of(world)

    def free(self) -> tuple[list[list[float]], list[list[list[float]]]]:
        """Return the free CPU and memory of machines, and compute and memory of devices, under the bound on risk."""
        arm, factor = self.world.reserving, self.world.reserving.overcommit
        z = self.policy.z if arm.policy is not None else 0.0
        machines, devices = [], []
        for m, (cpu, memory) in enumerate(self.capacity):
            if self.now_s < self.closed_until_s[m]:
                machines.append([-1.0, -1.0])
                devices.append([[-1.0, -1.0] for _ in self.gpus[m]])
                continue
            here = [(job.reserved, 1.0) for job, each in self.placed() if each.machine == m]
            machines.append([factor[0] * cpu - bound(here, CPU, z), factor[1] * memory - held(here, CPU)])
            own = []
            for number, size in enumerate(self.gpus[m]):
                on = [(job.reserved, part) for job, part in self.on(m, number)]
                compute, means = factor[2] * size - bound(on, GPU, z), bound(on, GPU, 0.0)
                if arm.policy is not None and self.by_device and means > 0.0:
                    compute = min(compute, self.policy.device_load * size - means)
                own.append([compute, factor[2] * size - held(on, GPU)])
            devices.append(own)
        return machines, devices

    def on(self, machine: int, device: int) -> list[tuple[Job, float]]:
        """Return the jobs of the instances on a device, with the share of the instance that is on it."""
        return [
            (job, 1.0 / len(each.devices))
            for job, each in self.placed()
            if each.machine == machine and device in each.devices
        ]

    def placed(self) -> list[tuple[Job, Instance]]:
        return [(job, each) for job in self.running for each in job.instances]

    def sizes(self, job: Job) -> tuple[list[float], list[float]]:
        """Return the compute and the memory that must be free for an instance: after a kill its request."""
        if job.full:
            return job.request, job.memory
        arm = self.world.reserving
        z = self.policy.z if arm.policy is not None else 0.0
        first = [min(m + z * s, asked) for m, s, asked in zip(job.prior.mean, job.prior.sd, job.request, strict=True)]
        return first, job.prior.memory

    def find(self, job: Job, machines: list[list[float]], devices: list[list[list[float]]]) -> bool:
        """Place a gang instance by instance on the machines with the least free capacity, or nowhere."""
        largest = [max(1.0, *(row[at] for row in self.capacity)) for at in (0, 1)]
        most = max(1.0, *(sum(own) for own in self.gpus))
        freeness = [
            cpu / largest[0] + memory / largest[1] + sum(min(each) for each in own) / most
            for (cpu, memory), own in zip(machines, devices, strict=True)
        ]
        order = sorted(range(len(machines)), key=lambda m: (freeness[m], m))
        (cpu, gpu), (memory, gpu_memory) = self.sizes(job)
        chosen: list[tuple[int, list[int]]] = []
        for m in order:
            while len(chosen) < len(job.instances):
                if machines[m][0] + ROUNDING < cpu or machines[m][1] + ROUNDING < memory:
                    break
                if job.request[CPU] > self.capacity[m][0] or job.memory[CPU] > self.capacity[m][1]:
                    break  # not even empty
                wide = math.ceil(job.request[GPU] / 1000.0) if self.by_device else min(1, math.ceil(job.request[GPU]))
                fitting = [
                    number
                    for number, (compute, own) in enumerate(devices[m])
                    if wide and compute + ROUNDING >= gpu / wide and own + ROUNDING >= gpu_memory / wide
                    if self.gpus[m][number] >= job.request[GPU] / wide
                ]
                if len(fitting) < wide:
                    break
                picked = sorted(fitting, key=lambda number: (min(devices[m][number]), number))[:wide]
                chosen.append((m, picked))
                self.move(chosen[-1], machines, devices, (cpu, gpu, memory, gpu_memory), -1)
        if len(chosen) == len(job.instances):
            for each, (m, picked) in zip(job.instances, chosen, strict=True):
                each.machine, each.devices = m, picked
            return True
        for one in chosen:
            self.move(one, machines, devices, (cpu, gpu, memory, gpu_memory), 1)
        return False

    @staticmethod
    def move(
        one: tuple[int, list[int]],
        machines: list[list[float]],
        devices: list[list[list[float]]],
        size: tuple[float, float, float, float],
        sign: int,
    ) -> None:
        m, picked = one
        machines[m][0] += sign * size[0]
        machines[m][1] += sign * size[2]
        for number in picked:
            devices[m][number][0] += sign * size[1] / len(picked)
            devices[m][number][1] += sign * size[3] / len(picked)

    @staticmethod
    def next_of(left: list[Job]) -> Job:
        """Return the next job of those not yet tried, in queue order."""
        return min(left, key=lambda job: (job.key, job.serial))


def bound(reserved: list[tuple[Reserved, float]], at: int, z: float) -> float:
    """Return what is reserved with a risk: the sum of means plus z standard deviations of the sum."""
    mean = sum(one.mean[at] * part for one, part in reserved)
    return mean + z * math.sqrt(sum((one.sd[at] * part) ** 2 for one, part in reserved))


def held(reserved: list[tuple[Reserved, float]], at: int) -> float:
    return sum(one.memory[at] * part for one, part in reserved)
