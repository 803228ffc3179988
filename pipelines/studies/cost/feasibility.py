"""What no policy can help: jobs that are late on an empty cluster, with the GPUs they asked for or with any.

Nothing is run here. Called by `pipelines.studies.cost.runs`, for each policy by what it may choose.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.studies.cost.simulation import SubmittedJobs
from scheduler_core.types import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavoidable:
    """The share of jobs that are late even if begun at submission, at their fastest, and what that costs in USD."""

    late_share: float
    usd: float


def unavoidable(jobs: SubmittedJobs, *, as_asked: bool) -> Unavoidable:
    """Return what is late on an empty cluster: `as_asked` with the GPUs asked for, else with any number.

    Every job has its true run time on the node type where that is shortest, and nobody else is there, so that no
    order, no preemption and no further node brings a run's tardiness below that.
    """
    late_s = np.maximum(jobs.submit_s + _soonest_s(jobs, as_asked=as_asked) - jobs.due_s, 0.0)
    # What is due as soon as it can end is not late by the last digit of a float.
    late_s = np.where(late_s > 1e-6, late_s, 0.0)
    return Unavoidable(late_share=float((late_s > 0.0).mean()), usd=float(jobs.weight_usd_per_s @ late_s))


def _soonest_s(jobs: SubmittedJobs, *, as_asked: bool) -> FloatArray:
    allowed = jobs.run_s
    if as_asked:
        allowed = np.take_along_axis(jobs.run_s, jobs.asked_gpus[:, None, None], axis=2)
    return np.asarray(np.nanmin(allowed, axis=(1, 2)) * jobs.off_by)
