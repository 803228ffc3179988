"""Six placements and fragmentation as one reads them, in plain Python on lists; and small clusters to try them on.

Nothing is asserted here. Imported by the tests of fragmentation, of device placements and of inflation.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction

from hypothesis import strategies as st

from scheduler_core.cluster import Demand, Machine
from scheduler_core.gangs import shape
from scheduler_core.target import TargetWorkload

MOST_CPU, MOST_GPU = 16_000, 4_000
"""Of the largest machine that `CLUSTERS` draws: there is always one such."""


@dataclass
class Box:
    """One machine, free."""

    cpu: int
    mem: int
    gpus: list[int]
    gpu_type: str | None
    sizes: Counter[object] = field(default_factory=Counter)

    def copy(self) -> "Box":
        return Box(self.cpu, self.mem, list(self.gpus), self.gpu_type, Counter(self.sizes))


@dataclass(frozen=True)
class Ask:
    """One instance."""

    cpu: int
    mem: int
    count: int
    milli: int
    gpu_type: str | None

    @property
    def size(self) -> object:
        return "part" if self.milli < 1000 else self.count


def boxes_of(machines: list[Machine]) -> list[Box]:
    return [Box(round(m.cpu_cores * 1000), round(m.mem_gib * 1024), [1000] * m.gpus, m.gpu_type) for m in machines]


def ask_of(demand: Demand) -> Ask:
    count, milli = shape(demand.units[2])
    return Ask(demand.units[0], demand.units[1], count, milli, demand.gpu_type)


def allowed(box: Box, gpu_type: str | None) -> bool:
    return gpu_type is None or box.gpu_type in gpu_type.split("|")


def fits(box: Box, ask: Ask) -> bool:
    enough = len([free for free in box.gpus if free >= ask.milli]) >= ask.count
    return allowed(box, ask.gpu_type) and box.cpu >= ask.cpu and box.mem >= ask.mem and enough


def fragment(box: Box, cpu: int, count: int, milli: int, gpu_type: str | None) -> int:
    """F_n(m) as the paper defines it."""
    if count == 0 or not allowed(box, gpu_type):
        return sum(box.gpus)
    if box.cpu < cpu or len([free for free in box.gpus if free >= milli]) < count:
        return sum(box.gpus)
    return sum(free for free in box.gpus if free < milli)


def fragmentation(box: Box, target: TargetWorkload) -> Fraction:
    shapes = zip(target.cpu_milli.tolist(), target.count.tolist(), target.milli.tolist(), target.gpu_type, strict=True)
    found = [fragment(box, *each) for each in shapes]
    return Fraction(sum(f * pods for f, pods in zip(found, target.pods.tolist(), strict=True)), max(target.total, 1))


def taken(box: Box, ask: Ask, devices: list[int]) -> Box:
    after = box.copy()
    after.cpu -= ask.cpu
    after.mem -= ask.mem
    for device in devices:
        after.gpus[device] -= ask.milli
    if ask.count:
        after.sizes[ask.size] += 1
    return after


def usual_devices(box: Box, ask: Ask) -> list[int]:
    """The smallest sufficient device, or the first idle ones."""
    sufficient = [device for device, free in enumerate(box.gpus) if free >= ask.milli]
    return sorted(sufficient, key=lambda device: box.gpus[device])[: ask.count]


def gradient(box: Box, ask: Ask, devices: list[int], target: TargetWorkload) -> int:
    less = (fragmentation(box, target) - fragmentation(taken(box, ask, devices), target)) / 1000
    return math.floor(1 / (1 + math.exp(-less)) * 100)


def fgd(box: Box, ask: Ask, target: TargetWorkload) -> tuple[int, list[int]]:
    if ask.count != 1 or ask.milli == 1000:
        devices = usual_devices(box, ask)
        return gradient(box, ask, devices, target), devices
    choices = [[device] for device, free in enumerate(box.gpus) if free >= ask.milli]
    best = max(choices, key=lambda devices: gradient(box, ask, devices, target))
    return gradient(box, ask, best, target), best


def dot_product(box: Box, ask: Ask) -> int:
    cpu = box.cpu / MOST_CPU * (ask.cpu / MOST_CPU)
    gpu = sum(box.gpus) / MOST_GPU * (ask.count * ask.milli / MOST_GPU)
    return math.floor(100 * (1 - (cpu + gpu) / 2))


def best_fit_gpu(box: Box, ask: Ask) -> int:
    cpu = (box.cpu - ask.cpu) / MOST_CPU
    gpu = (sum(box.gpus) - ask.count * ask.milli) / MOST_GPU
    return math.floor((1 - (cpu * 0.5 + gpu * 0.5)) * 100)


def gpu_packing(box: Box, ask: Ask) -> int:
    if ask.count == 0:
        return 0
    idle = len([free for free in box.gpus if free == 1000])
    if idle == len(box.gpus):
        return max(33 - idle, idle)
    used = [box.gpus[device] for device in usual_devices(box, ask)]
    if 1000 in used:
        return max(50 - used.count(1000), 33)
    return max(100 - sum(free * 100 // 1000 for free in used) // 10, 50)


def gpu_clustering(box: Box, ask: Ask) -> int:
    if ask.count == 0:
        return 0
    there = {size for size, number in box.sizes.items() if number}
    floor = (75 if len(there) == 1 else 50) if ask.size in there else 0 if there else 25
    return floor + 25 * (MOST_GPU - sum(box.gpus)) // MOST_GPU


BASELINES = {
    "dot_product": dot_product,
    "best_fit_gpu": best_fit_gpu,
    "gpu_packing": gpu_packing,
    "gpu_clustering": gpu_clustering,
}


def decide(policy: str, boxes: list[Box], ask: Ask, target: TargetWorkload) -> tuple[int, list[int]] | None:
    """The machine and its devices; the first of equals."""
    scored: list[tuple[int, int, list[int]]] = []
    for at, box in enumerate(boxes):
        if fits(box, ask) and policy == "fgd":
            score, devices = fgd(box, ask, target)
            scored.append((-score, at, devices))
        elif fits(box, ask):
            scored.append((-BASELINES[policy](box, ask), at, usual_devices(box, ask)))
    return min(scored)[1:] if scored else None


TYPES = (None, "T4", "V100")
GPU_UNITS = st.sampled_from([0, 100, 300, 500, 500, 700, 1000, 1000, 2000, 4000])
DEMANDS = st.builds(
    lambda cpu, mem, gpu, gpu_type: Demand(units=(cpu, mem, gpu), instances=1, gpu_type=gpu_type if gpu else None),
    cpu=st.sampled_from([0, 500, 2000, 4000, 8000]),
    mem=st.sampled_from([0, 512, 4096]),
    gpu=GPU_UNITS,
    gpu_type=st.sampled_from([None, None, "T4", "V100", "T4|V100"]),
)
MACHINES = st.builds(
    lambda cores, mem, gpus, gpu_type: Machine(
        name="m", cpu_cores=cores, mem_gib=mem, gpus=gpus, gpu_type=gpu_type if gpus else None
    ),
    cores=st.sampled_from([4.0, 8.0, 16.0]),
    mem=st.sampled_from([4.0, 16.0]),
    gpus=st.sampled_from([0, 1, 2, 4]),
    gpu_type=st.sampled_from(TYPES),
)
CLUSTERS = st.lists(MACHINES, min_size=0, max_size=4).map(
    lambda drawn: [
        *(replace(machine, name=f"m{at}") for at, machine in enumerate(drawn)),
        Machine(name="large", cpu_cores=16.0, mem_gib=16.0, gpus=4, gpu_type="T4"),
    ]
)
