"""Algorithm 1: how far each over-claimed request can shrink, all candidates of a round in one matrix.

Pure given a predictor; nothing is queued, placed or remembered here.
Called by the engines of `pipelines.simulation` through their `scale` argument, and by `modelserve.recommend`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from scheduler_core.candidates import candidates_of, important_resources
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.floors import device_memory, minimum_requests, peak_floors, round_up_gpus
from scheduler_core.shrink_policy import ALPHA0, MAX_ALPHA, PAPER_ALPHA0, SURE_RUNS, Guard, ShrinkPolicy
from scheduler_core.types import (
    RESOURCES,
    BoolArray,
    FloatArray,
    IntArray,
    Job,
    Knowledge,
    PeakUse,
    Predictor,
    Reason,
    Recommendation,
)
from scheduler_core.verdicts import Round, standing, verdicts

__all__ = [
    "ALPHA0",
    "MAX_ALPHA",
    "PAPER_ALPHA0",
    "SURE_RUNS",
    "Guard",
    "Recommendation",
    "ShrinkPolicy",
    "round_up_gpus",
    "shrink",
]

Answer = TypeVar("Answer")


def shrink(jobs: Sequence[Job], predictor: Predictor, policy: ShrinkPolicy | None = None) -> list[Recommendation]:
    """Recommend a target for each job, in the order given; a predictor that fails leaves every request standing.

    References
    ----------
    Yang, Hong, Tang: Artificial intelligence computing power cluster scheduling based on task resource demand
    prediction, Algorithm 1; repaired (every candidate is alpha times the *original* request) and guarded.

    Examples
    --------
    >>> from pipelines.simulation.engine.predictors import ConstantPredictor
    >>> from scheduler_core.types import Request
    >>> seen = ConstantPredictor(run_s=60.0, peak=Request(cpu_cores=4.0, mem_gib=1.0, gpus=0.23))
    >>> asked = Job(job_id="a", trace="toy", task_type="ctr", request=Request(cpu_cores=6.0, mem_gib=25.0, gpus=0.5))
    >>> [answer] = shrink([asked], seen)
    >>> answer.target
    Request(cpu_cores=4.0, mem_gib=1.25, gpus=0.25)
    >>> [f"{resource}: {reason}" for resource, reason in answer.reasons.items()]
    ['cpu_cores: floor', 'mem_gib: shrunk', 'gpus: floor']
    """
    policy = policy or ShrinkPolicy()
    if not jobs:
        return []
    try:
        return _decide(jobs, predictor, policy)
    except PredictorUnavailable as error:
        return [standing(job, Reason.PREDICTOR_UNAVAILABLE, note=str(error)) for job in jobs]


def _decide(jobs: Sequence[Job], predictor: Predictor, policy: ShrinkPolicy) -> list[Recommendation]:
    requests = np.array([job.request.row() for job in jobs], dtype=np.float64)
    knowledge = _answer(lambda: _checked_knowledge(predictor.knowledge(jobs), len(jobs)))
    guarded = policy.guard == "usage"
    peak = _answer(lambda: _checked_peak(predictor.peak_use(jobs), len(jobs))) if guarded else None
    floors = None if peak is None else _floors(jobs, peak, policy)
    if peak is not None:
        knowledge = _without_importance(knowledge, peak.runs >= policy.sure_runs)
    alphas = policy.alphas()
    minimums = minimum_requests(jobs)
    candidates = candidates_of(requests, alphas, floors, minimums, knowledge, policy.gpu_grid)

    asked = ~np.array([job.opted_out for job in jobs])
    if floors is not None:
        asked &= np.isfinite(floors).any(axis=1)
    shown = np.where(candidates.spoken, candidates.values, requests[:, None, :])
    p50, p90 = _answer(lambda: _ask(predictor, jobs, requests, shown, asked))
    with np.errstate(divide="ignore", invalid="ignore"):
        change = p50[:, 1:] / p50[:, :1] - 1.0
    passes = np.abs(change) < policy.theta
    accepted = np.where(passes.any(axis=1), passes.argmax(axis=1), len(alphas)).astype(np.int64)

    return verdicts(
        jobs,
        Round(
            requests=requests,
            alphas=alphas,
            floors=floors,
            minimums=minimums,
            candidates=candidates,
            important=important_resources(knowledge),
            asked=asked,
            accepted=accepted,
            p50=p50,
            p90=p90,
            change=change,
            absurd=_absurd(p50[:, 0], peak),
            runs=np.zeros(len(jobs), dtype=np.int64) if peak is None else peak.runs,
            minimum_change=0.0 if floors is None else policy.minimum_change,
        ),
    )


def _absurd(run_s: FloatArray, peak: PeakUse | None) -> BoolArray:
    """Mark the jobs whose answers cannot be meant; NaN can: it says that nothing is known."""
    absurd = (run_s <= 0.0) | np.isinf(run_s)
    for values in () if peak is None else (peak.cpu_cores, peak.mem_gib, peak.gpus, peak.gpu_mem_gib):
        absurd |= (values < 0.0) | np.isinf(values)
    return absurd


def _answer(ask: Callable[[], Answer]) -> Answer:
    """Return what the predictor answers; whatever it raises, the scheduler hears that it is unavailable."""
    try:
        return ask()
    except PredictorUnavailable:
        raise
    except Exception as error:
        raise PredictorUnavailable(f"{type(error).__name__}: {error}") from error


def _without_importance(knowledge: Sequence[Knowledge], where: BoolArray) -> list[Knowledge]:
    return [replace(each, important=frozenset()) if sure else each for each, sure in zip(knowledge, where, strict=True)]


def _checked_knowledge(knowledge: Sequence[Knowledge], count: int) -> Sequence[Knowledge]:
    if len(knowledge) != count:
        raise PredictorUnavailable(f"knowledge of {len(knowledge)} jobs, expected {count}")
    return knowledge


def _checked_peak(peak: PeakUse, count: int) -> PeakUse:
    arrays = (peak.cpu_cores, peak.mem_gib, peak.gpus, peak.gpu_mem_gib, peak.runs)
    shapes = [np.shape(values) for values in arrays]
    if any(shape != (count,) for shape in shapes):
        raise PredictorUnavailable(f"peak use of shapes {shapes}, expected {len(shapes)} times ({count},)")
    return peak


def _floors(jobs: Sequence[Job], peak: PeakUse, policy: ShrinkPolicy) -> FloatArray:
    device_gib = device_memory([job.gpu_type for job in jobs], policy.device_mem_gib, policy.assumed_device_mem_gib)
    return peak_floors(
        peak,
        device_gib,
        cpu_margin=policy.cpu_margin,
        mem_margin=policy.mem_margin,
        gpu_margin=policy.gpu_margin,
        gpu_mem_margin=policy.gpu_mem_margin,
        min_runs=policy.min_runs,
    )


def _ask(
    predictor: Predictor, jobs: Sequence[Job], requests: FloatArray, shown: FloatArray, asked: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Ask for every request and every candidate at once; return p50 and p90 as (n, 1 + A), NaN where not asked.

    A candidate that equals the one before it (the first of all: the request) is not asked again, its answer is known.
    """
    every = np.concatenate([requests[:, None, :], shown], axis=1)
    later, earlier = every[:, 1:], every[:, :-1]
    fresh = np.ones(every.shape[:2], dtype=np.bool_)
    fresh[:, 1:] = asked[:, None] & ((later != earlier) & ~(np.isnan(later) & np.isnan(earlier))).any(axis=2)
    order = np.flatnonzero(fresh)
    answer = predictor.run_times(jobs, order // every.shape[1], every.reshape(-1, len(RESOURCES))[order])
    # Every row begins with a fresh cell, so the last fresh one in reading order is of the same job.
    source = (np.cumsum(fresh) - 1).reshape(fresh.shape)
    given = fresh | asked[:, None]
    return _table(answer.p50, source, given), _table(answer.p90, source, given)


def _table(values: FloatArray, source: IntArray, given: BoolArray) -> FloatArray:
    expected = int(source[-1, -1]) + 1
    if np.shape(values) != (expected,):
        raise PredictorUnavailable(f"run times of shape {np.shape(values)}, expected ({expected},)")
    return np.where(given, np.asarray(values, dtype=np.float64)[source], np.nan)
