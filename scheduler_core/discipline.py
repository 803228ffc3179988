"""The parameters of a scheduler: queue order, overtaking, backfill, placement and preemption.

The rules are implemented in `queueing`, `rounds`, `placement` and `preemption`.
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
    """The rules by which a scheduler orders, starts, places and stops jobs.

    - `policy`: the queue policy, as a name in `queueing.QUEUE_POLICIES` or an object.
    - `placement`: the placement, as a name in `placement.PLACEMENTS` or an object.
    - `aging`: decrease of a job's queue key per second of waiting, in the unit of the key (seconds for `sjf`).
    - `overtakes`: maximum number of later jobs that may start before the head of the queue, counted since it became the
      head. None is unlimited (Algorithm 2 of Yang, Hong and Tang), 0 forbids overtaking. Must be None with backfill.
    - `backfill`: with `easy`, machines are reserved for a head of the queue that does not fit, at the earliest time at
      which it fits by the predicted ends of running jobs. Later jobs start only if they do not delay the head.
    - `backfill_depth`: maximum number of jobs behind the head that backfill considers, in queue order.
    - `preempt`: whether a waiting job may stop running jobs with larger queue keys; None is the default of the policy.
    - `checkpoint_s`: extra run time in seconds of every start after a preemption.
    - `quantum_s`: minimum run time in seconds before a job may be preempted. Policies whose order changes while jobs
      run (`las`) also start a round at this interval.
    - `match_gpu_type`: whether gangs that name GPU types are restricted to machines of these types.
    - `sharing`: `pooled` counts a machine's GPUs as one total. With `devices`, a request of up to one GPU takes a part
      of one device, a larger one whole devices. None is the default of the placement.
    - `seed`: seed of placements that use random numbers (`random`).
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
