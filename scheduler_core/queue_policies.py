"""Queue policies: the keys by which waiting jobs are ordered; the smallest key goes first, then the earlier arrival.

A key has a constant part, computed here for all jobs at once, and a part that depends on what the job has attained,
computed by `kernels.starts.key_from` according to the policy's `mode`. Aging adds `aging` times the arrival time, which
orders jobs as subtracting `aging` for every second of waiting would.

To add a policy, add it to `QUEUE_POLICIES`; commands and calls take its name from there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.gangs import MILLI
from scheduler_core.jobs import Jobs
from scheduler_core.kernels import gittins
from scheduler_core.kernels.records import DRF, FIXED, GITTINS, LAS, LAS_TIME, MLFQ, SRTF
from scheduler_core.types import FloatArray, IntArray

__all__ = ["QUEUE_POLICIES", "QueuePolicy", "policy_of", "predicted_or_last"]

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


def _level(jobs: Jobs, _: IntArray) -> FloatArray:
    known = np.where(np.isfinite(jobs.predicted_s), jobs.predicted_s, 0.0)
    return np.array([gittins.level_of(predicted_s) for predicted_s in known.tolist()], dtype=np.float64)


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
    "las_time": QueuePolicy(base=_none, mode=LAS_TIME, preemptive=True),
    "mlfq": QueuePolicy(base=_level, mode=MLFQ, preemptive=True, predicted=True),
    "gittins": QueuePolicy(base=_predicted, mode=GITTINS, preemptive=True, predicted=True),
    "drf": QueuePolicy(base=_none, mode=DRF),
    "priority": QueuePolicy(base=lambda jobs, _: -jobs.priority),
}
"""The policies; jobs without a prediction go last under those that need one, or begin at the first level (`mlfq`).

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
- `las_time`: attained run time (Nuyens, Wierman: The Foreground-Background queue, Performance Evaluation 2008).
- `mlfq`: level of a feedback queue, set by the predicted or the attained run time, whichever is larger; within a level
  by arrival, without preemption (Tiresias).
- `gittins`: the reciprocal of the Gittins index, a remaining run time, from predicted p50 and p90 and attained time;
  with an exact prediction `srtf`, with a wide one `las_time`. The time of a restart, `gittins.RESTARTS` times, is added
  to the key of a preempted job and subtracted from that of a running one, so a job preempts only if that gains more
  than restarts cost (Gittins, J. R. Statist. Soc. B 1979; Tiresias).
- `drf`: dominant share of the job's user, the largest share that the user holds of any resource (Ghodsi et al.:
  Dominant Resource Fairness, NSDI 2011).
- `priority`: largest priority first, as PriorityClass in Kubernetes and multifactor priority in Slurm.
"""
