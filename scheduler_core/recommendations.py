"""Recommendations of Algorithm 1: targets and reasons computed from predictions, and its safe call from a round.

Candidates and predictions come from `candidates` and `shrink`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.candidates import Candidates, chosen_alpha
from scheduler_core.types import (
    NOTHING,
    RESOURCES,
    BoolArray,
    FloatArray,
    IntArray,
    Job,
    Reason,
    Recommendation,
    Request,
)

__all__ = ["Scale", "advised", "unchanged_request"]

CHANGE_SLACK: Final = 1e-9
"""Tolerance for floating-point noise when a relative saving is compared with `minimum_change`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Inputs and predictions of one call of Algorithm 1, for n jobs, A values of alpha and 3 resources.

    `p50` and `p90` (n, 1 + A) are run times in seconds, in the first column for the request, then for the candidates.
    `change` (n, A) is the relative change of p50 from the request. `accepted` (n,) is the index of the first alpha
    whose change is small enough, A if there is none. `eligible` marks jobs that may shrink, `invalid` jobs with an
    invalid prediction; `important` (n, 3) marks resources that keep their request. `raises` (n, 3) holds the floors of
    resources whose peak use exceeds the request, NaN for others.
    """

    requests: FloatArray
    alphas: FloatArray
    floors: FloatArray | None
    raises: FloatArray
    minimums: FloatArray
    candidates: Candidates
    important: BoolArray
    eligible: BoolArray
    accepted: IntArray
    p50: FloatArray
    p90: FloatArray
    change: FloatArray
    invalid: BoolArray
    runs: IntArray
    minimum_change: float


def unchanged_request(job: Job, reason: Reason, *, note: str = "") -> Recommendation:
    """Return a recommendation that keeps a job's request, with the same reason for every known resource."""
    return Recommendation(
        job_id=job.job_id,
        request=job.request,
        target=job.request,
        lower_bound=NOTHING,
        run_time_p50_s=np.nan,
        run_time_p90_s=np.nan,
        run_time_change=np.nan,
        reasons={name: reason for name, value in zip(RESOURCES, job.request.row(), strict=True) if value == value},
        alpha=1.0,
        model_decided=False,
        note=note,
    )


def recommend(jobs: Sequence[Job], round_: Round) -> list[Recommendation]:
    """Return one recommendation per job from the predictions of one call of Algorithm 1."""
    known = np.ones_like(round_.important) if round_.floors is None else np.isfinite(round_.floors)
    cold = np.isnan(round_.p50[:, 0]) | ~known.any(axis=1)
    decided = round_.eligible & ~cold & ~round_.invalid
    movable = decided[:, None] & known & np.isfinite(round_.requests)

    chosen = chosen_alpha(round_.candidates.judged, round_.accepted, movable & ~round_.important)
    targets = _targets(round_, chosen)
    by_floor_alone = _targets(round_, np.where(movable, 0, -1))
    reasons = _reasons(jobs, round_, chosen, targets, cold, known)

    changed = _differ(targets, round_.requests)
    passed = round_.accepted < len(round_.alphas)
    column = np.where(changed & passed, round_.accepted + 1, 0)
    at = np.arange(len(jobs))
    unmoved = np.where(np.isfinite(round_.p50[:, 0]), 0.0, np.nan)
    change = np.where(column > 0, round_.change[at, np.maximum(column - 1, 0)], unmoved)
    lower = _lower_bounds(round_)
    raises = np.where(_too_little(jobs, round_, cold), round_.raises, np.nan)
    model_decided = _differ(targets, by_floor_alone)
    return [
        Recommendation(
            job_id=job.job_id,
            request=job.request,
            target=_request(targets[i]) if changed[i] else job.request,
            lower_bound=_request(lower[i]),
            run_time_p50_s=float(round_.p50[i, column[i]]),
            run_time_p90_s=float(round_.p90[i, column[i]]),
            run_time_change=float(change[i]),
            reasons=reasons[i],
            alpha=float(round_.alphas[column[i] - 1]) if column[i] else 1.0,
            model_decided=bool(model_decided[i]),
            runs=int(round_.runs[i]),
            raise_to=_request(raises[i]) if np.isfinite(raises[i]).any() else NOTHING,
        )
        for i, job in enumerate(jobs)
    ]


def _lower_bounds(round_: Round) -> FloatArray:
    """Return the larger of floor and minimum, but at most the request (n, 3); NaN where both are unknown."""
    minimums = np.where(round_.minimums > 0.0, round_.minimums, np.nan)
    known = minimums if round_.floors is None else np.fmax(round_.floors, minimums)
    return np.minimum(known, round_.requests)


def _targets(round_: Round, chosen: IntArray) -> FloatArray:
    """Return the targets (n, 3) for chosen indices of alpha (n, 3); -1, or too small a saving, keeps the request."""
    values = np.take_along_axis(round_.candidates.values, np.maximum(chosen, 0)[:, None, :], axis=1)[:, 0]
    saved = round_.requests - values
    worthwhile = (saved > 0.0) & (saved >= (round_.minimum_change - CHANGE_SLACK) * round_.requests)
    return np.where((chosen >= 0) & worthwhile, values, round_.requests)


def _too_little(jobs: Sequence[Job], round_: Round, cold: BoolArray) -> BoolArray:
    """Return which resources to recommend a raise for (n, 3); none for a job without a prediction or opted out."""
    silent = cold | round_.invalid | np.array([job.opted_out for job in jobs])
    return np.asarray(np.isfinite(round_.raises) & ~silent[:, None], dtype=np.bool_)


def _differ(left: FloatArray, right: FloatArray) -> BoolArray:
    # Resources that the trace does not record are NaN on both sides.
    different: BoolArray = (left != right) & ~(np.isnan(left) & np.isnan(right))
    return np.asarray(different.any(axis=1), dtype=np.bool_)


def _reasons(
    jobs: Sequence[Job], round_: Round, chosen: IntArray, targets: FloatArray, cold: BoolArray, known: BoolArray
) -> list[dict[str, Reason]]:
    binds = np.take_along_axis(round_.candidates.floor_binds, np.maximum(chosen, 0)[:, None, :], axis=1)[:, 0]
    opted_out = np.array([job.opted_out for job in jobs])
    shape = targets.shape
    # The first case that is true gives the reason.
    cases: list[tuple[BoolArray, Reason]] = [
        (np.broadcast_to(opted_out[:, None], shape), Reason.OPTED_OUT),
        (np.broadcast_to(round_.invalid[:, None], shape), Reason.PREDICTOR_UNAVAILABLE),
        (np.broadcast_to(cold[:, None], shape), Reason.COLD_START),
        (np.isfinite(round_.raises), Reason.TOO_LITTLE),
        (round_.important, Reason.IMPORTANT),
        (~known, Reason.NOT_MEASURED),
        (round_.requests <= 0.0, Reason.BELOW_THRESHOLD),
        (chosen < 0, Reason.NO_CANDIDATE),
        (binds, Reason.FLOOR),
        (targets < round_.requests, Reason.SHRUNK),
    ]
    codes = np.select([case for case, _ in cases], [str(reason) for _, reason in cases], str(Reason.BELOW_THRESHOLD))
    requested: BoolArray = np.isfinite(round_.requests)
    return [
        {name: Reason(codes[i, r]) for r, name in enumerate(RESOURCES) if requested[i, r]} for i in range(len(jobs))
    ]


def _request(row: FloatArray) -> Request:
    return Request(cpu_cores=float(row[0]), mem_gib=float(row[1]), gpus=float(row[2]))


Scale = Callable[[Sequence[Job]], Sequence[Recommendation]]
"""A function that runs Algorithm 1 with a fixed predictor and policy: one recommendation per job, in order."""

ROUNDING_SLACK: Final = 1e-9
"""Maximum relative excess of a target over its request that is accepted as rounding."""


def advised(jobs: Sequence[Job], scale: Scale) -> list[Recommendation]:
    """Return the recommendation of `scale` for each job; keep the request if `scale` fails or its result is invalid.

    The reason for such a job is `predictor_unavailable`, and the note describes the failure.

    >>> from scheduler_core.types import Request
    >>> job = Job(job_id="a", trace="toy", task_type="ctr", request=Request(cpu_cores=6.0, mem_gib=29.0, gpus=0.5))
    >>> [answer] = advised([job], lambda jobs: [])
    >>> answer.target == job.request, answer.note
    (True, '0 recommendations for 1 jobs')
    """
    try:
        answers = list(scale(jobs))
    except Exception as error:  # whatever a predictor raises must not stop the scheduler
        return [_unavailable(job, f"{type(error).__name__}: {error}") for job in jobs]
    if len(answers) != len(jobs):
        return [_unavailable(job, f"{len(answers)} recommendations for {len(jobs)} jobs") for job in jobs]
    return [_checked(job, answer) for job, answer in zip(jobs, answers, strict=True)]


def _checked(job: Job, answer: Recommendation) -> Recommendation:
    if not isinstance(answer, Recommendation):
        return _unavailable(job, f"found a {type(answer).__name__}, expected a recommendation")
    if answer.job_id != job.job_id:
        return _unavailable(job, f"found the recommendation of {answer.job_id[:40]!r}")
    if not all(map(_within, answer.target.row(), job.request.row())):
        return _unavailable(
            job, f"found the target {answer.target.row()}, expected 0 to the request {job.request.row()}"
        )
    if not (math.isnan(answer.run_time_p50_s) or 0.0 < answer.run_time_p50_s < math.inf):
        return _unavailable(job, f"found a run time of {answer.run_time_p50_s} s, expected more than 0")
    return answer


def _within(target: float, request: float) -> bool:
    if math.isnan(request):
        return math.isnan(target)
    return 0.0 <= target <= request * (1.0 + ROUNDING_SLACK)


def _unavailable(job: Job, note: str) -> Recommendation:
    return unchanged_request(job, Reason.PREDICTOR_UNAVAILABLE, note=note)
