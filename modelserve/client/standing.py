"""Between the scheduler's nouns and the service's rows: jobs out, recommendations back, requests that stand.

No I/O; what is not sure is not passed on. Called by `modelserve.client.asynchronous`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from modelserve.client.calls import rows_as
from modelserve.contract.fields import Mode
from modelserve.contract.jobs import Amounts, Recommended
from modelserve.contract.requests import RecommendJob
from modelserve.errors import BadRequest
from scheduler_core.types import LEAST_GIVEN, RESOURCES, Job, Reason, Recommendation, Request

UNKNOWN: Final = Request(cpu_cores=math.nan, mem_gib=math.nan, gpus=math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(Recommendation):
    """A recommendation that came over the wire: whether it is to be followed, and the name of the answer it is from.

    `answer_id` goes back with the feedback about the job; it is empty where no answer came.
    """

    mode: Mode
    answer_id: str

    @property
    def given(self) -> Request:
        """What to give the job now: the target where the mode is `enforce`, else what it asked for."""
        return self.target if self.mode == "enforce" else self.request


def row_of(job: Job) -> RecommendJob:
    """Return a scheduler's job as the row that asks about it.

    Raises
    ------
    BadRequest
        It cannot be asked about, as a request of infinite size; the message names the field.
    """
    said = {
        "job_id": job.job_id,
        "trace": job.trace,
        "task_type": job.task_type,
        "request": _known(job.request),
        "instances": job.instances,
        "cluster": job.cluster,
        "role": job.role,
        "user": job.user,
        "group": job.group,
        "vc": job.vc,
        "workload": job.workload,
        "gpu_type": job.gpu_type,
        "submit_ts": _moment(job.submit_ts),
        "opted_out": job.opted_out,
        "floors": None if job.minimum is None else _known(job.minimum),
    }
    return rows_as(RecommendJob, [{name: value for name, value in said.items() if value is not None}])[0]


def recommendation_of(job: Job, row: Recommended) -> Advice:
    """Return the service's answer about a job; a target that cannot be meant leaves the request standing."""
    target = _request(row.target)
    for name, asked, given, least in zip(RESOURCES, job.request.row(), target.row(), LEAST_GIVEN, strict=True):
        if math.isnan(asked) != math.isnan(given) or given > asked or given < min(asked, least):
            return stands(job, f"the service said {name}={given:g} where {asked:g} was asked")
    return Advice(
        job_id=job.job_id,
        request=job.request,
        target=target,
        lower_bound=_request(row.lower_bound),
        run_time_p50_s=_number(row.run_time_s.p50),
        run_time_p90_s=_number(row.run_time_s.p90),
        run_time_change=_number(row.run_time_change),
        reasons={name: reason for name, reason in row.reasons if reason is not None},
        alpha=row.alpha,
        model_decided=row.model_decided,
        runs=row.measured_runs,
        note=row.note or "",
        mode=row.mode,
        answer_id=row.answer_id,
    )


def stands(job: Job, note: str) -> Advice:
    """Return the recommendation that leaves a job as it is because no prediction came, and why."""
    asked = {name for name, value in zip(RESOURCES, job.request.row(), strict=True) if not math.isnan(value)}
    return Advice(
        job_id=job.job_id,
        request=job.request,
        target=job.request,
        lower_bound=UNKNOWN,
        run_time_p50_s=math.nan,
        run_time_p90_s=math.nan,
        run_time_change=math.nan,
        reasons={name: Reason.PREDICTOR_UNAVAILABLE for name in RESOURCES if name in asked},
        alpha=1.0,
        model_decided=False,
        note=note,
        mode="observe",
        answer_id="",
    )


def askable(jobs: Iterable[Job]) -> tuple[list[RecommendJob | None], list[str]]:
    """Return each job's row, None where it cannot be asked about, and why ("" where it can)."""
    rows: list[RecommendJob | None] = []
    notes = []
    for job in jobs:
        try:
            rows.append(row_of(job))
            notes.append("")
        except BadRequest as error:
            rows.append(None)
            notes.append(str(error))
    return rows, notes


def _known(request: Request) -> dict[str, float]:
    given = zip(RESOURCES, request.row(), strict=True)
    # Nothing is also said as None by those who pass JSON's null on.
    return {name: value for name, value in given if value is not None and not math.isnan(value)}


def _moment(submit_ts: float) -> datetime | None:
    """Return a moment in UTC; 0 is a scheduler's way of not saying one."""
    return datetime.fromtimestamp(submit_ts, UTC) if submit_ts else None


def _request(amounts: Amounts) -> Request:
    return Request(cpu_cores=_number(amounts.cpu_cores), mem_gib=_number(amounts.mem_gib), gpus=_number(amounts.gpus))


def _number(value: float | None) -> float:
    return math.nan if value is None else value
