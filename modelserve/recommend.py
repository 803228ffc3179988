"""Jobs in, recommendations out: Algorithm 1 with the models at hand, its answers in the shape of the contract.

Pure given a predictor; one bad job or one failing model keeps no other job from its answer.
Called by the commands, and by the service.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Protocol

import numpy as np

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from modelserve.predictor import Sources
from modelserve.requests import JobRow, job_of
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import RESOURCES, Job, Predictor, Recommendation, Request

Answer = dict[str, object]

POLICY: Final = ShrinkPolicy(device_mem_gib=GPU_MEM_GIB_OF_TYPE)
"""Algorithm 1 as it is served unless the caller says otherwise."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CitingPredictor(Predictor, Protocol):
    """A predictor that says which models answer for a job."""

    def sources(self, job: Job) -> Sources:
        """Return the models that answer for a job, and how far their history reaches."""
        ...


def recommend(
    rows: Sequence[JobRow],
    predictor: CitingPredictor,
    *,
    trace: str,
    theta: float | None = None,
    now: datetime | None = None,
    policy: ShrinkPolicy = POLICY,
) -> list[Answer]:
    """Recommend a target for each job, in the order given.

    Parameters
    ----------
    rows
        The jobs; a job that names no trace is of `trace`.
    predictor
        What answers; when it fails, the requests of the jobs it failed on stand (`predictor_unavailable`).
    theta
        Largest relative change of the predicted run time; the policy's own when None.
    now
        When a job is submitted that does not say so; when None, the moment its model's history was cut.
    """
    policy = policy if theta is None else replace(policy, theta=theta)
    jobs, sources = _jobs(rows, predictor, trace, now)
    answers: list[Answer] = [{} for _ in jobs]
    for members in _by_models(sources):
        for i, answer in zip(members, shrink([jobs[i] for i in members], predictor, policy), strict=True):
            answers[i] = _answer(answer, sources[i])
    return answers


def predict(
    rows: Sequence[JobRow], predictor: CitingPredictor, *, trace: str, now: datetime | None = None
) -> list[Answer]:
    """Predict run time and peak use of each job as it stands, as flat rows in the order given; null where unknown.

    Raises
    ------
    PredictorUnavailable
        A model cannot answer.
    """
    jobs, sources = _jobs(rows, predictor, trace, now)
    requests = np.array([job.request.row() for job in jobs], dtype=np.float64).reshape(-1, len(RESOURCES))
    times = predictor.run_times(jobs, np.arange(len(jobs)), requests)
    peak = predictor.peak_use(jobs)
    return [
        {
            "job_id": job.job_id,
            "trace": job.trace,
            "task_type": job.task_type,
            "run_time_p50_s": _known(times.p50[i]),
            "run_time_p90_s": _known(times.p90[i]),
            "peak_cpu_cores": _known(peak.cpu_cores[i]),
            "peak_mem_gib": _known(peak.mem_gib[i]),
            "peak_gpus": _known(peak.gpus[i]),
            "peak_gpu_mem_gib": _known(peak.gpu_mem_gib[i]),
            "measured_runs": int(peak.runs[i]),
            **_cited(sources[i]),
        }
        for i, job in enumerate(jobs)
    ]


def flat(answer: Mapping[str, object]) -> Answer:
    """Return a recommendation as one flat row, for tables: `cpu_cores`, `cpu_cores_target`, `cpu_cores_reason`, ...

    Examples
    --------
    >>> flat({"job_id": "a1", "models": {"usage": None}, "history": None})
    {'job_id': 'a1', 'models_usage': None, 'history': None}
    """
    row: Answer = {}
    for key, value in answer.items():
        if not isinstance(value, Mapping):
            row[key] = value
        elif key in _PER_RESOURCE:
            row |= {f"{resource}{_PER_RESOURCE[key]}": part for resource, part in value.items()}
        else:
            row |= {f"{key}_{part}": inner for part, inner in value.items()}
    return row


_PER_RESOURCE: Final[Mapping[str, str]] = {
    "request": "",
    "target": "_target",
    "lower_bound": "_lower_bound",
    "reasons": "_reason",
}


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


def _by_models(sources: Sequence[Sources]) -> list[list[int]]:
    """Group the jobs by the models that answer, so that a model that fails takes only its own jobs along."""
    groups: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    for i, source in enumerate(sources):
        groups[source.run_time, source.usage].append(i)
    return list(groups.values())


def _answer(found: Recommendation, sources: Sources) -> Answer:
    answer: Answer = {
        "job_id": found.job_id,
        "request": _amounts(found.request),
        "target": _amounts(found.target),
        "lower_bound": _amounts(found.lower_bound),
        "run_time_s": {"p50": _known(found.run_time_p50_s), "p90": _known(found.run_time_p90_s)},
        "run_time_change": _known(found.run_time_change),
        "reasons": {name: str(found.reasons[name]) if name in found.reasons else None for name in RESOURCES},
        "models": {"run_time": sources.run_time, "usage": sources.usage},
        "history": None if sources.history is None else sources.history.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "measured_runs": found.runs,
        "note": found.note or None,
    }
    return answer


def _cited(sources: Sources) -> Answer:
    return {
        "model_run_time": sources.run_time,
        "model_usage": sources.usage,
        "history": None if sources.history is None else sources.history.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _amounts(request: Request) -> dict[str, float | None]:
    return {name: _known(value) for name, value in zip(RESOURCES, request.row(), strict=True)}


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
