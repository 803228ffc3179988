"""Shared machines as one reads about them: slow, in plain Python, every sum from scratch and every sample kept.

Only what jobs demand comes from the engine: the variation drawn for each job, and its random numbers. Nothing is
asserted here. Imported by the tests of this folder.
"""

import math
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from pipelines.simulation.shared.use import uniform
from tests.pipelines.simulation.shared.reference_jobs import CPU, GPU, Job, Reserved, Sample
from tests.pipelines.simulation.shared.reference_machines import Machines
from tests.pipelines.simulation.shared.worlds import World

MINUTE_S = 60.0
LUCID = ([0.4, 0.5, 0.7, 0.9, 1.0], [1.0, 0.98, 0.96, 0.85, 0.8])
"""Joint use of a device, and the mean speed of the jobs that share it."""


def drawn(*key: int) -> float:
    """Return a uniform number of the simulation; the hash behind it wraps around."""
    with np.errstate(over="ignore"):
        return uniform(*map(np.int64, key))


@dataclass
class Run:
    job: int
    start_s: float
    hosts: list[int]
    end_s: float = math.nan
    ending: str = "running"


class Reference(Machines):
    """One simulation; `runs`, `kills`, `presses` and the `lost_s` of jobs are what happened.

    `presses` counts the minutes for which a job has its request of CPU or GPU compute back.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.runs: list[Run] = []
        self.kills = 0
        self.presses = 0

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
        job.left_s, job.age, job.speed = job.run_s, 0, 1.0
        job.samples = []
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
                each.need[at] = min(job.request[at], level * job.scale[at] * noise)

    def normal(self, job: Job, instance: int, at: int) -> float:
        """Return a standard normal number by Box and Muller."""
        one, other = (drawn(self.world.seed, job.serial, instance, job.age, 2 * at + more) for more in (0, 1))
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
                    # Of the devices that other jobs use too, how full the fullest is.
                    joint = [use[m, d] / self.gpus[m][d] for d in each.devices if use[m, d] > own_use(job, m, d) + 1e-6]
                    slows = self.world.variation.interference and self.by_device and joint
                    slowed = float(np.interp(max(joint), *LUCID)) if slows else 1.0
                    speeds[-1] = min(speeds[-1], each.share[GPU] / gpu) * slowed
            job.speed = max(min(speeds), 1e-6)

    def work(self, step_s: float) -> None:
        for job in self.running:
            job.left_s -= job.speed * step_s
            job.lost_s += (1.0 - job.speed) * step_s
            for each in job.instances:
                for at in (CPU, GPU):
                    each.used[at] += each.share[at] * step_s

    def overfull(self) -> Job | None:
        """Return the next job to kill: of the first machine or device whose memory does not suffice."""
        for m, (_, memory) in enumerate(self.capacity):
            here = [(job, 1.0) for job, each in self.placed() if each.machine == m]
            if sum(job.uses(CPU) for job, _ in here) > memory * (1.0 + 1e-9):
                return furthest_over(here, CPU)
            for number, size in enumerate(self.gpus[m]):
                on = self.on(m, number)
                if sum(job.uses(GPU) * part for job, part in on) > size * (1.0 + 1e-9):
                    return furthest_over(on, GPU)
        return None

    def kill(self) -> bool:
        killed = False
        while self.kills < 3 * len(self.jobs) + 64 and (job := self.overfull()):
            killed = True
            self.kills += 1
            self.end(job, "killed")
            self.waiting.append(job)
        return killed

    # What is measured, and reserved from it.

    def sample(self, job: Job) -> None:
        used = [[i.used[at] / MINUTE_S for i in job.instances] for at in (CPU, GPU)]
        for each in job.instances:
            each.used = [0.0, 0.0]
        if job.age > 1:
            job.samples.append(Sample(self.now_s, used, [job.uses(CPU), job.uses(GPU)]))
            job.samples[-1].presses = [self.pressing(job, at) for at in (CPU, GPU)]

    def pressing(self, job: Job, at: int) -> bool:
        """Return whether the newest sample lifts recent use far above the mean of the samples before it."""
        policy, before = self.policy, [one.used[at] for one in job.samples[:-1]]
        if job.age * MINUTE_S < policy.probation_s or len(before) < policy.min_samples:
            return False
        mean, deviation = statistics_of(before)
        level = mean + policy.press_z * max(deviation, policy.least_spread * mean)
        return mean < job.request[at] and recent_of([one.used[at] for one in job.samples]) > level

    def reserve(self, job: Job) -> None:
        policy, seen = self.policy, job.samples
        measured = not (job.full or job.age * MINUTE_S < policy.probation_s or len(seen) < policy.min_samples)
        if not measured:
            newcomer = job.age * MINUTE_S < policy.probation_s and not job.full
            job.reserved = copied(job.prior) if newcomer else whole(job)
        for at in (CPU, GPU):
            largest = max((one.memory[at] for one in seen), default=0.0)
            with_margin = policy.memory_margin * largest
            if measured:
                job.reserved.memory[at] = min(job.memory[at], with_margin)
                self.reserve_compute(job, at, seen)
            job.reserved.memory[at] = max(job.reserved.memory[at], largest) if job.memory[at] else with_margin

    def reserve_compute(self, job: Job, at: int, seen: list[Sample]) -> None:
        policy, asked = self.policy, job.request[at]
        if any(one.presses[at] and self.now_s - one.at_s < policy.press_s for one in seen):
            job.reserved.mean[at], job.reserved.sd[at] = asked, 0.0
            self.presses += 1
            return
        used = [one.used[at] for one in seen]
        (mean, deviation), recent = statistics_of(used), recent_of(used)
        kept = min(max(mean, recent), asked)
        room = (asked - kept) / policy.z if policy.z > 0.0 else math.inf
        job.reserved.mean[at] = kept
        job.reserved.sd[at] = min(max(deviation, policy.least_spread * kept), room)

    # Time.

    def run(self) -> "Reference":
        horizon_s, coming, minute_s, killed = self.world.horizon_s, list(self.jobs), MINUTE_S, False
        while True:
            times = [self.now_s + max(job.left_s, 0.0) / job.speed for job in self.running]
            times += [self.now_s + job.until_peak_s() / job.speed for job in self.running if job.until_peak_s() > 0.0]
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
                    if self.world.reserving.policy is not None:
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


def statistics_of(used: list[list[float]]) -> tuple[float, float]:
    """Return mean and standard deviation over all instances in all minutes."""
    values = [value for minute in used for value in minute]
    mean = fmean(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1))


def recent_of(used: list[list[float]]) -> float:
    """Return the recent mean of the minutes: after each, it moves a third of the way to it."""
    recent = fmean(used[0])
    for minute in used[1:]:
        recent += (fmean(minute) - recent) / 3.0
    return recent


def own_use(job: Job, machine: int, device: int) -> float:
    """Return the compute that a job demands of a device."""
    on = [each for each in job.instances if each.machine == machine and device in each.devices]
    return sum(each.need[GPU] / len(each.devices) for each in on)


def step(before: float, keep: float, fresh: float) -> float:
    """Return the next value of an autoregressive series of standard normal numbers."""
    return keep * before + math.sqrt(1.0 - keep * keep) * fresh


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
