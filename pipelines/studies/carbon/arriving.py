"""Jobs that arrive over time: their actual work, speed and power, and the predictions that a planner gets.

Columns and checks only; `simulation` runs the jobs. Made in `jobs` (drawn) and `recorded`.
"""

from dataclasses import dataclass, fields

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.types import BoolArray, FloatArray, IntArray

OVERRUN = 0.1
"""Remaining work of a job that has passed its predicted work, as a part of the work done (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingJobs:
    """J jobs in the order of their submission.

    `steps` (J,) is a job's work, `steps_per_s` (J, N+1) its speed by GPU count at the highest frequency, as in
    `ElasticJobs`; `perf` and `watts` (J, F) are its actual speed and power at the frequencies `mhz`. A planner gets
    `predicted_steps`, `modelled_perf` and `modelled_watts` instead. `requested` (J,) is the GPU count that the user
    requested, and `elastic` (J,) marks jobs that may get another count.
    """

    submit_s: FloatArray
    steps: FloatArray
    predicted_steps: FloatArray
    steps_per_s: FloatArray
    perf: FloatArray
    modelled_perf: FloatArray
    watts: FloatArray
    modelled_watts: FloatArray
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

    def planner_view(self, rows: IntArray, done: FloatArray, now_s: float, *, as_requested: bool) -> ElasticJobs:
        """Return the planner's view of the jobs `rows` now; `done` (rows,) is the number of steps they have done."""
        predicted = self.predicted_steps[rows] - done
        fixed = np.ones(len(rows), dtype=np.bool_) if as_requested else ~self.elastic[rows]
        return ElasticJobs(
            steps_left=np.maximum(predicted, np.maximum(OVERRUN * done, np.finfo(np.float64).tiny)),
            steps_per_s=self.steps_per_s[rows],
            perf=self.modelled_perf[rows],
            watts=self.modelled_watts[rows],
            mhz=self.mhz,
            age_s=now_s - self.submit_s[rows],
            rigid_gpus=np.where(fixed, self.requested[rows], 0),
        )
