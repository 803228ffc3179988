"""The order of waiting jobs, and the rules by which they start and stop.

The smallest key goes first, then the earlier arrival. A key has a constant part, computed here for all jobs at once,
and a part that depends on what the job has attained, computed by `kernels.starts.key_from` according to the policy's
`mode`. Aging adds `aging` times the arrival time, which orders jobs as subtracting `aging` for every second of waiting
would.

To add a policy, add it to `QUEUE_POLICIES`; commands and calls take its name from there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.gangs import MILLI, Sharing
from scheduler_core.kernels.records import DRF, FIXED, LAS, SRTF
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["QUEUE_POLICIES", "Discipline", "Jobs", "QueuePolicy", "policy_of", "predicted_or_last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Columns of n jobs in the order of arrival, as `pipelines.simulation.engine.workload.Workload` describes them."""

    arrive_s: FloatArray
    request_units: IntArray
    granted_units: IntArray
    instances: IntArray
    gpu_type: IntArray
    user: IntArray
    priority: FloatArray
    run_s: FloatArray
    granted_run_s: FloatArray
    dies: BoolArray
    fails: BoolArray
    predicted_s: FloatArray
    gpu_types: tuple[str, ...]

    @classmethod
    def of(cls, units: IntArray, gpu_type: IntArray, gpu_types: tuple[str, ...], **given: Any) -> "Jobs":
        """Return jobs that request these units and types; by default each has one instance and never ends."""
        count = len(units)
        endless, no = np.full(count, np.inf), np.zeros(count, dtype=np.bool_)
        columns: dict[str, Any] = {
            **dict.fromkeys(("arrive_s", "priority"), np.zeros(count)),
            **dict.fromkeys(("run_s", "granted_run_s"), endless),
            **dict.fromkeys(("dies", "fails"), no),
            "predicted_s": np.full(count, np.nan),
            "instances": np.ones(count, dtype=np.int64),
            "user": np.zeros(count, dtype=np.int64),
        }
        return cls(
            request_units=units, granted_units=units, gpu_type=gpu_type, gpu_types=gpu_types, **{**columns, **given}
        )


Base = Callable[[Jobs, IntArray], FloatArray]
"""A function of jobs and the milli-GPUs of each gang (n,) that returns the constant part of each key (n,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """A queue policy: the constant part of its keys, how keys depend on the attained time, whether it preempts.

    Under a `preemptive` policy, jobs with smaller keys preempt by default. `predicted` policies sort by predicted run
    times.
    """

    base: Base
    mode: int = FIXED
    preemptive: bool = False
    predicted: bool = False

    @property
    def dynamic(self) -> bool:
        """Return whether keys change while jobs wait."""
        return self.mode == DRF


def predicted_or_last(predicted_s: FloatArray) -> FloatArray:
    """Return predicted run times (n,); unknown ones are infinite, so that their jobs sort last."""
    return np.where(np.isfinite(predicted_s), predicted_s, np.inf)


def _gpu_time(jobs: Jobs, gpus: IntArray) -> FloatArray:
    known = np.isfinite(jobs.predicted_s)
    return np.where(known, np.where(known, jobs.predicted_s, 0.0) * (gpus / MILLI), np.inf)


def _predicted(jobs: Jobs, _: IntArray) -> FloatArray:
    return predicted_or_last(jobs.predicted_s)


def _none(jobs: Jobs, _: IntArray) -> FloatArray:
    return np.zeros(len(jobs.arrive_s))


def policy_of(policy: str) -> QueuePolicy:
    """Return the queue policy with a given name."""
    if policy not in QUEUE_POLICIES:
        raise BadInput(f"queue policy: found {policy!r}, expected one of {', '.join(sorted(QUEUE_POLICIES))}")
    return QUEUE_POLICIES[policy]


QUEUE_POLICIES: Final[dict[str, QueuePolicy]] = {
    "fifo": QueuePolicy(base=lambda jobs, _: jobs.arrive_s),
    "sjf": QueuePolicy(base=_predicted, predicted=True),
    "srtf": QueuePolicy(base=_predicted, mode=SRTF, preemptive=True, predicted=True),
    "qssf": QueuePolicy(base=_gpu_time, predicted=True),
    "las": QueuePolicy(base=lambda _, gpus: np.maximum(gpus, 1).astype(np.float64), mode=LAS, preemptive=True),
    "drf": QueuePolicy(base=_none, mode=DRF),
    "priority": QueuePolicy(base=lambda jobs, _: -jobs.priority),
}
"""The policies; jobs without a prediction go last under those that need one.

- `fifo`: order of arrival, which a job keeps when it returns to the queue (Yang, Hong, Tang: Algorithm 2).
- `sjf`: predicted run time of the whole job, including the part already run. Prediction errors do less damage than
  under `srtf`: a job that outlasts its prediction does not move to the front (Dell'Amico et al.: Revisiting Size-Based
  Scheduling with Estimated Job Sizes, MASCOTS 2014).
- `srtf`: remaining predicted run time (Schrage, Miller: The Queue M/G/1 with the Shortest Remaining Processing Time
  Discipline, Operations Research 1966).
- `qssf`: predicted GPU time (Hu et al.: Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
  Datacenters, SC 2021).
- `las`: attained GPU time; a gang without GPUs counts as a thousandth of a GPU (Gu et al.: Tiresias, NSDI 2019,
  without discrete queues).
- `drf`: dominant share of the job's user, the largest share that the user holds of any resource (Ghodsi et al.:
  Dominant Resource Fairness, NSDI 2011).
- `priority`: largest priority first, as PriorityClass in Kubernetes and multifactor priority in Slurm.
"""


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
    - `quantum_s`: minimum run time in seconds before a job may be preempted; with preemption a round also starts at
      every multiple of it.
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
