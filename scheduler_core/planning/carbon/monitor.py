"""Cluster monitor: update the remaining steps and ages of the submitted jobs for the next round.

Called by `round`, before `allocator`.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["JobStates"]

OVERRUN_FRAC: Final = 0.1
"""Minimum remaining work of a running job, as a fraction of its steps done (ours); predicted work can be too small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStates:
    """The last report about each of J submitted jobs, as columns (J,).

    `submit_ts` and `seen_ts` are the Unix times of submission and of the report, `steps_done` the work done by the
    report. Since then the job runs on `gpus` GPUs at the frequency index `step`, or waits if `gpus` is 0. `ended` marks
    finished jobs.
    """

    submit_ts: FloatArray
    seen_ts: FloatArray
    steps_done: FloatArray
    gpus: IntArray
    step: IntArray
    ended: BoolArray


def next_round(submitted: ElasticJobs, states: JobStates, now_ts: float) -> tuple[IntArray, ElasticJobs]:
    """Return the row indices of the jobs that have not ended, and these jobs with remaining steps and age at `now_ts`.

    `submitted` has the jobs as submitted: its `steps_left` is all their work. A job is assumed to have run at its
    modelled speed since its last report. A job that still runs after all its predicted steps is given `OVERRUN_FRAC` of
    them as remaining work.

    Raises
    ------
    BadInput
        If a job has no state, was submitted or reported after `now_ts`, or has an unknown GPU count or frequency.
    """
    _check_columns(submitted, states)
    rows = np.flatnonzero(~states.ended)
    since_s, age_s = now_ts - states.seen_ts[rows], now_ts - states.submit_ts[rows]
    if (since_s < 0.0).any() or (age_s < 0.0).any() or not np.isfinite(states.steps_done[rows]).all():
        raise BadInput("cluster monitor: found a job reported in the future, or steps that are no number")
    jobs = submitted.rows(rows)
    speed = jobs.steps_per_s[np.arange(len(rows)), states.gpus[rows]]
    if np.isnan(speed).any():
        raise BadInput("cluster monitor: found a job on a GPU count without a speed, expected an allowed count")
    speed = speed * jobs.perf[np.arange(len(rows)), states.step[rows]]
    reported = states.steps_done[rows]
    done = reported + speed * since_s
    # Modelled progress never ends a job, only `ended` does, so some work always remains.
    least = OVERRUN_FRAC * np.maximum(reported, np.minimum(done, jobs.steps_left))
    left = np.maximum(jobs.steps_left - done, least)
    return rows, replace(jobs, steps_left=left, age_s=age_s)


def _check_columns(submitted: ElasticJobs, states: JobStates) -> None:
    lengths = {name: len(getattr(states, name)) for name in states.__slots__}
    for name, length in lengths.items():
        if length != len(submitted):
            raise BadInput(
                f"cluster monitor: found {length} states of {len(submitted)} jobs in {name}, expected one each"
            )
    for name, last in (("gpus", submitted.most_gpus), ("step", len(submitted.mhz) - 1)):
        column = getattr(states, name)
        if ((column < 0) | (column > last)).any():
            raise BadInput(f"cluster monitor: found a {name} below 0 or above {last}, expected 0 to {last}")
