"""The scheduler that continues from a snapshot of a cluster, with the constraints of jobs as classes of machines.

Checks what belongs together: names, machines that exist, room for every running job. Called by `decisions` and
`changes`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from scheduler_core.cluster import (
    ALTERNATIVES,
    UNIT_SLACK,
    UNITS,
    Allocation,
    Demand,
    Room,
    demand_of,
    in_devices,
)
from scheduler_core.devices import WHOLE, Sharing, Taken, bound, shape, slots
from scheduler_core.errors import BadInput, SchedulerError
from scheduler_core.gangs import Waiting
from scheduler_core.placement import Placement, placement_of, sharing_of
from scheduler_core.rounds import Scheduler
from scheduler_core.snapshot import MachineState, QueuedJob, RunningJob, Snapshot, Spot
from scheduler_core.target import TargetWorkload, target_of
from scheduler_core.types import RESOURCES, Request

NO_MACHINE: Final = "-"
"""Label that no machine has, for a job that no machine may run."""


class Remembering:
    """A placement that remembers in which free capacity it chose each allocation, by the allocation's `id`."""

    def __init__(self, place: Placement, sharing: Sharing) -> None:
        self.place, self.sharing = place, sharing
        self.chosen: dict[int, tuple[Allocation, Room]] = {}

    def __call__(self, demand: Demand, room: Room) -> Allocation | None:
        """Return the allocation that the placement chooses."""
        allocation = self.place(demand, room)
        if allocation is not None:
            self.chosen[id(allocation)] = allocation, room
        return allocation


class Scene:
    """A scheduler in the state of a snapshot, before the round that would start jobs of its queue.

    Serials number the running jobs, then the queue, in the order of the snapshot; `names` are their ids. GPU types,
    GPU memory and named machines become one label per class of machines, in place of the GPU type.

    Raises
    ------
    BadInput
        If two machines or two jobs have one name, a machine is unknown, or a running job exceeds what its machine has.
        The message begins with the field.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.names = _names(snapshot)
        self.jobs = {len(snapshot.running) + at: job for at, job in enumerate(snapshot.jobs)}
        self._places = {state.machine.name: at for at, state in enumerate(snapshot.machines)}
        self._labels = self._classes()
        self._sharing = _sharing(snapshot)
        queue = [self.waiting(serial, job) for serial, job in self.jobs.items()]
        runs = [self._demand(job.request, sum(spot.instances for spot in job.spots)) for job in snapshot.running]
        self.target = target_of([*runs, *(each.demand for each in queue)])
        self.place = Remembering(_placement(snapshot.rules.placement, self.target), self._sharing)
        machines = [
            replace(state.machine, gpu_type=self._labels[kind])
            for state, kind in zip(snapshot.machines, self._kinds, strict=True)
        ]
        rules = replace(snapshot.rules, placement=self.place, sharing=self._sharing, preempt=False)
        self.scheduler = Scheduler(machines, rules)
        self._start_running(runs)
        self._hold_the_rest()
        for each in queue:
            self.scheduler.enqueue(each)

    def waiting(self, serial: int, job: QueuedJob) -> Waiting:
        """Return a job as the scheduler's queue holds it; GPUs above one are rounded up where devices are shared."""
        demand = self._demand(job.request, job.instances, self._allowed(job))
        return Waiting(
            serial=serial,
            arrived_s=-job.waited_s,
            request=demand,
            granted=demand,
            predicted_s=job.run_time_s,
            user=job.user,
            priority=job.priority,
        )

    def _demand(self, request: Request, instances: int, gpu_type: str | None = None) -> Demand:
        demand = demand_of(request, instances, gpu_type)
        return in_devices(demand) if self._sharing == "devices" else demand

    def excluded(self, job: QueuedJob) -> dict[str, int]:
        """Return how many machines a job may not use at all, by constraint; a machine counts once."""
        counts = {"machines": 0, "gpu_type": 0, "device_mem_gib": 0}
        named = frozenset(job.machines)
        for kind in self._kinds:
            wrong = _constraint(job, named, *kind)
            if wrong is not None:
                counts[wrong] += 1
        return counts

    def spots(self, allocation: Allocation) -> tuple[Spot, ...]:
        """Return where an allocation is."""
        return tuple(
            Spot(
                machine=self.snapshot.machines[machine].machine.name,
                instances=count,
                devices=tuple(device for at, device, _ in allocation.devices if at == machine),
            )
            for machine, count in allocation.counts
        )

    def _classes(self) -> dict["Kind", str]:
        pinned: set[str] = set()
        for at, job in enumerate(self.snapshot.jobs):
            for place, name in enumerate(job.machines):
                self._check_known(name, f"jobs.{at}.machines.{place}")
            pinned |= set(job.machines)
        self._kinds: list[Kind] = [
            (of.machine.gpu_type, of.device_mem_gib, of.machine.name if of.machine.name in pinned else None)
            for of in self.snapshot.machines
        ]
        return {kind: str(at) for at, kind in enumerate(dict.fromkeys(self._kinds))}

    def _allowed(self, job: QueuedJob) -> str | None:
        named = frozenset(job.machines)
        labels = [label for kind, label in self._labels.items() if _constraint(job, named, *kind) is None]
        return None if len(labels) == len(self._labels) else ALTERNATIVES.join(labels) or NO_MACHINE

    def _check_known(self, name: str, where: str) -> None:
        if name not in self._places:
            raise BadInput(
                f"{where}: found {name[:40]!r}, expected one of the {len(self._places)} machines of the call"
            )

    def _start_running(self, demands: Sequence[Demand]) -> None:
        # Jobs whose GPUs are named go first: the others take GPUs that are left.
        order = sorted(enumerate(self.snapshot.running), key=lambda each: not all(s.devices for s in each[1].spots))
        for serial, job in order:
            where, demand = f"running.{serial}", demands[serial]
            for place, spot in enumerate(job.spots):
                self._check_known(spot.machine, f"{where}.on.{place}.machine")
            counts = tuple((self._places[spot.machine], spot.instances) for spot in job.spots)
            if len({machine for machine, _ in counts}) < len(counts):
                raise BadInput(f"{where}.on: found a machine twice, expected each once, with its number of instances")
            devices = self._devices(job, demand, where)
            waiting = Waiting(
                serial=serial, arrived_s=0.0, request=demand, granted=demand, predicted_s=job.ends_in_s, user=job.user
            )
            try:
                self.scheduler.occupancy.start(waiting, Allocation(demand=demand, counts=counts, devices=devices), 0.0)
            except SchedulerError:
                raise _exceeds(where) from None

    def _devices(self, job: RunningJob, demand: Demand, where: str) -> Taken:
        """Return the GPUs that a running job holds: those it names, else by best fit."""
        free = self.scheduler.occupancy.cluster.devices
        count, milli = shape(demand.units[2])
        if free is None or not count:
            return ()
        taken: list[tuple[int, int, int]] = []
        for place, spot in enumerate(job.spots):
            machine = self._places[spot.machine]
            if not spot.devices:
                if slots(free[machine : machine + 1], demand.units[2])[0] < spot.instances:
                    raise _exceeds(where)
                taken += bound(free, demand.units[2], [(machine, spot.instances)])
                continue
            gpus = self.snapshot.machines[machine].machine.gpus
            if len(spot.devices) != count * spot.instances or max(spot.devices) >= gpus:
                raise BadInput(
                    f"{where}.on.{place}.devices: found {list(spot.devices)[:8]}, expected {count * spot.instances} "
                    f"GPUs, {count} for each instance, by index from 0 to {gpus - 1}"
                )
            taken += [(machine, device, milli) for device in spot.devices]
        return tuple(taken)

    def _hold_the_rest(self) -> None:
        """Take what is neither free nor held by a listed job, and close machines."""
        cluster = self.scheduler.occupancy.cluster
        for at, state in enumerate(self.snapshot.machines):
            if state.closed:
                cluster.down(at)
            rest = [
                0 if math.isnan(free) else own - math.floor(free * unit + UNIT_SLACK)
                for own, free, unit in zip(cluster.free[at].tolist(), state.free.row(), UNITS, strict=True)
            ]
            for name, amount in zip(RESOURCES, rest, strict=True):
                if amount < 0:
                    raise BadInput(
                        f"machines.{at}.free.{name}: found more than the machine has beside its running jobs; "
                        "expected what is free now"
                    )
            taken: Taken = ()
            if cluster.devices is not None:
                taken = _rest_of_devices(at, state, cluster.devices[at, : state.machine.gpus].tolist(), rest[2])
                rest[2] = sum(milli for _, _, milli in taken)
            if any(rest):
                demand = Demand(units=(rest[0], rest[1], rest[2]), instances=1)
                cluster.allocate(Allocation(demand=demand, counts=((at, 1),), devices=taken))


def _rest_of_devices(at: int, state: MachineState, left: Sequence[int], rest: int) -> Taken:
    """Return what others hold of each GPU of a machine; if only their sum is known, they hold the last GPUs."""
    if not state.free_devices:
        held = [0] * len(left)
        for device in reversed(range(len(left))):
            held[device] = min(left[device], rest)
            rest -= held[device]
        return tuple((at, device, milli) for device, milli in enumerate(held) if milli)
    where = f"machines.{at}.free.devices"
    if len(state.free_devices) != len(left):
        raise BadInput(
            f"{where}: found {len(state.free_devices)} shares, expected one for each of the {len(left)} GPUs"
        )
    held = [own - math.floor(free * WHOLE + UNIT_SLACK) for own, free in zip(left, state.free_devices, strict=True)]
    if min(held, default=0) < 0:
        raise BadInput(
            f"{where}.{held.index(min(held))}: found more than the GPU has beside the running jobs; "
            "expected what is free now"
        )
    return tuple((at, device, milli) for device, milli in enumerate(held) if milli)


Kind = tuple[str | None, float, str | None]
"""GPU type, memory of each GPU, and name if a job names the machine: what constraints of jobs look at."""


def _constraint(
    job: QueuedJob, named: frozenset[str], gpu_type: str | None, device_mem_gib: float, name: str | None
) -> str | None:
    """Return the constraint by which a job may not use machines of a kind; None if it may."""
    if named and name not in named:
        return "machines"
    if job.gpu_type is not None and gpu_type not in job.gpu_type.split(ALTERNATIVES):
        return "gpu_type"
    return "device_mem_gib" if job.device_mem_gib > 0.0 and not device_mem_gib >= job.device_mem_gib else None


def _exceeds(where: str) -> BadInput:
    return BadInput(f"{where}: the job needs more than its machine has beside the other running jobs; correct one")


def _names(snapshot: Snapshot) -> list[str]:
    _check_distinct("machines.{}.machine", [state.machine.name for state in snapshot.machines])
    running, queued = [job.job_id for job in snapshot.running], [job.job_id for job in snapshot.jobs]
    _check_distinct("running.{}.job_id", running)
    _check_distinct("jobs.{}.job_id", queued, frozenset(running))
    return running + queued


def _check_distinct(where: str, names: Sequence[str], others: frozenset[str] = frozenset()) -> None:
    seen = set(others)
    for at, name in enumerate(names):
        if name in seen:
            raise BadInput(f"{where.format(at)}: found {name[:40]!r} twice, expected a different one for each")
        seen.add(name)


def _sharing(snapshot: Snapshot) -> Sharing:
    named = any(state.free_devices for state in snapshot.machines) or any(
        spot.devices for job in snapshot.running for spot in job.spots
    )
    return sharing_of(snapshot.rules.placement, snapshot.rules.sharing or ("devices" if named else None))


def _placement(placement: str | Placement, target: TargetWorkload) -> Placement:
    """Return a placement; one by device keeps GPUs usable for `target`, the running and the waiting jobs."""
    if not isinstance(placement, str) or sharing_of(placement) == "pooled":
        return placement_of(placement)
    # Import numba only for placements by device, since that takes seconds.
    from scheduler_core.sharing_placements import DevicePlacement

    return DevicePlacement(placement, target)
