"""Shared machines as one reads about them: slow, in plain Python, every sum from scratch and every sample kept.

Only what jobs demand comes from the engine: the variation drawn for each job, and its random numbers. Nothing is
asserted here. Imported by the tests of this folder.
"""

import math
from dataclasses import dataclass
from statistics import fmean

from pipelines.simulation.shared.noise import uniform
from scheduler_core.reserve import ReservePolicy
from tests.pipelines.simulation.shared.reference_jobs import CPU, GPU, Instance, Job, Reserved, Sample, jobs_of
from tests.pipelines.simulation.shared.worlds import World

MINUTE_S = 60.0
ROUNDING = 1e-6
"""Units by which a demand may exceed what is free."""


@dataclass
class Run:
    job: int
    start_s: float
    hosts: list[int]
    end_s: float = math.nan
    ending: str = "running"


@dataclass
class Kill:
    at_s: float
    job: int
    machine: int
    device: int


class Reference:
    """One simulation; `runs`, `kills` and `lost_s` are what happened."""

    def __init__(self, world: World) -> None:
        self.world, self.policy = world, world.reserving.policy or ReservePolicy()
        self.by_device = world.discipline.sharing == "devices"
        self.capacity = [[m.cpu_cores * 1000.0, m.mem_gib * 1024.0] for m in world.machines]
        self.gpus = [[1000.0] * m.gpus if self.by_device else [1000.0 * m.gpus] for m in world.machines]
        self.closed_until_s = [-math.inf] * len(world.machines)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.runs: list[Run] = []
        self.kills: list[Kill] = []
        self.now_s = 0.0
        self.jobs = jobs_of(world)

    # What may be allocated.

    def free(self) -> tuple[list[list[float]], list[list[list[float]]]]:
        """Return the free CPU and memory of machines, and compute and memory of devices, under the bound on risk."""
        arm, factor = self.world.reserving, self.world.reserving.overcommit
        z = self.policy.z if arm.policy is not None and arm.peak_margin == 0.0 else 0.0
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
                on = [(j.reserved, 1.0 / len(i.devices)) for j, i in self.placed() if i.machine == m and number in i.devices]
                own.append([factor[2] * size - bound(on, GPU, z), factor[2] * size - held(on, GPU)])
            devices.append(own)
        return machines, devices

    def placed(self) -> list[tuple[Job, Instance]]:
        return [(job, each) for job in self.running for each in job.instances]

    def sizes(self, job: Job) -> tuple[list[float], list[float]]:
        """Return the compute and the memory that must be free for an instance: after a kill its request."""
        if job.full:
            return job.request, job.memory
        arm = self.world.reserving
        z = self.policy.z if arm.policy is not None and arm.peak_margin == 0.0 else 0.0
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
                wide = math.ceil(job.request[GPU] / 1000.0) if self.by_device else min(1, math.ceil(job.request[GPU]))
                fitting = [
                    number
                    for number, (compute, own) in enumerate(devices[m])
                    if wide and compute + ROUNDING >= gpu / wide and own + ROUNDING >= gpu_memory / wide
                    if self.gpus[m][number] > 0.0
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

    # The queue.

    def next_of(self, left: list[Job]) -> Job:
        """Return the next job of those not yet tried: in queue order, under DRF of the user with the least share."""
        in_order = sorted(left, key=lambda job: (job.key, job.serial))
        if self.world.discipline.policy != "drf":
            return in_order[0]
        total = [sum(row[0] for row in self.capacity), sum(row[1] for row in self.capacity), sum(map(sum, self.gpus))]

        def dominant(user: int) -> float:
            held = [0.0, 0.0, 0.0]
            for job in self.running:
                (cpu, gpu), (memory, _) = self.sizes(job)
                if job.user == user:
                    held = [h + len(job.instances) * s for h, s in zip(held, (cpu, memory, gpu), strict=True)]
            return max(h / max(t, 1.0) for h, t in zip(held, total, strict=True))

        shares = {user: round(dominant(user), 12) for user in {job.user for job in left}}
        return min(in_order, key=lambda job: shares[job.user])

    def round(self) -> None:
        machines, devices = self.free()
        left = list(self.waiting)
        while left:
            job = self.next_of(left)
            left.remove(job)
            if self.find(job, machines, devices):
                self.waiting.remove(job)
                self.start(job)

    def start(self, job: Job) -> None:
        self.running.append(job)
        job.left_s, job.age, job.speed, job.start_s = job.run_s, 0, 1.0, self.now_s
        job.pressed_s, job.samples = -math.inf, []
        job.reserved = whole(job) if job.full else copied(job.prior)
        for each in job.instances:
            each.used = [0.0, 0.0]
        self.runs.append(Run(job.row, self.now_s, [each.machine for each in job.instances]))
        self.demand(job)

    def end(self, job: Job, ending: str) -> None:
        self.running.remove(job)
        run = [run for run in self.runs if run.job == job.row][-1]
        run.end_s, run.ending = self.now_s, ending
        job.full = job.full or ending == "killed"

    # What jobs demand, and what they get.

    def demand(self, job: Job) -> None:
        """Draw what a job demands in the minute that begins."""
        varies = self.world.variation
        level = job.ramp_level if job.age * MINUTE_S < job.ramp_s else 1.0
        for at in (CPU, GPU):
            keep = math.exp(-MINUTE_S / varies.slow_s) if job.age else 0.0
            job.slow[at] = step(job.slow[at], keep, self.normal(job, -1, at))
            keep = math.exp(-MINUTE_S / (varies.cpu_s if at == CPU else varies.gpu_s)) if job.age else 0.0
            for each in job.instances:
                each.fast[at] = step(each.fast[at], keep, self.normal(job, each.number, at))
                mixed = math.sqrt(varies.slow_share) * job.slow[at] + math.sqrt(1.0 - varies.slow_share) * each.fast[at]
                noise = math.exp(job.sigma[at] * mixed - 0.5 * job.sigma[at] ** 2)
                each.need[at] = min(job.limit[at], level * job.scale[at] * noise)

    def normal(self, job: Job, instance: int, at: int) -> float:
        """Return a standard normal number by Box and Muller."""
        one, other = (uniform(self.world.seed, job.serial, instance, job.age, 2 * at + more) for more in (0, 1))
        return math.sqrt(-2.0 * math.log(one)) * math.cos(2.0 * math.pi * other)

    def share(self) -> None:
        """Share compute by max-min filling; a machine that is saturated, or has such a device, closes."""
        machine_level, device_level, use = {}, {}, {}
        for m, (cpu, _) in enumerate(self.capacity):
            here = [(each.need[CPU], job.request[CPU]) for job, each in self.placed() if each.machine == m]
            machine_level[m] = water_level(here, cpu)
            for number, size in enumerate(self.gpus[m]):
                on = [
                    (each.need[GPU] / len(each.devices), job.request[GPU] / len(each.devices))
                    for job, each in self.placed()
                    if each.machine == m and number in each.devices
                ]
                device_level[m, number] = water_level(on, size)
                use[m, number] = sum(need for need, _ in on)
            levels = [machine_level[m], *(device_level[m, number] for number in range(len(self.gpus[m])))]
            if min(levels) < math.inf and self.world.reserving.policy is not None:
                self.closed_until_s[m] = self.now_s + self.policy.close_s
        for job in self.running:
            speeds = []
            for each in job.instances:
                m, (cpu, gpu) = each.machine, each.need
                each.share = [min(cpu, machine_level[m] * job.request[CPU]) if cpu > 0.0 else 0.0, gpu]
                speeds.append(each.share[CPU] / cpu if cpu > 0.0 else 1.0)
                if gpu > 0.0:
                    each.share[GPU] = min(gpu, job.request[GPU] * min(device_level[m, d] for d in each.devices))
                    # Of each device, what is in use by others, as a share of the device.
                    busy = max(
                        (min(use[m, d], self.gpus[m][d]) - gpu / len(each.devices)) / self.gpus[m][d]
                        for d in each.devices
                    )
                    slowed = 1.0 - self.world.variation.interference * min(max(busy, 0.0), 1.0)
                    speeds[-1] = min(speeds[-1], each.share[GPU] / gpu) * slowed
            job.speed = max(min(speeds), 1e-6)

    def work(self, step_s: float) -> None:
        for job in self.running:
            job.left_s -= job.speed * step_s
            got = [1.0, 1.0]
            for each in job.instances:
                for at in (CPU, GPU):
                    each.used[at] += each.share[at] * step_s
                    if each.need[at] > 0.0:
                        got[at] = min(got[at], each.share[at] / each.need[at])
            job.lost_s[CPU if got[CPU] < got[GPU] else GPU] += (1.0 - job.speed) * step_s

    def overfull(self) -> Kill | None:
        """Return the next kill: of the first machine or device whose memory does not suffice."""
        for m, (_, memory) in enumerate(self.capacity):
            here = [(job, 1.0) for job, each in self.placed() if each.machine == m]
            if sum(job.uses(CPU) for job, _ in here) > memory * (1.0 + 1e-9):
                return Kill(self.now_s, furthest_over(here, CPU).row, m, -1)
            for number, size in enumerate(self.gpus[m]):
                on = [(j, 1.0 / len(i.devices)) for j, i in self.placed() if i.machine == m and number in i.devices]
                if sum(job.uses(GPU) * part for job, part in on) > size * (1.0 + 1e-9):
                    return Kill(self.now_s, furthest_over(on, GPU).row, m, number)
        return None

    def kill(self) -> bool:
        killed = False
        while len(self.kills) < 3 * len(self.jobs) + 64 and (one := self.overfull()):
            killed = True
            self.kills.append(one)
            job = next(job for job in self.running if job.row == one.job)
            self.end(job, "killed")
            self.waiting.append(job)
        return killed

    # What is measured, and reserved from it.

    def sample(self, job: Job) -> None:
        varies, used = self.world.variation, [[i.used[at] / MINUTE_S for i in job.instances] for at in (CPU, GPU)]
        for each in job.instances:
            each.used = [0.0, 0.0]
        lost = varies.lost > 0.0 and uniform(self.world.seed, job.serial, -2, job.age, 0) < varies.lost
        if job.age > 1 and not lost:
            job.samples.append(Sample(job.age, self.now_s, used, [job.uses(CPU), job.uses(GPU)]))

    def reserve(self, job: Job) -> None:
        policy, arm = self.policy, self.world.reserving
        age = max(job.age - job.late_min, 0)
        seen = [one for one in job.samples if one.minute <= age]
        newest_s = seen[-1].at_s if seen else job.start_s
        measured = not (
            job.full
            or age * MINUTE_S < policy.probation_s
            or len(seen) < policy.min_samples
            or self.now_s - newest_s > policy.stale_s
            or self.now_s - job.pressed_s < policy.press_s
        )
        if not measured:
            newcomer = job.age * MINUTE_S < policy.probation_s and not job.full
            job.reserved = copied(job.prior) if newcomer else whole(job)
        for at in (CPU, GPU):
            largest = max((one.memory[at] for one in seen), default=0.0)
            if measured:
                job.reserved.memory[at] = min(job.memory[at], policy.memory_margin * largest)
                means = [fmean(one.used[at]) for one in seen]
                if arm.peak_margin > 0.0:
                    job.reserved.mean[at] = min(job.request[at], arm.peak_margin * max(means))
                    job.reserved.sd[at] = 0.0
                else:
                    self.reserve_compute(job, at, [one.used[at] for one in seen])
            job.reserved.memory[at] = max(job.reserved.memory[at], largest)

    def reserve_compute(self, job: Job, at: int, used: list[list[float]]) -> None:
        policy, values = self.policy, [value for minute in used for value in minute]
        recent = fmean(used[0])
        for minute in used[1:]:
            recent += (fmean(minute) - recent) / 3.0
        mean = min(max(fmean(values), recent), job.request[at])
        deviation = math.sqrt(sum((v - fmean(values)) ** 2 for v in values) / max(len(values) - 1, 1))
        sd = max(deviation, policy.least_spread * mean)
        if policy.z > 0.0:
            sd = min(sd, (job.request[at] - mean) / policy.z)
        job.reserved.mean[at], job.reserved.sd[at] = mean, sd
        if recent > fmean(values) + policy.press_z * sd and fmean(values) < job.request[at]:
            job.pressed_s = self.now_s

    # Time.

    def run(self) -> "Reference":
        horizon_s, coming, minute_s, killed = self.world.horizon_s, list(self.jobs), MINUTE_S, False
        while True:
            times = [self.now_s + max(job.left_s, 0.0) / job.speed for job in self.running]
            times += [coming[0].arrive_s] if coming else []
            may_start = self.waiting and (killed or max(self.closed_until_s) > self.now_s)
            times += [minute_s] if self.running or may_start else []
            if not times or min(times) > horizon_s:
                break
            self.work(min(times) - self.now_s)
            self.now_s = min(times)
            for job in [job for job in self.running if job.left_s <= 1e-9 * max(1.0, job.run_s)]:
                self.end(job, "completed")
            while coming and coming[0].arrive_s <= self.now_s:
                self.waiting.append(coming.pop(0))
            if self.now_s >= minute_s:
                for job in self.running:
                    job.age += 1
                    self.sample(job)
                    if self.world.reserving.policy is not None and not self.world.reserving.fixed:
                        self.reserve(job)
                    self.demand(job)
                minute_s = MINUTE_S * (math.floor(self.now_s / MINUTE_S) + 1)
            self.round()
            killed = self.kill()
            if killed:
                self.round()
                killed = self.kill()
            self.share()
        if horizon_s < math.inf:
            self.work(horizon_s - self.now_s)
            self.now_s = horizon_s
        for job in self.running:
            run = [run for run in self.runs if run.job == job.row][-1]
            run.end_s = self.now_s + job.left_s / job.speed
        return self


def step(before: float, keep: float, fresh: float) -> float:
    """Return the next value of an autoregressive series of standard normal numbers."""
    return keep * before + math.sqrt(1.0 - keep * keep) * fresh


def bound(reserved: list[tuple[Reserved, float]], at: int, z: float) -> float:
    """Return what is reserved with a risk: the sum of means plus z standard deviations of the sum."""
    mean = sum(one.mean[at] * part for one, part in reserved)
    return mean + z * math.sqrt(sum((one.sd[at] * part) ** 2 for one, part in reserved))


def held(reserved: list[tuple[Reserved, float]], at: int) -> float:
    return sum(one.memory[at] * part for one, part in reserved)


def whole(job: Job) -> Reserved:
    return Reserved(list(job.request), [0.0, 0.0], list(job.memory))


def copied(one: Reserved) -> Reserved:
    return Reserved(list(one.mean), list(one.sd), list(one.memory))


def water_level(wants: list[tuple[float, float]], capacity: float) -> float:
    """Return the level up to which everyone gets its demand per unit of weight; infinity if all demands fit.

    `wants` holds pairs of demand and weight. Those who want least per unit of weight are served first.
    """
    if sum(need for need, _ in wants) <= capacity * (1.0 + 1e-9):
        return math.inf
    left, weight = capacity, sum(weight for _, weight in wants)
    for need, own in sorted((want for want in wants if want[1] > 0.0), key=lambda want: want[0] / want[1]):
        if need / own * weight > left:
            return left / weight
        left, weight = left - need, weight - own
    return math.inf


def furthest_over(here: list[tuple[Job, float]], at: int) -> Job:
    """Return the job whose memory exceeds its reservation most; those killed before and within it go last."""

    def rank(one: tuple[Job, float]) -> tuple[bool, float]:
        over = (one[0].uses(at) - one[0].reserved.memory[at]) * one[1]
        return (not (one[0].full and over <= 0.0), over)

    best: tuple[Job, float] = max(here, key=rank)
    return best[0]
