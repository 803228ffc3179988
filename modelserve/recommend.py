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
from modelserve.answered import known, moment
from modelserve.bundle.predictor import Sources
from modelserve.contract.requests import JobRow, job_of
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import RESOURCES, Job, Predictor, Reason, Recommendation, Request

Answer = dict[str, object]

POLICY: Final = ShrinkPolicy(device_mem_gib=GPU_MEM_GIB_OF_TYPE)
"""Algorithm 1 as it is served unless the caller says otherwise."""

NOISE: Final = 1e-12
"""What an amount may lie above a round one, relative to it, and still be that one."""

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
    found = decide(jobs, sources, predictor, [policy] * len(jobs))
    return [answer_of(each, cited) for each, cited in zip(found, sources, strict=True)]


def decide(
    jobs: Sequence[Job], sources: Sequence[Sources], predictor: Predictor, policies: Sequence[ShrinkPolicy]
) -> list[Recommendation]:
    """Run Algorithm 1 on each job under its own policy (n, the same object for the same policy), in the order given.

    Jobs go together by policy and by the models that answer, so that a model that fails takes only its own jobs along.
    """
    groups: dict[tuple[str | None, str | None, str | None, int], list[int]] = defaultdict(list)
    for i, (source, policy) in enumerate(zip(sources, policies, strict=True)):
        groups[source.run_time, source.usage, source.failure, id(policy)].append(i)
    found: dict[int, Recommendation] = {}
    for members in groups.values():
        together = shrink([jobs[i] for i in members], predictor, policies[members[0]])
        found.update(zip(members, together, strict=True))
    return [found[i] for i in range(len(jobs))]


def answer_of(found: Recommendation, sources: Sources) -> Answer:
    """Return a recommendation in the shape of the contract; what is unknown is None, what is given is rounded up."""
    asked = found.request
    return {
        "job_id": found.job_id,
        "request": _amounts(asked.row()),
        "target": _amounts(rounded_up(found.target, asked)),
        "lower_bound": _amounts(rounded_up(found.lower_bound, asked)),
        "run_time_s": {"p50": known(found.run_time_p50_s), "p90": known(found.run_time_p90_s)},
        "run_time_change": known(found.run_time_change),
        "reasons": {name: str(found.reasons[name]) if name in found.reasons else None for name in RESOURCES},
        "models": {"run_time": sources.run_time, "usage": sources.usage},
        "history": None if sources.history is None else moment(sources.history),
        "measured_runs": found.runs,
        "note": _note(found, sources),
    }


def _note(found: Recommendation, sources: Sources) -> str | None:
    """Return what a failed predictor said, or why nothing is known: a misspelt trace or type has no model either."""
    if found.note or Reason.COLD_START not in found.reasons.values():
        return found.note or None
    missing = [kind for kind, name in (("run-time", sources.run_time), ("usage", sources.usage)) if name is None]
    if missing:
        return f"no {' and no '.join(missing)} model of this trace and task type"
    return f"{found.runs} measured runs of its like: too few to say what it needs"


def rounded_up(amounts: Request, asked: Request) -> tuple[float, float, float]:
    """Round amounts up to six decimals, never above what was asked; noise of binary fractions is no reason to go up.

    Examples
    --------
    >>> six = Request(cpu_cores=6.0, mem_gib=29.3, gpus=0.5)
    >>> rounded_up(Request(cpu_cores=3.3000000000000003, mem_gib=13.89876543, gpus=0.5), six)
    (3.3, 13.898766, 0.5)
    """
    cpu_cores, mem_gib, gpus = map(_up, amounts.row(), asked.row())
    return cpu_cores, mem_gib, gpus


def _up(value: float, asked: float) -> float:
    if value >= asked or not math.isfinite(value):
        return value
    nearest = round(value, 6)
    rounded = nearest if nearest >= value * (1.0 - NOISE) else math.ceil(value * 1e6) / 1e6
    return min(rounded, asked)


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
            "run_time_p50_s": known(times.p50[i]),
            "run_time_p90_s": known(times.p90[i]),
            "peak_cpu_cores": known(peak.cpu_cores[i]),
            "peak_mem_gib": known(peak.mem_gib[i]),
            "peak_gpus": known(peak.gpus[i]),
            "peak_gpu_mem_gib": known(peak.gpu_mem_gib[i]),
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


def _cited(sources: Sources) -> Answer:
    return {
        "model_run_time": sources.run_time,
        "model_usage": sources.usage,
        "history": None if sources.history is None else moment(sources.history),
    }


def _amounts(row: tuple[float, float, float]) -> dict[str, float | None]:
    return {name: known(value) for name, value in zip(RESOURCES, row, strict=True)}
