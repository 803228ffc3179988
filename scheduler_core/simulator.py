"""The event-driven simulator: a heap of (time, priority, counter, event), deterministic to the byte.

Time is a number that events carry, never a clock; what is measured from a run is in `metrics`.
Called by `pipelines.simulate` and by tests.
"""

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeVar

from scheduler_core.arrivals import Arrival
from scheduler_core.cluster import Allocation, Cluster, Machine
from scheduler_core.errors import BadInput
from scheduler_core.placement import PLACEMENTS, Placement
from scheduler_core.queueing import QUEUE_POLICIES, QueuePolicy
from scheduler_core.rounds import Placed, Scale, Scheduler
from scheduler_core.truth import TRUTHS, Outcome, Truth
from scheduler_core.types import Request

PAPER_HORIZON_S: Final = 12 * 3600.0
"""The paper's experiments run for 12 hours."""

Event = dict[str, float | int | str]
Named = TypeVar("Named")


class Priority(IntEnum):
    """What comes first among events of one moment: capacity is given back before it is asked for."""

    END = 0
    ARRIVAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One run of a job from its start: what it was given, until when it holds it, and whether it dies then."""

    start_s: float
    end_s: float
    allocated: Request
    outcome: Outcome


@dataclass(slots=True, kw_only=True)
class JobRecord:
    """What became of one arrival; `executions` holds its runs, killed ones first."""

    serial: int
    arrival: Arrival
    never_fits: bool = False
    target: Request | None = None
    executions: list[Execution] = field(default_factory=list)
    completed_s: float | None = None
    killed_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One finished run: every arrival's record by serial, the event log, and what it ran on.

    `end_s` is the horizon, or the last event's time where the horizon is infinite.
    """

    machines: tuple[Machine, ...]
    end_s: float
    records: tuple[JobRecord, ...]
    events: tuple[Event, ...]


def simulate(
    arrivals: Sequence[Arrival],
    machines: Sequence[Machine],
    *,
    horizon_s: float = PAPER_HORIZON_S,
    scale: Scale | None = None,
    truth: str | Truth = "contention",
    policy: str | QueuePolicy = "fifo",
    placement: str | Placement = "best_fit",
    match_gpu_type: bool = False,
) -> Simulation:
    """Run the arrivals through the cluster until the horizon; an infinite one runs until nothing more happens.

    Without `scale` every job is given its request. Truth, policy and placement go by name or by value.

    Raises
    ------
    BadInput
        If a name is unknown, there is no machine, or a time is out of range.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2 (rounds) and their experiments (Poisson arrivals, 12 hours).
    """
    if not horizon_s > 0.0:
        raise BadInput(f"simulation: found a horizon of {horizon_s} s, expected more than 0")
    scheduler = Scheduler(
        cluster=Cluster(machines),
        policy=_named(policy, QUEUE_POLICIES, "queue policy"),
        placement=_named(placement, PLACEMENTS, "placement"),
        scale=scale,
        match_gpu_type=match_gpu_type,
    )
    run = _Run(scheduler, _named(truth, TRUTHS, "truth"), arrivals)
    last_s = run.until(horizon_s)
    return Simulation(
        machines=tuple(machines),
        end_s=horizon_s if math.isfinite(horizon_s) else last_s,
        records=tuple(run.records),
        events=tuple(run.events),
    )


class _Run:
    """The state of one simulation: the heap, the scheduler, the records and the log."""

    def __init__(self, scheduler: Scheduler, truth: Truth, arrivals: Sequence[Arrival]) -> None:
        self.scheduler = scheduler
        self.truth = truth
        # Sorted, so that the order in which arrivals are listed decides nothing.
        in_order = sorted(
            arrivals, key=lambda arrival: (arrival.at_s, arrival.drawn.job.job_id, arrival.drawn.job.role)
        )
        self.records = [JobRecord(serial=serial, arrival=arrival) for serial, arrival in enumerate(in_order)]
        self.events: list[Event] = []
        self._counter = itertools.count()
        self._heap: list[tuple[float, int, int, JobRecord | Placed]] = []
        for record in self.records:
            self._push(record.arrival.at_s, Priority.ARRIVAL, record)

    def until(self, horizon_s: float) -> float:
        """Handle every event up to the horizon, one scheduling round per moment; return the last moment."""
        now_s = 0.0
        while self._heap and self._heap[0][0] <= horizon_s and math.isfinite(self._heap[0][0]):
            now_s = self._heap[0][0]
            while self._heap and self._heap[0][0] == now_s:
                self._handle(heapq.heappop(self._heap)[3], now_s)
            result = self.scheduler.round(now_s)
            for refused in result.never_fits:
                self.records[refused.serial].never_fits = True
                self._log(now_s, "never_fits", refused.serial, refused.granted)
            for placed in result.placed:
                self._start(placed, now_s)
        return now_s

    def _start(self, placed: Placed, now_s: float) -> None:
        waiting = placed.waiting
        record = self.records[waiting.serial]
        outcome = self.truth(
            record.arrival.drawn.measured, waiting.job.request, waiting.granted, waiting.recommendation
        )
        end_s = now_s + outcome.run_s
        record.target = record.target or waiting.granted
        record.executions.append(Execution(start_s=now_s, end_s=end_s, allocated=waiting.granted, outcome=outcome))
        self._log(now_s, "start", waiting.serial, waiting.granted, placed.allocation)
        self._push(end_s, Priority.END, placed)

    def _push(self, at_s: float, priority: Priority, event: JobRecord | Placed) -> None:
        heapq.heappush(self._heap, (at_s, int(priority), next(self._counter), event))

    def _handle(self, event: JobRecord | Placed, now_s: float) -> None:
        if isinstance(event, JobRecord):
            job = event.arrival.drawn.job
            self.scheduler.submit(event.serial, job, now_s)
            self._log(now_s, "arrive", event.serial, job.request)
            return
        self.scheduler.release(event)
        waiting = event.waiting
        record = self.records[waiting.serial]
        if record.executions[-1].outcome.killed:
            record.killed_s.append(now_s)
            self._log(now_s, "kill", waiting.serial, waiting.granted, event.allocation)
            self.scheduler.resubmit(waiting)
        else:
            record.completed_s = now_s
            self._log(now_s, "complete", waiting.serial, waiting.granted, event.allocation)

    def _log(
        self, now_s: float, what: str, serial: int, per_instance: Request, allocation: Allocation | None = None
    ) -> None:
        job = self.records[serial].arrival.drawn.job
        machines = self.scheduler.cluster.machines
        counts = () if allocation is None else allocation.counts
        self.events.append(
            {
                "time_s": now_s,
                "event": what,
                "serial": serial,
                "job_id": job.job_id,
                "instances": job.instances,
                "cpu_cores": per_instance.cpu_cores,
                "mem_gib": per_instance.mem_gib,
                "gpus": per_instance.gpus,
                "machines": " ".join(f"{machines[at].name}:{count}" for at, count in counts),
            }
        )


def _named(value: str | Named, registry: Mapping[str, Named], what: str) -> Named:
    if not isinstance(value, str):
        return value
    if value not in registry:
        raise BadInput(f"{what}: found {value!r}, expected one of {', '.join(sorted(registry))}")
    return registry[value]
