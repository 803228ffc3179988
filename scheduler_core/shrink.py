"""Algorithm 1 and its parameters: how far each over-claimed request can shrink without a longer run time.

It has no side effects besides those of the predictor. `candidates` computes candidate requests and floors of use,
`recommendations` targets and reasons.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar

import numpy as np

from scheduler_core.candidates import (
    GPUS,
    ROUNDING_SLACK,
    candidates_of,
    device_memory,
    important_resources,
    minimum_requests,
    peak_floors,
    round_up_gpus,
)
from scheduler_core.errors import BadInput, PredictorUnavailable
from scheduler_core.recommendations import Round, recommend, unchanged_request
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
    "unchanged_request",
]

ALPHA0: Final = 0.05
"""Smallest factor alpha under the guard `usage`, where floors of peak use keep targets from being too small."""

PAPER_ALPHA0: Final = 0.5
"""Smallest factor alpha without floors (ours), to reproduce Yang, Hong and Tang, who do not state theirs."""

SURE_RUNS: Final = 50
"""Default of `ShrinkPolicy.sure_runs`: with so many measured runs of similar jobs, no resource counts as important."""

MAX_ALPHA: Final = 0.99
"""Maximum of `ShrinkPolicy.alpha0`; with a larger one hardly any request would shrink."""

Guard = Literal["none", "usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkPolicy:
    """The parameters of Algorithm 1 and of the guard around it.

    The studies evaluate these defaults; all commands and the service use them unless configured otherwise.

    `alpha0`, `alpha_step`: the candidates are the original request times alpha0, alpha0 + alpha_step, ... below 1. If
    `alpha0` is None it is `ALPHA0`, or `PAPER_ALPHA0` under guard `none`, which has no floors.
    `theta`: upper limit of the relative change of the predicted run time that a candidate may cause.
    `guard`: `usage` keeps every target at or above the predicted peak use; `none` has no floors, as in Yang, Hong and
    Tang.
    `min_runs`: minimum number of measured runs for a floor; with fewer the request is kept (`cold_start`).
    `sure_runs`: with at least as many measured runs of similar jobs, no resource counts as important. Importance
    is estimated over all jobs of a task type, so use measured on similar jobs outweighs it. With infinity, important
    resources never shrink; with a number below `min_runs`, they may shrink wherever there is a floor.
    `minimum_change`: relative saving below which a resource keeps its request, and relative excess of peak use over
    the request up to which no raise is recommended (guard `usage` only).
    `*_margin`: relative margin of a floor above the predicted peak. A job with too little memory dies, so memory has a
    margin. A job with too little CPU or GPU only runs more slowly, so these have no margin by default.
    `gpu_grid`: step to which GPU requests below one GPU are rounded; larger requests are whole GPUs.
    `device_mem_gib`: memory of one GPU by GPU type; unlisted types have `assumed_device_mem_gib`.
    """

    alpha0: float | None = None
    alpha_step: float = 0.05
    theta: float = 0.05
    guard: Guard = "usage"
    min_runs: int = 3
    sure_runs: float = SURE_RUNS
    minimum_change: float = 0.05
    cpu_margin: float = 0.0
    mem_margin: float = 0.15
    gpu_margin: float = 0.0
    gpu_mem_margin: float = 0.15
    gpu_grid: float = 0.05
    device_mem_gib: Mapping[str, float] = field(default_factory=dict)
    assumed_device_mem_gib: float = 16.0

    def __post_init__(self) -> None:
        checks = {
            "alpha0": 0.0 <= self.first_alpha <= MAX_ALPHA,
            "alpha_step": 0.0 < self.alpha_step <= 1.0,
            "theta": self.theta > 0.0,
            "guard": self.guard in ("none", "usage"),
            "min_runs": self.min_runs >= 0,
            "sure_runs": self.sure_runs >= 0,
            "minimum_change": 0.0 <= self.minimum_change < 1.0,
            "gpu_grid": 0.0 < self.gpu_grid <= 1.0,
            "assumed_device_mem_gib": self.assumed_device_mem_gib > 0.0,
            **{
                name: getattr(self, name) >= 0.0
                for name in ("cpu_margin", "mem_margin", "gpu_margin", "gpu_mem_margin")
            },
        }
        for name, holds in checks.items():
            if not holds:
                raise BadInput(f"shrink policy: {name}={getattr(self, name)!r} is out of its range; see ShrinkPolicy")

    @property
    def first_alpha(self) -> float:
        """Return the smallest factor alpha to try."""
        if self.alpha0 is not None:
            return self.alpha0
        return PAPER_ALPHA0 if self.guard == "none" else ALPHA0

    def alphas(self) -> FloatArray:
        """Return the factors alpha of the candidates in ascending order, all below 1."""
        count = int(np.ceil((1.0 - self.first_alpha) / self.alpha_step - ROUNDING_SLACK))
        return np.round(self.first_alpha + self.alpha_step * np.arange(count), 12)


Answer = TypeVar("Answer")


def shrink(jobs: Sequence[Job], predictor: Predictor, policy: ShrinkPolicy | None = None) -> list[Recommendation]:
    """Return a recommendation for each job, in order; if the predictor fails, every request is kept.

    References
    ----------
    Yang, Hong, Tang: Artificial intelligence computing power cluster scheduling based on task resource demand
    prediction, Algorithm 1; changed: every candidate is alpha times the *original* request, and not below the floors.

    Examples
    --------
    >>> from pipelines.simulation.advice import ConstantPredictor
    >>> from scheduler_core.types import Request
    >>> seen = ConstantPredictor(run_s=60.0, peak=Request(cpu_cores=4.0, mem_gib=1.0, gpus=0.23))
    >>> job = Job(job_id="a", trace="toy", task_type="ctr", request=Request(cpu_cores=6.0, mem_gib=25.0, gpus=0.5))
    >>> [answer] = shrink([job], seen)
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
        return [unchanged_request(job, Reason.PREDICTOR_UNAVAILABLE, note=str(error)) for job in jobs]


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

    eligible = ~np.array([job.opted_out for job in jobs])
    if floors is not None:
        eligible &= np.isfinite(floors).any(axis=1)
    inputs = np.where(candidates.judged, candidates.values, requests[:, None, :])
    p50, p90 = _answer(lambda: _predict(predictor, jobs, requests, inputs, eligible))
    with np.errstate(divide="ignore", invalid="ignore"):
        change = p50[:, 1:] / p50[:, :1] - 1.0
    passes = np.abs(change) < policy.theta
    accepted = np.where(passes.any(axis=1), passes.argmax(axis=1), len(alphas)).astype(np.int64)

    return recommend(
        jobs,
        Round(
            requests=requests,
            alphas=alphas,
            floors=floors,
            raises=_raises(jobs, peak, requests, policy),
            minimums=minimums,
            candidates=candidates,
            important=important_resources(knowledge),
            eligible=eligible,
            accepted=accepted,
            p50=p50,
            p90=p90,
            change=change,
            invalid=_invalid(p50[:, 0], peak),
            runs=np.zeros(len(jobs), dtype=np.int64) if peak is None else peak.runs,
            minimum_change=0.0 if floors is None else policy.minimum_change,
        ),
    )


def _invalid(run_s: FloatArray, peak: PeakUse | None) -> BoolArray:
    """Return which jobs have an invalid prediction; NaN is valid and means unknown."""
    invalid = (run_s <= 0.0) | np.isinf(run_s)
    for values in () if peak is None else (peak.cpu_cores, peak.mem_gib, peak.gpus, peak.gpu_mem_gib):
        invalid |= (values < 0.0) | np.isinf(values)
    return invalid


def _answer(predict: Callable[[], Answer]) -> Answer:
    """Return the result of a prediction; raise any exception of it as `PredictorUnavailable`."""
    try:
        return predict()
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


def _raises(jobs: Sequence[Job], peak: PeakUse | None, requests: FloatArray, policy: ShrinkPolicy) -> FloatArray:
    """Return the floor of each resource that is requested but whose peak use exceeds the request (n, 3), else NaN."""
    if peak is None:
        return np.full(requests.shape, np.nan)
    floors = _floors(jobs, peak, policy)
    floors[:, GPUS] = round_up_gpus(floors[:, GPUS], policy.gpu_grid)
    bare = replace(policy, cpu_margin=0.0, mem_margin=0.0, gpu_margin=0.0, gpu_mem_margin=0.0)
    under = (requests > 0.0) & (_floors(jobs, peak, bare) > requests * (1.0 + policy.minimum_change))
    return np.where(under & (floors > requests), floors, np.nan)


def _predict(
    predictor: Predictor, jobs: Sequence[Job], requests: FloatArray, inputs: FloatArray, eligible: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return predicted p50 and p90 (n, 1 + A), the first column for the request and the others for the candidates.

    All are predicted in one call. Candidates of jobs that are not eligible are NaN. A candidate with the same amounts
    as the candidate before it (the first: as the request) reuses that prediction.
    """
    every = np.concatenate([requests[:, None, :], inputs], axis=1)
    later, earlier = every[:, 1:], every[:, :-1]
    fresh = np.ones(every.shape[:2], dtype=np.bool_)
    fresh[:, 1:] = eligible[:, None] & ((later != earlier) & ~(np.isnan(later) & np.isnan(earlier))).any(axis=2)
    order = np.flatnonzero(fresh)
    answer = predictor.run_times(jobs, order // every.shape[1], every.reshape(-1, len(RESOURCES))[order])
    # The request of every job is predicted, so the last predicted entry before any entry is of the same job.
    source = (np.cumsum(fresh) - 1).reshape(fresh.shape)
    given = fresh | eligible[:, None]
    return _table(answer.p50, source, given), _table(answer.p90, source, given)


def _table(values: FloatArray, source: IntArray, given: BoolArray) -> FloatArray:
    expected = int(source[-1, -1]) + 1
    if np.shape(values) != (expected,):
        raise PredictorUnavailable(f"run times of shape {np.shape(values)}, expected ({expected},)")
    return np.where(given, np.asarray(values, dtype=np.float64)[source], np.nan)
