"""What becomes of jobs that are given less: advice and a truth as columns, once per job, however often it is drawn.

Which job is advised what is `advice`'s matter. Called by `pipelines.simulation.simulate` and `taut experiment`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.engine.arrivals import PoolJob
from pipelines.simulation.engine.truth import TRUTHS
from pipelines.simulation.measures.metrics import Uses
from pipelines.simulation.workloads import Gangs, Starts, divided, requests_of, units_of
from scheduler_core.cluster import UNITS
from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray, IntArray, Recommendation

DRAWN: Final = ("used_cpu_cores", "mem_avg_gib", "used_gpus")
"""What an instance draws on average, in the order of the requests."""


def predicted_times(answers: Sequence[Recommendation]) -> FloatArray:
    """Return the predicted run times (p50) of recommendations (n,), NaN where nothing is known."""
    times = np.array([answer.run_time_p50_s for answer in answers], dtype=np.float64)
    # What no model can mean (negative, infinite) is nothing known.
    return np.where(np.isfinite(times) & (times >= 0.0), times, np.nan)


def starts_under(truth: str, jobs: Sequence[PoolJob], gangs: Gangs, answers: Sequence[Recommendation]) -> Starts:
    """Give every job (n) the target of its recommendation, and ask the truth what its run becomes.

    The truth is asked where less is given than requested: at the full request every truth is the recorded run.

    Raises
    ------
    BadInput
        If there is no such truth.
    """
    if truth not in TRUTHS:
        raise BadInput(f"truth: found {truth!r}, expected one of {', '.join(sorted(TRUTHS))}")
    becomes = TRUTHS[truth]
    targets = np.array([answer.target.row() for answer in answers], dtype=np.float64).reshape(-1, len(UNITS))
    granted_units = np.minimum(divided(units_of(targets), gangs.pieces), gangs.request_units)
    granted_run_s, dies = gangs.run_s.copy(), np.zeros(len(jobs), dtype=np.bool_)
    for row in np.flatnonzero((granted_units != gangs.request_units).any(axis=1)).tolist():
        entry, answer = jobs[row], answers[row]
        outcome = becomes(entry.measured, entry.job.request, answer.target, answer)
        granted_run_s[row], dies[row] = outcome.run_s, outcome.killed
    return Starts(
        granted_units=granted_units,
        granted_run_s=granted_run_s,
        dies=dies,
        predicted_s=predicted_times(answers),
    )


def uses_of(frame: pl.DataFrame, gangs: Gangs, measured: Sequence[bool]) -> Uses:
    """Return what one instance of each job (n) draws on average at full speed, as far as its request went."""
    drawn = np.column_stack([frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in DRAWN])
    requests = requests_of(frame)
    bounded = np.where(np.isnan(requests), drawn, np.minimum(drawn, requests)) * np.array(UNITS)
    bounded[~np.array(measured, dtype=np.bool_)] = np.nan
    return Uses(mean=bounded / gangs.pieces[:, None])


def drawn_uses(uses: Uses, picks: IntArray) -> Uses:
    """Return the uses of the jobs that were drawn."""
    return Uses(mean=uses.mean[picks])
