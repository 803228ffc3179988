"""The readable simulation engine, which the compiled engine must reproduce: an event loop over a heap.

The heap holds (time, kind, number of the run, job or outage). The scheduler decides starts and placements without
access to actual run times; the loop knows the run times and ends the runs.
Called by `simulator` and by tests.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.workload import Outages, Workload
from scheduler_core.cluster import MILLI, Allocation, Cluster, Demand, Machine
from scheduler_core.devices import by_host
from scheduler_core.gangs import ANY_GPU_TYPE, Running, Waiting
from scheduler_core.queueing import Discipline
from scheduler_core.rounds import Scheduler
from scheduler_core.types import IntArray


class Happening(IntEnum):
    """Kinds of events, numbered in the order in which simultaneous events are handled.

    Runs end before jobs arrive, so that released capacity can be allocated at the same moment.
    """

    END = 0
    UP = 1
    DOWN = 2
    ARRIVAL = 3


@dataclass(slots=True)
class Run:
    """One run of a job on its machines; `end_s` is the planned end while it runs, then the actual end."""

    serial: int
    start_s: float
    end_s: float
    full: bool
    allocation: Allocation
    ending: Ending = Ending.RUNNING


def run_plain(
    workload: Workload, machines: Sequence[Machine], discipline: Discipline, horizon_s: float, outages: Outages
) -> Schedule:
    """Simulate the arrivals until the horizon; an infinite horizon ends at the last event."""
    loop = _Loop(workload, machines, discipline, outages)
    last_s = loop.until(horizon_s)
    end_s = horizon_s if math.isfinite(horizon_s) else last_s
    loop.strand(last_s, end_s)
    offsets = np.cumsum([0, *(len(run.allocation.counts) for run in loop.runs)])
    hosts = [host for run in loop.runs for host in run.allocation.counts]
    return Schedule(
        workload=workload,
        machines=tuple(machines),
        end_s=float(end_s),
        job=np.array([run.serial for run in loop.runs], dtype=np.int64),
        start_s=np.array([run.start_s for run in loop.runs], dtype=np.float64),
        end_run_s=np.array([run.end_s for run in loop.runs], dtype=np.float64),
        full=np.array([run.full for run in loop.runs], dtype=np.bool_),
        ending=np.array([run.ending for run in loop.runs], dtype=np.int8),
        host_offsets=offsets.astype(np.int64),
        hosts=np.array([machine for machine, _ in hosts], dtype=np.int64),
        host_counts=np.array([count for _, count in hosts], dtype=np.int64),
        never_fits=np.array(loop.never_fits, dtype=np.bool_),
        finished_s=np.array(loop.finished_s, dtype=np.float64),
        stranded_gpu_s=loop.stranded_gpu_s,
        host_devices=_host_devices(loop.runs, loop.scheduler.occupancy.cluster),
    )


def _host_devices(runs: Sequence[Run], cluster: Cluster) -> IntArray | None:
    """Return `Schedule.host_devices`: the milli-GPUs taken from each GPU of a machine; None if GPUs are pooled."""
    if cluster.devices is None:
        return None
    devices = cluster.devices.shape[1]
    rows = [by_host(run.allocation.counts, run.allocation.devices, devices) for run in runs]
    return np.concatenate([np.zeros((0, devices), dtype=np.int64), *rows])


class _Loop:
    """The state of one simulation: the heap of events, the scheduler, and the runs so far."""

    def __init__(
        self, workload: Workload, machines: Sequence[Machine], discipline: Discipline, outages: Outages
    ) -> None:
        self.workload = workload
        self.scheduler = Scheduler(machines, discipline, look_ahead_jobs=None)
        self.runs: list[Run] = []
        self.never_fits = [False] * len(workload)
        self.finished_s = [math.nan] * len(workload)
        self.stranded_gpu_s = 0.0
        self._match_gpu_type = discipline.match_gpu_type
        self._left_s: list[float] = workload.granted_run_s.tolist()
        self._live: dict[int, Run] = {}
        self._tick_s = discipline.quantum_s if discipline.preempts() else math.inf
        self._heap = [(at_s, Happening.ARRIVAL, serial) for serial, at_s in enumerate(workload.arrive_s.tolist())]
        for what, times in ((Happening.UP, outages.up_s), (Happening.DOWN, outages.down_s)):
            self._heap.extend((at_s, what, number) for number, at_s in enumerate(times.tolist()))
        self._outage_machines: list[int] = outages.machine.tolist()
        heapq.heapify(self._heap)

    def until(self, horizon_s: float) -> float:
        """Process all events up to the horizon, with one scheduling round per moment; return the last moment."""
        last_s = 0.0
        while math.isfinite(now_s := self._next_s(last_s)) and now_s <= horizon_s:
            self.strand(last_s, now_s)
            while self._heap and self._heap[0][0] == now_s:
                _, what, number = heapq.heappop(self._heap)
                self._handle(what, number, now_s)
            self._round(now_s)
            last_s = now_s
        return last_s

    def strand(self, from_s: float, until_s: float) -> None:
        """Count the free GPU-seconds of the interval as stranded if a waiting job needs no more GPUs than are free."""
        wanted = min((gang.milli_gpus for job in self.scheduler.queue if (gang := job.demand).units[2] > 0), default=0)
        free = int(self.scheduler.occupancy.room.free[:, 2].sum()) if wanted else 0
        if 0 < wanted <= free:
            self.stranded_gpu_s += free / MILLI * (until_s - from_s)

    def _next_s(self, now_s: float) -> float:
        """Return the time of the next event, or of the next preemption check if jobs both wait and run."""
        while self._heap and self._heap[0][1] == Happening.END and self._is_stale(self._heap[0][2]):
            heapq.heappop(self._heap)
        next_s = self._heap[0][0] if self._heap else math.inf
        if math.isfinite(self._tick_s) and self._live and self.scheduler.queue:
            next_s = min(next_s, next_multiple(self._tick_s, now_s))
        return next_s

    def _is_stale(self, number: int) -> bool:
        """Return whether run `number` was stopped before its planned end, so that its end event is void."""
        return self.runs[number].ending != Ending.RUNNING

    def _handle(self, what: Happening, number: int, now_s: float) -> None:
        if what == Happening.END:
            if not self._is_stale(number):
                self._end(self.runs[number], now_s)
        elif what == Happening.UP:
            self.scheduler.up(self._outage_machines[number])
        elif what == Happening.DOWN:
            for lost in self.scheduler.down(self._outage_machines[number]):
                run = self._stopped(lost, Ending.INTERRUPTED, now_s)
                whole = self.workload.run_s if run.full else self.workload.granted_run_s
                self._left_s[run.serial] = float(whole[run.serial])
        else:
            arrived = waiting_of(self.workload, number, self._match_gpu_type)
            self.never_fits[number] = not self.scheduler.enqueue(arrived)

    def _end(self, run: Run, now_s: float) -> None:
        del self._live[run.serial]
        killed = bool(self.workload.dies[run.serial]) and not run.full
        self.scheduler.release(run.serial, killed=killed)
        if killed:
            run.ending = Ending.KILLED
            self._left_s[run.serial] = float(self.workload.run_s[run.serial])
        else:
            run.ending = Ending.FAILED if self.workload.fails[run.serial] else Ending.COMPLETED
            self.finished_s[run.serial] = now_s

    def _round(self, now_s: float) -> None:
        result = self.scheduler.round(now_s)
        for stopped in result.preempted:
            run = self._live[stopped.waiting.serial]
            unpaid_s = max(stopped.waiting.owed_s - (now_s - run.start_s), 0.0)
            cost_s = self.scheduler.discipline.restart_cost_s
            self._left_s[run.serial] = run.end_s - now_s - unpaid_s + cost_s
            self._stopped(stopped, Ending.PREEMPTED, now_s)
        for started in result.started:
            serial = started.waiting.serial
            run = Run(
                serial=serial,
                start_s=now_s,
                end_s=now_s + self._left_s[serial],
                full=started.waiting.full,
                allocation=started.allocation,
            )
            heapq.heappush(self._heap, (run.end_s, Happening.END, len(self.runs)))
            self._live[serial] = run
            self.runs.append(run)

    def _stopped(self, stopped: Running, ending: Ending, now_s: float) -> Run:
        run = self._live.pop(stopped.waiting.serial)
        run.ending, run.end_s = ending, now_s
        return run


def next_multiple(step_s: float, now_s: float) -> float:
    """Return the first whole multiple of `step_s` after `now_s`.

    >>> next_multiple(600.0, 600.0), next_multiple(600.0, 1199.0)
    (1200.0, 1200.0)
    """
    count = math.floor(now_s / step_s)
    while count * step_s <= now_s:
        count += 1
    return count * step_s


def waiting_of(workload: Workload, serial: int, match_gpu_type: bool) -> Waiting:
    """Convert row `serial` of the workload to the waiting job that the scheduler sees, without its run time."""
    code = int(workload.gpu_type[serial])
    gpu_type = workload.gpu_types[code] if match_gpu_type and code != ANY_GPU_TYPE else None
    request, granted = (
        Demand(units=tuple(units[serial].tolist()), instances=int(workload.instances[serial]), gpu_type=gpu_type)
        for units in (workload.request_units, workload.granted_units)
    )
    return Waiting(
        serial=serial,
        arrived_s=float(workload.arrive_s[serial]),
        request=request,
        granted=granted,
        predicted_s=float(workload.predicted_s[serial]),
        predicted_p90_s=float(workload.predicted_p90_s[serial]),
        user=int(workload.user[serial]),
        priority=float(workload.priority[serial]),
    )
