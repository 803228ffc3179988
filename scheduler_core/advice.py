"""Ask Algorithm 1 for all new jobs of a round at once, and survive whatever it does.

What it says is decided in `shrink`, over a predictor that may be slow, wrong or away; no job is lost to it here.
Called by `rounds`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from scheduler_core.types import Job, Reason, Recommendation
from scheduler_core.verdicts import standing

Scale = Callable[[Sequence[Job]], Sequence[Recommendation]]
"""Algorithm 1 with its predictor and policy filled in: one recommendation per job, in order."""

ROUNDING_SLACK: Final = 1e-9
"""Relative excess of a target over its request that counts as none."""


def advised(jobs: Sequence[Job], scale: Scale) -> list[Recommendation]:
    """Return what `scale` recommends for each job; where it fails or answers nonsense, the request stands.

    The reason then is `predictor_unavailable`, and the note says what was found.

    >>> from scheduler_core.types import Request
    >>> asked = Job(job_id="a", trace="toy", task_type="ctr", request=Request(cpu_cores=6.0, mem_gib=29.0, gpus=0.5))
    >>> [answer] = advised([asked], lambda jobs: [])
    >>> answer.target == asked.request, answer.note
    (True, '0 recommendations for 1 jobs')
    """
    try:
        answers = list(scale(jobs))
    except Exception as error:  # whatever a predictor raises, the scheduler goes on
        return [_standing(job, f"{type(error).__name__}: {error}") for job in jobs]
    if len(answers) != len(jobs):
        return [_standing(job, f"{len(answers)} recommendations for {len(jobs)} jobs") for job in jobs]
    return [_checked(job, answer) for job, answer in zip(jobs, answers, strict=True)]


def _checked(job: Job, answer: Recommendation) -> Recommendation:
    if not isinstance(answer, Recommendation):
        return _standing(job, f"found a {type(answer).__name__}, expected a recommendation")
    if answer.job_id != job.job_id:
        return _standing(job, f"found the recommendation of {answer.job_id[:40]!r}")
    if not all(map(_within, answer.target.row(), job.request.row())):
        return _standing(job, f"found the target {answer.target.row()}, expected 0 to the request {job.request.row()}")
    if not (math.isnan(answer.run_time_p50_s) or 0.0 < answer.run_time_p50_s < math.inf):
        return _standing(job, f"found a run time of {answer.run_time_p50_s} s, expected more than 0")
    return answer


def _within(target: float, request: float) -> bool:
    if math.isnan(request):
        return math.isnan(target)
    return 0.0 <= target <= request * (1.0 + ROUNDING_SLACK)


def _standing(job: Job, note: str) -> Recommendation:
    return standing(job, Reason.PREDICTOR_UNAVAILABLE, note=note)
