"""How a cluster is run: in what order its queue is served, who may pass whom, where gangs go, and who may be stopped.

Names and numbers only; what they do is in `queueing`, `placement`, `backfill` and `preemption`.
Called by `simulator` and by `rounds`.
"""

import math
from dataclasses import dataclass
from typing import Literal

from scheduler_core.devices import Sharing
from scheduler_core.errors import BadInput
from scheduler_core.placement import Placement
from scheduler_core.queueing import QueuePolicy

Backfill = Literal["none", "easy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discipline:
    """The rules of one run.

    Attributes
    ----------
    policy, placement
        By name (`queueing.QUEUE_POLICIES`, `placement.PLACEMENTS`), or the thing itself.
    aging
        What a second of waiting takes off a job's key, in the key's own unit (seconds for `sjf`); 0 is none.
    overtakes
        How many later jobs may start while the head of the queue cannot, counted per head since it became the head;
        None is without bound (Algorithm 2 of the paper), 0 lets nobody pass. Without backfill only.
    backfill
        `easy`: the head that cannot start is promised the earliest moment at which the predicted ends of running jobs
        let it, on machines of its own; later jobs start only where they do not delay that.
    backfill_depth
        How many waiting jobs behind the head backfill looks at, in the queue's order.
    preempt
        Whether a job that goes before running ones may stop them; None is as the policy declares.
    checkpoint_s
        What every start after a preemption costs on top of the work that is left.
    quantum_s
        A started job runs at least this long before it may be preempted; policies whose order changes while jobs run
        (`las`) look again this often.
    match_gpu_type
        Restrict gangs that name a GPU type, or several, to machines of it.
    sharing
        `pooled` counts a machine's GPUs together; under `devices` up to one GPU comes from one device, and more are
        whole devices; None is as the placement declares.
    seed
        Of placements that draw (`random`).
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
