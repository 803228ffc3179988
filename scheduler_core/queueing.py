"""The discipline of a queue: the policy that orders waiting jobs, and the rules by which they start and stop."""

import math
from dataclasses import dataclass
from typing import Literal

from scheduler_core.devices import Sharing
from scheduler_core.errors import BadInput
from scheduler_core.queue_policies import policy_of

__all__ = ["Discipline"]

Backfill = Literal["none", "easy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discipline:
    """The rules by which a scheduler orders, starts, places and stops jobs.

    - `policy`: the queue policy, a name in `QUEUE_POLICIES`.
    - `placement`: the placement, a name in `placement.PLACEMENTS`.
    - `aging`: decrease of a job's queue key per second of waiting, in the unit of the key (seconds for `sjf`).
    - `overtakes`: maximum number of later jobs that may start before the head of the queue, counted since it became the
      head. None is unlimited (Algorithm 2 of Yang, Hong and Tang), 0 forbids overtaking. Must be None with backfill.
    - `backfill`: with `easy`, machines are reserved for a head of the queue that does not fit, at the earliest time at
      which it fits by the predicted ends of running jobs. Later jobs start only if they do not delay the head.
    - `backfill_depth`: maximum number of jobs behind the head that backfill considers, in queue order.
    - `preempt`: whether a waiting job may stop running jobs with larger queue keys; None is the default of the policy.
    - `restart_cost_s`: extra run time in seconds of every start after a preemption, for checkpoint and restart. The job
      holds its GPUs in this time, but makes no progress and attains no service.
    - `quantum_s`: minimum run time in seconds before a job may be preempted. Policies whose order changes while jobs
      run (`las`, `mlfq`, `gittins`) also start a round at this interval.
    - `match_gpu_type`: whether gangs that name GPU types are restricted to machines of these types.
    - `sharing`: `pooled` counts a machine's GPUs as one total. With `devices`, a request of up to one GPU takes a part
      of one device, a larger one whole devices. None is the default of the placement.
    - `seed`: seed of placements that use random numbers (`random`).
    """

    policy: str = "fifo"
    placement: str = "best_fit"
    aging: float = 0.0
    overtakes: int | None = None
    backfill: Backfill = "none"
    backfill_depth: int = 1000
    preempt: bool | None = None
    restart_cost_s: float = 0.0
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
            "restart_cost_s": self.restart_cost_s >= 0.0,
            "quantum_s": self.quantum_s > 0.0,
            "seed": self.seed >= 0,
        }
        for name, holds in checks.items():
            if not holds:
                raise BadInput(f"discipline: {name}={getattr(self, name)!r} is out of its range; see Discipline")
        if self.overtakes is not None and self.backfill == "easy":
            raise BadInput("discipline: found both overtakes and backfill=easy, expected one of them")

    def preempts(self) -> bool:
        """Return whether waiting jobs may stop running jobs: `preempt`, or the policy's default if that is None.

        Examples
        --------
        >>> [Discipline(policy=name).preempts() for name in ("srtf", "sjf")]
        [True, False]
        """
        policy = policy_of(self.policy)
        active = policy.preemptive if self.preempt is None else self.preempt
        conflicts = {
            "a policy whose keys are dynamic (drf)": policy.dynamic,
            "overtakes": self.overtakes is not None,
            "backfill=easy": self.backfill == "easy",
        }
        for what, holds in conflicts.items():
            if active and holds:
                raise BadInput(
                    f"discipline: found preemption together with {what}; set preempt=False, or remove the other"
                )
        return active
