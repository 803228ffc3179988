"""The cluster monitor: what is known of every submitted job, to the elastic jobs of the next round.

Steps left and ages; models of speed and power come with the jobs. Called at every round, before `allocator`.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.types import BoolArray, FloatArray, IntArray

OVERRUN_FRAC: Final = 0.1
"""Of the steps done, what a job is taken to have left at least while it goes on (ours): predictions fall short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStates:
    """What J submitted jobs last told, as columns (J,).

    `submit_ts` and `seen_ts` are Unix time; at the latter `steps_done` were done, and the job ran on `gpus` at the
    frequency `step` from then on (0 GPUs: it waited). `ended` jobs need nothing any more.
    """

    submit_ts: FloatArray
    seen_ts: FloatArray
    steps_done: FloatArray
    gpus: IntArray
    step: IntArray
    ended: BoolArray


def next_round(submitted: ElasticJobs, states: JobStates, now_ts: float) -> tuple[IntArray, ElasticJobs]:
    """Return the rows of jobs that have not ended, and those jobs with what they have left and their age now.

    `submitted` holds the jobs as they were submitted, `steps_left` being all their steps. Since a job was last seen it
    is taken to have gone on at its modelled speed. One that has done all its predicted steps and still runs has
    `OVERRUN_FRAC` of them left.

    Raises
    ------
    BadInput
        If there is no state for each job, a job was submitted or seen after now, or a GPU count or frequency is none of
        the jobs'.
    """
    _check_columns(submitted, states)
    rows = np.flatnonzero(~states.ended)
    since_s, age_s = now_ts - states.seen_ts[rows], now_ts - states.submit_ts[rows]
    if (since_s < 0.0).any() or (age_s < 0.0).any() or not np.isfinite(states.steps_done[rows]).all():
        raise BadInput("cluster monitor: found jobs seen after now, or steps that are no number; expected known jobs")
    jobs = submitted.rows(rows)
    speed = jobs.steps_per_s[np.arange(len(rows)), states.gpus[rows]]
    if np.isnan(speed).any():
        raise BadInput("cluster monitor: found a job on a GPU count without a speed, expected an allowed count")
    speed = speed * jobs.perf[np.arange(len(rows)), states.step[rows]]
    told = states.steps_done[rows]
    done = told + speed * since_s
    # What is done by the model alone ends no job: whether it has ended is told.
    least = OVERRUN_FRAC * np.maximum(told, np.minimum(done, jobs.steps_left))
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
