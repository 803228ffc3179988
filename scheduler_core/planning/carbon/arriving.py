"""Jobs that arrive over time: what they truly are, and what a planner is told of them.

Columns and checks only; time passes in `simulation`. Made by whoever draws or replays jobs.
"""

from dataclasses import dataclass, fields

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.types import BoolArray, FloatArray, IntArray

OVERRUN = 0.1
"""Part of the work done that a job past its predicted work is taken to have left (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingJobs:
    """J jobs in the order of their submission.

    `steps` (J,) is a job's work, `steps_per_s` (J, N+1) its speed by GPU count at the highest frequency, as of
    `ElasticJobs`; `perf` and `watts` (J, F) are those it truly has at the frequencies `mhz`. What a planner is told
    instead is `told_steps`, `told_perf` and `told_watts`. `requested` (J,) is the count that its user asked for, and
    `elastic` (J,) says whether another may be given.
    """

    submit_s: FloatArray
    steps: FloatArray
    told_steps: FloatArray
    steps_per_s: FloatArray
    perf: FloatArray
    told_perf: FloatArray
    watts: FloatArray
    told_watts: FloatArray
    mhz: FloatArray
    requested: IntArray
    elastic: BoolArray

    def __post_init__(self) -> None:
        jobs = len(self.submit_s)
        odd = [
            each.name
            for each in fields(self)
            if each.name != "mhz" and (np.shape(getattr(self, each.name)) or (-1,))[0] != jobs
        ]
        if odd:
            raise BadInput(f"arriving jobs: found {', '.join(odd)} not of {jobs} jobs, expected a row for each")
        if jobs and (np.diff(self.submit_s) < 0.0).any():
            raise BadInput("arriving jobs: found submissions out of order, expected them ascending; sort the jobs")
        rows = np.arange(jobs)
        asked = np.clip(self.requested, 0, self.steps_per_s.shape[1] - 1)
        if not (self.steps_per_s[rows, asked] > 0.0).all() or (asked != self.requested).any():
            raise BadInput("arriving jobs: found a request for a count without a speed, expected one for each job")

    def __len__(self) -> int:
        return len(self.submit_s)

    def seen(self, rows: IntArray, done: FloatArray, now_s: float, *, as_requested: bool) -> ElasticJobs:
        """Return what a planner sees of some jobs now, `done` (rows,) being the steps they have behind them."""
        told = self.told_steps[rows] - done
        fixed = np.ones(len(rows), dtype=np.bool_) if as_requested else ~self.elastic[rows]
        return ElasticJobs(
            steps_left=np.maximum(told, np.maximum(OVERRUN * done, np.finfo(np.float64).tiny)),
            steps_per_s=self.steps_per_s[rows],
            perf=self.told_perf[rows],
            watts=self.told_watts[rows],
            mhz=self.mhz,
            age_s=now_s - self.submit_s[rows],
            rigid_gpus=np.where(fixed, self.requested[rows], 0),
        )
