"""Recommendations and predictions without the service, made in this process from bundles.

Files are read and written by the commands, which call this module.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Protocol

import numpy as np

from modelserve.bundle.predictor import InProcessPredictor, Sources
from modelserve.calls.recommendations import POLICY, decide
from modelserve.contract.requests import JobRow, job_of
from modelserve.contract.writing import Values, answer_of, known, moment
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import RESOURCES, Job, Predictor

__all__ = ["predict", "recommend"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CitingPredictor(Predictor, Protocol):
    """A predictor that also tells which models predict a job."""

    def sources(self, job: Job) -> Sources:
        """Return the models that predict a job, and the end of their history."""
        ...


def recommend(
    rows: Sequence[JobRow],
    predictor: CitingPredictor,
    *,
    trace: str,
    theta: float | None = None,
    now: datetime | None = None,
    policy: ShrinkPolicy = POLICY,
) -> list[Values]:
    """Recommend a smaller request for each job, in the order of `rows`.

    Parameters
    ----------
    rows
        The jobs; `trace` is the trace of jobs that name none.
    predictor
        The predictor; jobs for which it fails keep their request (reason `predictor_unavailable`).
    theta
        Maximum relative change of the predicted run time; if None, as in `policy`.
    now
        Submit time of jobs that name none; if None, the end of the history of the job's models.
    """
    policy = policy if theta is None else replace(policy, theta=theta)
    jobs, sources = _jobs(rows, predictor, trace, now)
    found = decide(jobs, sources, predictor, [policy] * len(jobs))
    return [answer_of(each, cited) for each, cited in zip(found, sources, strict=True)]


def predict(
    rows: Sequence[JobRow], predictor: InProcessPredictor, *, trace: str, now: datetime | None = None
) -> list[Values]:
    """Predict run time and peak use of each job with its own request, as flat rows in the order of `rows`.

    `basis` and `ended_jobs` are those of `modelserve.contract.jobs.Prediction`. Unknown values are None.
    """
    jobs, sources = _jobs(rows, predictor, trace, now)
    requests = np.array([job.request.row() for job in jobs], dtype=np.float64).reshape(-1, len(RESOURCES))
    peak, bases = predictor.peak_use(jobs), predictor.run_time_bases(jobs)
    times = predictor.run_times(jobs, np.arange(len(jobs)), requests)
    return [
        {
            "job_id": job.job_id,
            "trace": job.trace,
            "task_type": job.task_type,
            "run_time_p50_s": known(times.p50[i]),
            "run_time_p90_s": known(times.p90[i]),
            "basis": basis,
            "ended_jobs": ended,
            "peak_cpu_cores": known(peak.cpu_cores[i]),
            "peak_mem_gib": known(peak.mem_gib[i]),
            "peak_gpus": known(peak.gpus[i]),
            "peak_gpu_mem_gib": known(peak.gpu_mem_gib[i]),
            "measured_runs": int(peak.runs[i]),
            **_cited(sources[i]),
        }
        for i, (job, (basis, ended)) in enumerate(zip(jobs, (each or (None, None) for each in bases), strict=True))
    ]


def _jobs(
    rows: Sequence[JobRow], predictor: CitingPredictor, trace: str, now: datetime | None
) -> tuple[list[Job], list[Sources]]:
    jobs, sources = [], []
    for row in rows:
        job = job_of(row, trace=trace, submitted=now or EPOCH)
        cited = predictor.sources(job)
        if row.submit_ts is None and now is None and cited.history is not None:
            job = replace(job, submit_ts=cited.history.timestamp())
        jobs.append(job)
        sources.append(cited)
    return jobs, sources


def _cited(sources: Sources) -> Values:
    return {
        "model_run_time": sources.run_time,
        "model_usage": sources.usage,
        "history": None if sources.history is None else moment(sources.history),
    }
