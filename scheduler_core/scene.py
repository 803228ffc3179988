"""The cluster of a snapshot before the next round, with the constraints of jobs as classes of machines.

It checks that names are unique, that named machines exist, and that every running job has room.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from scheduler_core.cluster import (
    ALTERNATIVES,
    Allocation,
    Cluster,
    Demand,
    Room,
    demand_of,
    in_devices,
    move,
)
from scheduler_core.engine import begun, effort_s, in_arrays, pays
from scheduler_core.errors import BadInput
from scheduler_core.gangs import Sharing, Taken, bound, shape
from scheduler_core.kernels.clock import enter
from scheduler_core.kernels.state import Placed, State, uncompiled, write_back
from scheduler_core.placement import sharing_of
from scheduler_core.queueing import Discipline, Jobs
from scheduler_core.snapshot import QueuedJob, RunningJob, Snapshot
from scheduler_core.target import target_of
from scheduler_core.types import FloatArray, Request

NO_MACHINE: Final = "-"
"""Label without a machine, for a job that may run on no machine."""


class Scene:
    """The cluster of a snapshot before the round that would start jobs of its queue.

    `room` is the free capacity beside the running jobs, also on the machines marked in `closed` (machines,).

    Serials number the running jobs, then the queue, in the order of the snapshot; `names` are their ids. GPU types,
    GPU memory and named machines become one label per class of machines, in place of the GPU type.

    `compiled` states whether compiled rules decide; by default, they do if that is faster.

    Raises
    ------
    BadInput
        If two machines or two jobs have one name, a machine is unknown, or a running job exceeds what its machine has.
        The message begins with the field.
    """

    def __init__(self, snapshot: Snapshot, *, compiled: bool | None = None) -> None:
        self.snapshot = snapshot
        self.names = _names(snapshot)
        self._demands = dict[Hashable, Demand]()
        self._allowed = dict[Hashable, str | None]()
        self.jobs = {len(snapshot.running) + at: job for at, job in enumerate(snapshot.jobs)}
        self._places = {state.machine.name: at for at, state in enumerate(snapshot.machines)}
        self._labels = self._classes()
        self._sharing = _sharing(snapshot)
        machines = [
            replace(state.machine, gpu_type=self._labels[kind])
            for state, kind in zip(snapshot.machines, self._kinds, strict=True)
        ]
        self.rules = replace(snapshot.rules, sharing=self._sharing, preempt=False, match_gpu_type=True)
        self.rules.preempts()
        if compiled is None:
            compiled = pays(effort_s(len(self.names), len(machines), self.rules))
        self.compiled = compiled
        self.cluster = Cluster(machines, self._sharing)
        self.room = self.cluster.empty
        self.closed = np.array([state.closed for state in snapshot.machines], dtype=np.bool_)
        demands = [self._demand(job.request, sum(spot.instances for spot in job.spots)) for job in snapshot.running]
        self.target = target_of([*demands, *(self.demand(job) for job in self.jobs.values())])
        self.running = self._start_running(demands)

    def demand(self, job: QueuedJob) -> Demand:
        """Return the demand of a waiting job; if devices are shared, more than one GPU is rounded up to whole GPUs."""
        constraints = job.machines, job.gpu_type, job.device_mem_gib
        if constraints not in self._allowed:
            self._allowed[constraints] = self._labels_for(job)
        return self._demand(job.request, job.instances, self._allowed[constraints])

    def columns(self, jobs: Mapping[int, QueuedJob], run_s: FloatArray | None = None) -> Jobs:
        """Return the running jobs and these waiting jobs as columns; without `run_s` (n,) no job ever ends."""
        running = self.snapshot.running
        demands = [*(each.demand for each in self.running.values()), *(self.demand(job) for job in jobs.values())]
        units = np.array([demand.units for demand in demands], dtype=np.int64).reshape(-1, 3)
        types = tuple(dict.fromkeys(demand.gpu_type for demand in demands if demand.gpu_type is not None))
        users = [*(job.user for job in running), *(job.user for job in jobs.values())]
        code = {user: number for number, user in enumerate(dict.fromkeys(users))}
        codes = [-1 if demand.gpu_type is None else types.index(demand.gpu_type) for demand in demands]
        given: dict[str, Sequence[float]] = {
            "arrive_s": [0.0 for _ in running] + [-job.waited_s for job in jobs.values()],
            "priority": [0.0 for _ in running] + [job.priority for job in jobs.values()],
            "predicted_s": [*(job.ends_in_s for job in running), *(job.run_time_s for job in jobs.values())],
        }
        columns = Jobs.of(
            units,
            np.array(codes, dtype=np.int64),
            types,
            instances=np.array([demand.instances for demand in demands], dtype=np.int64),
            user=np.array([code[user] for user in users], dtype=np.int64),
            **{name: np.array(values, dtype=np.float64) for name, values in given.items()},
        )
        return columns if run_s is None else replace(columns, run_s=run_s, granted_run_s=run_s)

    def state(
        self,
        columns: Jobs,
        rules: Discipline,
        runs: Mapping[int, Allocation],
        waiting: Sequence[int],
        horizon_s: float = 0.0,
    ) -> State:
        """Return the state in which jobs run on these allocations, the running jobs among them, and others wait."""
        room = in_arrays(self.room.only(~self.closed))
        state = begun(columns, self.cluster, rules, horizon_s=horizon_s, target=self.target)
        order = sorted(runs, key=lambda serial: serial not in self.running)
        given = _placed({serial: runs[serial] for serial in order}, state.log.devices.shape[1])
        entered = given, len(self.running), room, np.array(waiting, dtype=np.int64)
        if self.compiled:
            enter(state, *entered)
        else:
            rows = uncompiled(state)
            enter.py_func(rows, *entered)
            write_back(rows, state)
        state.cluster.away[:] = self.closed
        return state

    def _demand(self, request: Request, instances: int, gpu_type: str | None = None) -> Demand:
        known = *request.row(), instances, gpu_type
        if known not in self._demands:
            demand = demand_of(request, instances, gpu_type)
            self._demands[known] = in_devices(demand) if self._sharing == "devices" else demand
        return self._demands[known]

    def excluded(self, job: QueuedJob) -> dict[str, int]:
        """Return how many machines a job may not use at all, by constraint; a machine counts once."""
        counts = {"machines": 0, "gpu_type": 0, "device_mem_gib": 0}
        named = frozenset(job.machines)
        for kind, many in self._machines_of.items():
            wrong = _constraint(job, named, *kind)
            if wrong is not None:
                counts[wrong] += many
        return counts

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
        self._machines_of = Counter(self._kinds)
        return {kind: str(at) for at, kind in enumerate(self._machines_of)}

    def _labels_for(self, job: QueuedJob) -> str | None:
        named = frozenset(job.machines)
        labels = [label for kind, label in self._labels.items() if _constraint(job, named, *kind) is None]
        return None if len(labels) == len(self._labels) else ALTERNATIVES.join(labels) or NO_MACHINE

    def _check_known(self, name: str, where: str) -> None:
        if name not in self._places:
            raise BadInput(
                f"{where}: found {name[:40]!r}, expected one of the {len(self._places)} machines of the call"
            )

    def _start_running(self, demands: Sequence[Demand]) -> dict[int, Allocation]:
        # Jobs whose GPUs are named go first; other jobs take the GPUs that are left.
        order = sorted(enumerate(self.snapshot.running), key=lambda each: not all(s.devices for s in each[1].spots))
        room, free = self.room, self.room.free.tolist()
        devices, tenants = (None if each is None else each.tolist() for each in (room.devices, room.tenants))
        found: dict[int, Allocation] = {}
        for serial, job in order:
            where, demand = f"running.{serial}", demands[serial]
            for place, spot in enumerate(job.spots):
                self._check_known(spot.machine, f"{where}.on.{place}.machine")
            counts = tuple((self._places[spot.machine], spot.instances) for spot in job.spots)
            if len({machine for machine, _ in counts}) < len(counts):
                raise BadInput(f"{where}.on: found a machine twice, expected each once, with its number of instances")
            taken = self._devices(job, demand, devices, where)
            found[serial] = Allocation(demand=demand, counts=counts, devices=taken)
            move(found[serial], -1, free, devices, tenants)
            rows = [rows[machine] for rows in (free, devices) if rows is not None for machine, _ in counts]
            if any(min(row, default=0) < 0 for row in rows):
                raise _exceeds(where)
        parts = (None if each is None else np.array(each, dtype=np.int64) for each in (devices, tenants))
        self.room = Room(np.array(free, dtype=np.int64), room.largest, room.up, room.of_type, *parts)
        return dict(sorted(found.items()))

    def _devices(self, job: RunningJob, demand: Demand, free: list[list[int]] | None, where: str) -> Taken:
        """Return the GPUs that a running job holds: the named GPUs, or without names by best fit among `free` GPUs."""
        count, milli = shape(demand.units[2])
        if free is None or not count:
            return ()
        taken: list[tuple[int, int, int]] = []
        for place, spot in enumerate(job.spots):
            machine = self._places[spot.machine]
            if not spot.devices:
                if sum(own // milli for own in free[machine]) // count < spot.instances:
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


Kind = tuple[str | None, float, str | None]
"""Properties of a machine that constraints of jobs use: GPU type, memory of each GPU, and name if a job names it."""


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
    named = any(spot.devices for job in snapshot.running for spot in job.spots)
    return sharing_of(snapshot.rules.placement, snapshot.rules.sharing or ("devices" if named else None))


def _placed(runs: Mapping[int, Allocation], devices: int) -> Placed:
    """Return the allocations of jobs, by serial, as arrays of kernels for machines of so many devices at most."""
    pairs = np.array([pair for each in runs.values() for pair in each.counts], dtype=np.int64).reshape(-1, 2)
    first, taken = np.zeros(len(runs) + 1, dtype=np.int64), np.zeros((len(pairs), devices), dtype=np.int64)
    np.cumsum([len(each.counts) for each in runs.values()], out=first[1:])
    for begin, each in zip(first.tolist(), runs.values(), strict=False):
        place_of = {machine: begin + place for place, (machine, _) in enumerate(each.counts)} if each.devices else {}
        for machine, device, milli in each.devices:
            taken[place_of[machine], device] += milli
    hosts, counts = np.ascontiguousarray(pairs.T)
    return Placed(jobs=np.array(list(runs), dtype=np.int64), first=first, hosts=hosts, counts=counts, taken=taken)
