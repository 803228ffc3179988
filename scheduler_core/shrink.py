"""Algorithm 1: how far each over-claimed request can shrink without a longer run time, and why.

It has no side effects besides those of the predictor. In the comments n is the number of jobs, A the number of alphas.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from scheduler_core.errors import PredictorUnavailable
from scheduler_core.shrink_policy import MAX_ALPHA, PAPER_ALPHA0, SURE_RUNS, Guard, ShrinkPolicy, round_up_gpus
from scheduler_core.types import (
    NOTHING,
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
    Request,
)

__all__ = [
    "MAX_ALPHA",
    "PAPER_ALPHA0",
    "SURE_RUNS",
    "Guard",
    "Recommendation",
    "ShrinkPolicy",
    "round_up_gpus",
    "shrink",
]

GPUS: Final = RESOURCES.index("gpus")

SLACK: Final = 1e-9
"""Rounding noise tolerated where a saving is compared with `minimum_change`."""

UNUSUAL: Final = 1.5
"""Ratio of a request to the usual one of its group above which it is kept: the job may need more than was measured."""

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
    if not jobs:
        return []
    try:
        return _decide(jobs, predictor, policy or ShrinkPolicy())
    except PredictorUnavailable as error:
        return [Recommendation.unchanged(job, Reason.PREDICTOR_UNAVAILABLE, note=str(error)) for job in jobs]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The data of n jobs before their requests are varied.

    `floors` (n, 3) are NaN where unknown. `measured` (n, 3) marks resources that may shrink: all under guard `none`,
    otherwise resources with a floor and a usual request. `raises` (n, 3) are the floors of resources whose peak use
    exceeds the request, without assumed cards, else NaN. `minimums` (n, 3) are 0 where a job has none. `important` (n,
    3) marks resources that keep their request. `low` and `high` (n, 3) bound the requests for which the predicted run
    time counts. `invalid` (n,) marks impossible peaks.
    """

    requests: FloatArray
    opted_out: BoolArray
    minimums: FloatArray
    floors: FloatArray
    measured: BoolArray
    unusual: BoolArray
    raises: FloatArray
    important: BoolArray
    low: FloatArray
    high: FloatArray
    invalid: BoolArray
    runs: IntArray


def _known(jobs: Sequence[Job], predictor: Predictor, policy: ShrinkPolicy) -> _Known:
    requests = np.array([job.request.row() for job in jobs], dtype=np.float64)
    knowledge = _asked(lambda: _checked_knowledge(predictor.knowledge(jobs), len(jobs)))
    important = np.array([[name in each.important for name in RESOURCES] for each in knowledge], dtype=np.bool_)
    floors, raises = np.full((2, *requests.shape), np.nan)
    measured, unusual = np.ones(requests.shape, dtype=np.bool_), np.zeros(requests.shape, dtype=np.bool_)
    low, high = np.full(requests.shape, -np.inf), np.full(requests.shape, np.inf)
    invalid, runs = np.zeros(len(jobs), dtype=np.bool_), np.zeros(len(jobs), dtype=np.int64)
    if policy.guard == "usage":
        peak = _asked(lambda: _checked_peak(predictor.peak_use(jobs), len(jobs)))
        kinds = [job.gpu_type for job in jobs]
        floors, sure = policy.floors(peak, kinds), policy.floors(peak, kinds, assume=False)
        bare = policy.floors(peak, kinds, margins=False, assume=False)
        if peak.usual is not None:
            unusual = requests > UNUSUAL * peak.usual
        measured = np.isfinite(floors) & ~unusual
        raised = np.column_stack([sure[:, :GPUS], round_up_gpus(sure[:, GPUS], policy.gpu_grid)])
        under = (requests > 0.0) & (bare > requests * (1.0 + policy.minimum_change))
        raises = np.where(under & (raised > requests), raised, np.nan)
        important &= ~(peak.runs >= policy.sure_runs)[:, None]
        low, high = _support(knowledge)
        uses = np.stack([peak.cpu_cores, peak.mem_gib, peak.gpus, peak.gpu_mem_gib])
        invalid = np.asarray(((uses < 0.0) | np.isinf(uses)).any(axis=0), dtype=np.bool_)
        runs = peak.runs
    return _Known(
        requests=requests,
        opted_out=np.array([job.opted_out for job in jobs], dtype=np.bool_),
        minimums=np.fmax([(NOTHING if job.minimum is None else job.minimum).row() for job in jobs], 0.0),
        floors=floors,
        measured=measured,
        unusual=unusual,
        raises=raises,
        important=important,
        low=low,
        high=high,
        invalid=invalid,
        runs=runs,
    )


def _asked(predict: Callable[[], Answer]) -> Answer:
    """Return a predictor's answer; raise any of its exceptions as `PredictorUnavailable`."""
    try:
        return predict()
    except PredictorUnavailable:
        raise
    except Exception as error:
        raise PredictorUnavailable(f"{type(error).__name__}: {error}") from error


def _checked_knowledge(knowledge: Sequence[Knowledge], count: int) -> Sequence[Knowledge]:
    if len(knowledge) != count:
        raise PredictorUnavailable(f"knowledge of {len(knowledge)} jobs, expected {count}")
    return knowledge


def _checked_peak(peak: PeakUse, count: int) -> PeakUse:
    shapes = [np.shape(each) for each in (peak.cpu_cores, peak.mem_gib, peak.gpus, peak.gpu_mem_gib, peak.runs)]
    usual = peak.usual is None or peak.usual.shape == (count, len(RESOURCES))
    if not usual or any(shape != (count,) for shape in shapes):
        raise PredictorUnavailable(f"peak use of shapes {shapes}, expected {len(shapes)} times ({count},)")
    return peak


def _support(knowledge: Sequence[Knowledge]) -> tuple[FloatArray, FloatArray]:
    """Return the lowest and highest request in training (n, 3); NaN if unknown, or if all were equal."""
    unknown = (np.nan, np.nan)
    ends = np.array([[each.support.get(name, unknown) for name in RESOURCES] for each in knowledge], dtype=np.float64)
    ends[~(ends[..., 0] < ends[..., 1])] = np.nan
    return ends[..., 0], ends[..., 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """Candidate requests of all jobs, shape (n, A, 3).

    `values` holds alpha times the request, raised to floor and minimum, with GPUs rounded up, but at most the request.
    `floor_binds` marks values for which floor or minimum exceeds alpha times the request. `judged` marks values whose
    predicted run time counts. It does not count outside the run-time model's training range, nor for a resource that
    is important to the model and so keeps its request. Under guard `none` it counts for every other value.
    """

    values: FloatArray
    floor_binds: BoolArray
    judged: BoolArray


def _candidates(known: _Known, alphas: FloatArray, gpu_grid: float) -> _Candidates:
    requests = known.requests[:, None, :]
    scaled = alphas[None, :, None] * requests
    needed = np.maximum(np.where(known.measured, np.nan_to_num(known.floors), np.inf), known.minimums)[:, None, :]
    values = np.maximum(scaled, needed)
    # A job that requested GPUs keeps at least the smallest share of a GPU, since it cannot run without one.
    shares = np.maximum(round_up_gpus(values[..., GPUS], gpu_grid), gpu_grid)
    values[..., GPUS] = np.where(requests[..., GPUS] > 0.0, shares, values[..., GPUS])
    values = np.minimum(values, requests)
    open_ = np.isfinite(known.requests) & ~known.important & known.measured
    seen = (values >= known.low[:, None, :]) & (values <= known.high[:, None, :])
    return _Candidates(values=values, floor_binds=needed > scaled, judged=open_[:, None, :] & seen)


def _decide(jobs: Sequence[Job], predictor: Predictor, policy: ShrinkPolicy) -> list[Recommendation]:
    known, alphas = _known(jobs, predictor, policy), policy.alphas()
    candidates = _candidates(known, alphas, policy.gpu_grid)
    eligible = ~known.opted_out & known.measured.any(axis=1)
    requests = known.requests[:, None, :]
    inputs = np.concatenate([requests, np.where(candidates.judged, candidates.values, requests)], axis=1)
    p50, p90 = _asked(lambda: _run_times(predictor, jobs, inputs, eligible))
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = p50[:, 1:] / p50[:, :1] - 1.0
    passes = np.abs(changes) < policy.theta
    passed = passes.any(axis=1)
    accepted = np.where(passed, passes.argmax(axis=1), len(alphas)).astype(np.int64)

    cold = np.isnan(p50[:, 0]) | ~known.measured.any(axis=1)
    invalid = known.invalid | (p50[:, 0] <= 0.0) | np.isinf(p50[:, 0])
    movable = (eligible & ~cold & ~invalid)[:, None] & known.measured & np.isfinite(known.requests)
    chosen = _chosen_alpha(candidates.judged, accepted, movable & ~known.important)
    least_saving = policy.minimum_change if policy.guard == "usage" else 0.0
    targets = _targets(known.requests, candidates.values, chosen, least_saving)
    by_floor_alone = _targets(known.requests, candidates.values, np.where(movable, 0, -1), least_saving)
    reasons = _reasons(known, candidates.floor_binds, chosen, targets, cold, invalid)

    changed, rows = _differ(targets, known.requests), np.arange(len(jobs))
    column = np.where(changed & passed, accepted + 1, 0)
    unmoved = np.where(np.isfinite(p50[:, 0]), 0.0, np.nan)
    change = np.where(column > 0, changes[rows, np.maximum(column - 1, 0)], unmoved)
    minimums = np.where(known.minimums > 0.0, known.minimums, np.nan)
    lower = np.minimum(np.fmax(known.floors, minimums), known.requests)
    raises = np.where((cold | invalid | known.opted_out)[:, None], np.nan, known.raises)
    alpha = np.concatenate([[1.0], alphas])[column]
    model_decided, raised = _differ(targets, by_floor_alone), np.asarray(np.isfinite(raises).any(axis=1))
    columns = changed, targets, lower, p50[rows, column], p90[rows, column], change, alpha, model_decided, known.runs
    of_jobs = zip(jobs, reasons, raised.tolist(), raises.tolist(), *(each.tolist() for each in columns), strict=True)
    return [
        Recommendation(
            job_id=job.job_id,
            request=job.request,
            target=_request(target) if moved else job.request,
            lower_bound=_request(least),
            run_time_p50_s=p50_s,
            run_time_p90_s=p90_s,
            run_time_change=longer,
            reasons=why,
            alpha=taken,
            model_decided=by_model,
            runs=runs,
            raise_to=_request(more) if is_raised else NOTHING,
        )
        for job, why, is_raised, more, moved, target, least, p50_s, p90_s, longer, taken, by_model, runs in of_jobs
    ]


def _run_times(
    predictor: Predictor, jobs: Sequence[Job], inputs: FloatArray, eligible: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return predicted p50 and p90 (n, 1 + A) of `inputs` (n, 1 + A, 3): the requests, then the candidates.

    All are predicted in one call. Candidates of jobs that are not eligible are NaN. A candidate with the same amounts
    as the candidate before it (the first: as the request) reuses that prediction.
    """
    later, earlier = inputs[:, 1:], inputs[:, :-1]
    fresh = np.ones(inputs.shape[:2], dtype=np.bool_)
    fresh[:, 1:] = eligible[:, None] & ((later != earlier) & ~(np.isnan(later) & np.isnan(earlier))).any(axis=2)
    order = np.flatnonzero(fresh)
    answer = predictor.run_times(jobs, order // inputs.shape[1], inputs.reshape(-1, len(RESOURCES))[order])
    # The request of every job is predicted, so the last predicted entry before any entry is of the same job.
    source = (np.cumsum(fresh) - 1).reshape(fresh.shape)
    tables = []
    for values in (answer.p50, answer.p90):
        if np.shape(values) != order.shape:
            raise PredictorUnavailable(f"run times of shape {np.shape(values)}, expected {order.shape}")
        tables.append(np.where(fresh | eligible[:, None], np.asarray(values, dtype=np.float64)[source], np.nan))
    return tables[0], tables[1]


def _chosen_alpha(judged: BoolArray, accepted: IntArray, movable: BoolArray) -> IntArray:
    """Return the index of the alpha that each resource takes (n, 3), -1 where it keeps its request.

    `accepted` (n,) is the index of the first alpha whose predicted run time is acceptable, A if there is none. A
    resource that is `judged` at the accepted alpha takes that alpha. Any other resource takes the smallest alpha from
    which on, up to the accepted alpha, it is never judged. A resource not marked in `movable` (n, 3) keeps its request.
    """
    jobs, count, _ = judged.shape
    steps = np.arange(count)[None, :, None]
    unjudged_since = np.maximum.accumulate(np.where(judged, steps + 1, 0), axis=1)
    last, rows = np.minimum(accepted, count - 1), np.arange(jobs)
    judges = judged[rows, last]
    chosen = np.where(judges, last[:, None], unjudged_since[rows, last])
    refused = judges & (accepted == count)[:, None]
    return np.where(movable & ~refused, chosen, -1)


def _targets(requests: FloatArray, values: FloatArray, chosen: IntArray, least_saving: float) -> FloatArray:
    """Return the targets (n, 3) for chosen indices of alpha (n, 3); -1, or too small a saving, keeps the request."""
    taken = np.take_along_axis(values, np.maximum(chosen, 0)[:, None, :], axis=1)[:, 0]
    saved = requests - taken
    worthwhile = (saved > 0.0) & (saved >= (least_saving - SLACK) * requests)
    return np.where((chosen >= 0) & worthwhile, taken, requests)


def _reasons(
    known: _Known, floor_binds: BoolArray, chosen: IntArray, targets: FloatArray, cold: BoolArray, invalid: BoolArray
) -> list[Mapping[str, Reason]]:
    # The first case that is true gives the reason.
    cases: list[tuple[BoolArray, Reason]] = [
        (known.opted_out[:, None], Reason.OPTED_OUT),
        (invalid[:, None], Reason.PREDICTOR_UNAVAILABLE),
        (known.unusual, Reason.ABOVE_USUAL),
        (cold[:, None], Reason.COLD_START),
        (np.isfinite(known.raises), Reason.TOO_LITTLE),
        (known.important, Reason.IMPORTANT),
        (~known.measured, Reason.NOT_MEASURED),
        (known.requests <= 0.0, Reason.BELOW_THRESHOLD),
        (chosen < 0, Reason.NO_CANDIDATE),
        (np.take_along_axis(floor_binds, np.maximum(chosen, 0)[:, None, :], axis=1)[:, 0], Reason.FLOOR),
        (targets < known.requests, Reason.SHRUNK),
    ]
    holds = [np.broadcast_to(case, targets.shape) for case, _ in cases]
    reasons = [*(reason for _, reason in cases), Reason.BELOW_THRESHOLD]
    codes = np.select(holds, range(len(cases)), len(cases))
    requested = np.isfinite(known.requests)
    return [
        {name: reasons[code] for name, code, given in zip(RESOURCES, row, gives, strict=True) if given}
        for row, gives in zip(codes.tolist(), requested.tolist(), strict=True)
    ]


def _differ(left: FloatArray, right: FloatArray) -> BoolArray:
    """Return which rows differ (n,); resources that the trace does not record are NaN on both sides."""
    return np.asarray(((left != right) & ~(np.isnan(left) & np.isnan(right))).any(axis=1), dtype=np.bool_)


def _request(row: Sequence[float]) -> Request:
    cpu_cores, mem_gib, gpus = row
    return Request(cpu_cores=cpu_cores, mem_gib=mem_gib, gpus=gpus)
