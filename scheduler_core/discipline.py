"""The discipline of a run: queue order, backfill, overtaking, placement and preemption, by name and number.

They are implemented in `queueing`, `rounds`, `placement` and `preemption`.
Used by `rounds`, `preemption` and the simulator.
"""

import math
from dataclasses import dataclass
from typing import Literal

from scheduler_core.devices import Sharing
from scheduler_core.errors import BadInput
from scheduler_core.placement import Placement
from scheduler_core.queueing import QueuePolicy

__all__ = ["Discipline"]

Backfill = Literal["none", "easy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discipline:
    """The rules of one run.

    Attributes
    ----------
    policy, placement
        A name in `queueing.QUEUE_POLICIES` and in `placement.PLACEMENTS`, or the policy or placement itself.
    aging
        Amount subtracted from a job's key per second waited, in the key's unit (seconds for `sjf`); 0 for none.
    overtakes
        How many later jobs may start before the head of the queue, counted since it became the head. None is without
        bound (Algorithm 2 of the paper), 0 allows none. Without backfill only.
    backfill
        `easy`: a head that does not fit reserves machines at the earliest time at which, by predicted ends of running
        jobs, it fits; later jobs start only if they do not delay it.
    backfill_depth
        How many jobs behind the head backfill considers, in queue order.
    preempt
        Whether a job may stop running jobs with larger keys; None is the policy's default.
    checkpoint_s
        Extra seconds of every start after a preemption.
    quantum_s
        A job runs at least this long before it may be preempted; policies whose order changes while jobs run (`las`)
        schedule a round this often.
    match_gpu_type
        Restrict gangs that name a GPU type, or several, to machines of it.
    sharing
        `pooled` counts a machine's GPUs together; under `devices` up to one GPU comes from one device, and more are
        whole devices; None is the placement's default.
    seed
        Seed of placements that draw random numbers (`random`).
    """

    policy: str | QueuePolicy = "fifo"
    placement: str | Placement = "best_fit"
    aging: float = 0.0
    overtakes: int | None = None
    backfill: Backfill = "none"
    backfill_depth: int = 1000
    preempt: bool | None = None
    checkpoint_s: float = 0.0
    quantum_s: float = 600.0
    match_gpu_type: bool = False
    sharing: Sharing | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        checks = {
            "aging": 0.0 <= self.aging < math.inf,
            "overtakes": self.overtakes is None or self.overtakes >= 0,
            "backfill": self.backfill in ("none", "easy"),
            "backfill_depth": self.backfill_depth >= 1,
            "checkpoint_s": self.checkpoint_s >= 0.0,
            "quantum_s": self.quantum_s > 0.0,
            "seed": self.seed >= 0,
        }
        for name, holds in checks.items():
            if not holds:
                raise BadInput(f"discipline: {name}={getattr(self, name)!r} is out of its range; see Discipline")
        if self.overtakes is not None and self.backfill == "easy":
            raise BadInput("discipline: found both overtakes and backfill=easy, expected one of them")
