"""One scheduling round of a snapshot's cluster: which jobs it starts, and what holds the others."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from scheduler_core.cluster import Allocation, Demand, Room
from scheduler_core.engine import run
from scheduler_core.gangs import shape
from scheduler_core.kernels.backfill import narrow, reserve
from scheduler_core.kernels.records import DRF
from scheduler_core.kernels.rooms import copied, missing_in
from scheduler_core.kernels.starts import lent
from scheduler_core.kernels.state import Room as KernelRoom
from scheduler_core.kernels.state import State, uncompiled
from scheduler_core.scene import Scene
from scheduler_core.snapshot import QueuedJob

__all__ = ["Round", "round_of"]


class Round:
    """A snapshot's cluster after a round."""

    def __init__(self, scene: Scene, state: State) -> None:
        self.scene = scene
        self.state = state
        self._hosted = dict[Demand, int]()
        count, log = int(state.queue.tally["runs"][0]), state.log
        self.serials: list[int] = log.runs["job"][:count].tolist()
        """The jobs that run, in the order of their starts."""
        self.started = [serial for serial in self.serials if serial in scene.jobs]
        """The jobs that the round started."""
        refused, records = state.queue.jobs["never_fits"], state.queue.jobs
        self.refused = [serial for serial in scene.jobs if refused[serial]]
        """The jobs that exceed the empty cluster."""
        away = set(self.serials) | set(self.refused)
        left = [serial for serial in scene.jobs if serial not in away]
        key = records["rank"]
        if state.rules.policy == DRF:
            key = (state.cluster.held / state.cluster.total).max(axis=1)[records["user"]]
        self.ranked = sorted(left, key=lambda serial: (key[serial], serial))
        """The jobs that wait, in queue order."""

    @cached_property
    def rows(self) -> State:
        """Return the state for uncompiled kernels."""
        rows: State = uncompiled(self.state)
        return rows

    @cached_property
    def room(self) -> Room:
        """Return the free capacity after the round."""
        return self._room(self.state.cluster.now)

    def _room(self, now: KernelRoom) -> Room:
        cluster, by_device = self.scene.cluster, self.scene.cluster.devices is not None
        devices = (now.devices.copy(), now.tenants.copy()) if by_device else (None, None)
        empty = cluster.empty
        return Room(now.free.copy(), empty.largest, self.state.cluster.away == 0, empty.of_type, *devices)

    def hosted(self, demand: Demand) -> int:
        """Return how many instances of a gang fit after the round, each machine counted up to the size of the gang."""
        if demand not in self._hosted:
            self._hosted[demand] = int(self.room.hosts(demand).sum())
        return self._hosted[demand]

    def order(self, serial: int) -> tuple[float, int]:
        """Return a key that sorts jobs in queue order; under `drf`, no user counts as holding resources."""
        rank = self.state.queue.jobs["rank"]
        return float(rank[serial]), serial

    @cached_property
    def numbers(self) -> dict[int, int]:
        """Return the number of each job's run, by serial."""
        return {serial: number for number, serial in enumerate(self.serials)}

    def bucket(self, serial: int) -> int:
        """Return the number of a job's demand."""
        return int(self.state.queue.jobs["full_bucket"][serial])

    def allocation(self, serial: int) -> Allocation:
        """Return where a job runs."""
        if serial in self.scene.running:
            return self.scene.running[serial]
        demand, spots = self.scene.demand(self.scene.jobs[serial]), self.taken(serial)
        milli = shape(demand.units[2])[1]
        return Allocation(
            demand=demand,
            counts=tuple((machine, count) for machine, count, _ in spots),
            devices=tuple((machine, device, milli) for machine, _, devices in spots for device in devices),
        )

    def taken(self, serial: int) -> list[tuple[int, int, tuple[int, ...]]]:
        """Return the machines that a job got in the round, its instances there, and the device of each instance."""
        log, number = self.state.log, self.numbers[serial]
        span = slice(*log.runs["first_host"][number : number + 2].tolist())
        hosts, counts = log.hosts[span].tolist(), log.counts[span].tolist()
        milli = shape(self.scene.demand(self.scene.jobs[serial]).units[2])[1]
        if not milli or not log.devices.shape[1]:
            return [(machine, count, ()) for machine, count in zip(hosts, counts, strict=True)]
        devices = [
            tuple(device for device, amount in enumerate(row) for _ in range(amount // milli))
            for row in log.devices[span].tolist()
        ]
        return list(zip(hosts, counts, devices, strict=True))

    def end_s(self, serial: int) -> float:
        """Return the seconds until a running job's expected end; inf if unknown."""
        return max(float(self.state.queue.jobs["predicted_s"][serial]), 0.0)

    def freeing(self, serial: int) -> list[int]:
        """Return which of the running jobs must end before a waiting job fits, empty if that does not suffice.

        Jobs end in order of expected end until the job fits; jobs whose end is not needed are then left out.
        """
        rows, at = self.rows, self.bucket(serial)
        instances = rows.queue.buckets[at].instances
        copied(rows.cluster.now, rows.scratch.bare)
        number = self.numbers
        count = instances - missing_in(rows.cluster, rows.scratch.bare, rows.queue, at)
        ended: list[int] = []
        for each in sorted(self.serials, key=self.end_s):
            if count >= instances:
                break
            ended.append(each)
            count += lent(rows, number[each], 1, at)
        if count < instances:
            return []
        needed: list[int] = []
        for each in ended:
            count += lent(rows, number[each], -1, at)
            if count < instances:
                count += lent(rows, number[each], 1, at)
                needed.append(each)
        return needed

    def reservation(self, head: int) -> tuple[float, Room]:
        """Return when the head of the queue should start, and the capacity free now that the head will not need."""
        reserve(self.rows, head)
        narrow(self.rows, 0, len(self.state.cluster.away))
        return float(self.rows.queue.tally[0].shadow_s), self._room(self.state.scratch.bare)

    def expected_starts_s(self, serials: Collection[int]) -> dict[int, float]:
        """Return in how many seconds waiting jobs are expected to start, by serial; inf if unknown.

        Running jobs end as expected, and waiting jobs start as soon as they fit, tried in queue order. It assumes no
        further arrivals, no preemption, and that machines that are down stay down.
        """
        scene = self.scene
        last = max((at for at, serial in enumerate(self.ranked) if serial in serials), default=-1)
        predicted_s = self.state.queue.jobs["predicted_s"].copy()
        columns = scene.columns(scene.jobs, np.maximum(predicted_s, 0.0))
        columns.arrive_s[self.ranked] = np.arange(len(self.ranked))
        rules = replace(scene.rules, policy="fifo", backfill="none", overtakes=None)
        runs = {serial: self.allocation(serial) for serial in self.serials}
        state = scene.state(columns, rules, runs, self.ranked[: last + 1], math.inf)
        log = run(state, compiled=scene.compiled)
        begins = log.log.runs[len(runs) : int(log.queue.tally["runs"][0])]
        starts_s = dict(zip(begins["job"].tolist(), begins["start_s"].tolist(), strict=True))
        return {serial: starts_s.get(serial, math.inf) for serial in serials}


def round_of(scene: Scene, changed: Mapping[int, QueuedJob] | None = None) -> Round:
    """Run the next round with some waiting jobs changed."""
    columns = scene.columns({**scene.jobs, **(changed or {})})
    state = scene.state(columns, scene.rules, scene.running, list(scene.jobs))
    return Round(scene, run(state, compiled=scene.compiled))
