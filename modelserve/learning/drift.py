"""Drift: compare a model's recent errors and coverage with its card, and its recent inputs with its training rows.

Errors come from finished jobs, which are stored with the predictions for them, inputs from the answer log.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from modelserve.callers import ANYONE, Caller
from modelserve.contract.feedback import (
    Coverage,
    DriftAnswer,
    Error,
    FeatureDrift,
    InputDrift,
    ModelDrift,
    Thresholds,
    Verdict,
)
from modelserve.contract.feedback_rules import shrunk_resources
from modelserve.contract.fields import Alias
from modelserve.errors import BadRequest
from modelserve.loading.models import Snapshot
from modelserve.loading.served import Scored, ServedModel, decode_features
from modelserve.store import Store
from modelserve.store.answers import AnswerRecord, Part, newest_answers
from modelserve.store.finished import Finished, ScoredBy, newest_finished

__all__ = ["champion_errors", "read_drift"]

Matrix = npt.NDArray[np.float32]

THRESHOLDS: Final = Thresholds()
_ORDER: Final = ("unknown", "ok", "watch", "drifted")
LOWER_BOUNDS: Final = frozenset({"timeout"})
"""Outcomes of jobs that were stopped early, so that their run time is only a lower bound."""
MEASURED: Final = {
    "cpu_cores": ("used_cpu_cores", "cpu_cores"),
    "mem_gib": ("mem_max_gib", "mem_gib"),
    "gpus": ("used_gpus", "gpus"),
    "gpu_mem_gib": ("gpu_mem_max_gib", "gpus"),
}
"""The column of a finished job that measures each usage target, and the resource that limits it."""
ANSWERS: Final = 1_000
"""Maximum number of logged responses read, newest first."""
READ_BYTES: Final = 64 * 2**20
"""Maximum total size of the logged responses that are read."""
ROWS: Final = 2_000
"""Maximum number of feature rows compared for each model."""
SHOWN: Final = 10
"""Number of features with the largest drift that are reported."""


def read_drift(
    store: Store,
    snapshot: Snapshot,
    caller: Caller,
    trace: str | None = None,
    task_type: str | None = None,
    *,
    window: int,
) -> DriftAnswer:
    """Return the drift of every model the caller may see, from the newest `window` finished jobs and logged inputs."""
    aliased: dict[Alias, Mapping[str, ServedModel]] = {
        "champion": snapshot.champions,
        "challenger": snapshot.challengers,
    }
    judged = [
        (alias, model)
        for alias, models in aliased.items()
        for model in models.values()
        if caller.reaches(model.bundle.card.trace)
        and trace in (None, model.bundle.card.trace)
        and task_type in (None, model.bundle.card.task_type)
    ]
    inputs = inputs_of(store, [model for _, model in judged], caller)
    return DriftAnswer(
        window=window,
        thresholds=THRESHOLDS,
        models=tuple(
            _model(alias, model, _finished(store, caller, alias, model, window), inputs.get(model.reference))
            for alias, model in judged
        ),
    )


def champion_errors(store: Store, snapshot: Snapshot, *, window: int) -> dict[str, Error]:
    """Return the recent errors of every run-time champion by name, without looking at inputs."""
    return {
        name: _run_times(model, _finished(store, ANYONE, "champion", model, window), challenger=False)[1]
        for name, model in snapshot.champions.items()
        if model.bundle.card.kind == "runtime"
    }


def _finished(store: Store, caller: Caller, alias: Alias, model: ServedModel, window: int) -> list[Finished]:
    kind = model.bundle.card.kind
    if (alias, kind) == ("challenger", "usage"):  # finished jobs are scored with run-time challengers only
        return []
    by: ScoredBy = "challenger" if alias == "challenger" else "run_time" if kind == "runtime" else "usage"
    of, scored_by = (model.bundle.card.trace,), (by, model.reference)
    jobs = newest_finished(store, traces=of, clusters=caller.clusters, scored_by=scored_by, limit=window)
    return [job for job in jobs if kind == "usage" or job.outcome not in LOWER_BOUNDS]


def _model(alias: Alias, model: ServedModel, jobs: Sequence[Finished], inputs_seen: Matrix | None) -> ModelDrift:
    card = model.bundle.card
    if card.kind == "runtime":
        coverage, error = _run_times(model, jobs, challenger=alias == "challenger")
    else:
        coverage, error = [_use(model, target, jobs) for target in card.targets], None
    inputs = judged_inputs(model, inputs_seen)
    parts = [*(each.verdict for each in coverage), inputs.verdict, *([] if error is None else [error.verdict])]
    return ModelDrift(
        name=card.name,
        version=model.bundle.version,
        alias=alias,
        kind=card.kind,
        trace=card.trace,
        task_type=card.task_type,
        coverage=tuple(coverage),
        error=error,
        inputs=inputs,
        verdict=worst(parts),
    )


def _run_times(model: ServedModel, jobs: Sequence[Finished], *, challenger: bool) -> tuple[list[Coverage], Error]:
    metrics = model.bundle.card.metrics
    quantiles = [(job.challenger_p50_s, job.challenger_p90_s) if challenger else (job.p50_s, job.p90_s) for job in jobs]
    known = [(job.run_s, p50, p90) for job, (p50, p90) in zip(jobs, quantiles, strict=True) if p50 and p90]
    # Run times below one second count as one second, as in training.
    log_y, log_p50, log_p90 = np.log(np.maximum(np.array(known).reshape(-1, 3), 1.0)).T
    # The card has the pinball loss of the p50, which is half the mean absolute error.
    half = metrics.get("pinball_p50")
    expected = None if half is None else 2.0 * half
    enough = len(known) >= THRESHOLDS.least_jobs
    median = float(np.median(log_y - log_p50)) if enough else None
    mean = float(np.mean(np.abs(log_y - log_p50))) if enough else None
    return [_coverage("p90", log_y <= log_p90, metrics.get("coverage_p90"))], Error(
        jobs=len(known),
        median_log=median,
        mean_absolute_log=mean,
        expected_mean_absolute_log=expected,
        verdict="unknown" if median is None or mean is None else error_verdict(median, mean, expected),
    )


def _use(model: ServedModel, target: str, jobs: Sequence[Finished]) -> Coverage:
    """Return the coverage of a usage target, from unshrunk jobs only: a shrunk job cannot use more than it got."""
    covered, (column, resource) = [], MEASURED[target]
    for job in jobs:
        used, peak = getattr(job, column), getattr(job, f"peak_{target}")
        if used is not None and peak is not None and resource not in shrunk_resources(job):
            covered.append(used <= peak)
    return _coverage(target, np.array(covered, dtype=np.bool_), model.bundle.card.metrics.get(f"{target}_coverage"))


def _coverage(of: str, covered: npt.NDArray[np.bool_], expected: float | None) -> Coverage:
    jobs = len(covered)
    standard_error: float | None = None
    observed = float(np.mean(covered)) if jobs else None
    verdict: Verdict = "unknown"
    if expected is not None and observed is not None and jobs >= THRESHOLDS.least_jobs:
        standard_error = math.sqrt(expected * (1.0 - expected) / jobs)
        verdict = coverage_verdict(observed, expected, standard_error)
    return Coverage(
        of=of, jobs=jobs, observed=observed, expected=expected, standard_error=standard_error, verdict=verdict
    )


def inputs_of(store: Store, models: Sequence[ServedModel], caller: Caller) -> dict[str, Matrix]:
    """Return the newest logged feature rows of each model for jobs that the caller may see, by model reference.

    For all models together, at most `ANSWERS` records of at most `READ_BYTES` in total are read.
    """
    widths = {model.reference: len(model.bundle.contract.names) for model in models}
    parts: tuple[Part, ...] = ("features",) if caller.clusters is None else ("features", "context")
    found: dict[str, list[Matrix]] = defaultdict(list)
    counts = dict.fromkeys(widths, 0)
    for record in newest_answers(store, parts=parts, citing=widths, limit=ANSWERS, limit_bytes=READ_BYTES):
        if not any(counts[name] < ROWS for name in widths):
            break
        for seen in _shown(record):
            if seen.matrix.shape[1] == widths.get(seen.model) and counts[seen.model] < ROWS:
                kept = _within(seen, record, caller)[: ROWS - counts[seen.model]]
                counts[seen.model] += len(kept)
                found[seen.model].append(kept.copy())  # a view would keep the whole record in memory
    return {name: np.concatenate(parts) for name, parts in found.items()}


def judged_inputs(model: ServedModel, matrix: Matrix | None) -> InputDrift:
    """Compare feature rows with the training rows of a model.

    The verdict is `unknown` if the model stores no distribution of its training rows, or if there are too few rows.
    """
    population = model.bundle.population
    rows = 0 if matrix is None else len(matrix)
    if population is None or matrix is None or rows < THRESHOLDS.least_rows:
        return InputDrift(rows=rows, psi=None, features=(), verdict="unknown")
    names = model.bundle.contract.names
    importance = {each.feature: each.mean for each in model.bundle.importances}
    psi = np.array([population.features[name].psi(matrix[:, column]) for column, name in enumerate(names)])
    weights = np.array([max(importance.get(name) or 0.0, 0.0) for name in names])
    weighted = psi * (weights / weights.sum() if weights.sum() > 0.0 else 1.0 / len(names))
    total, most = float(weighted.sum()), np.argsort(-weighted, kind="stable")[:SHOWN]
    return InputDrift(
        rows=rows,
        psi=total,
        features=tuple(
            FeatureDrift(feature=names[i], psi=float(psi[i]), importance=importance.get(names[i])) for i in most
        ),
        verdict=by_bounds(total, THRESHOLDS.psi_watch, THRESHOLDS.psi_drifted),
    )


def _shown(record: AnswerRecord) -> Sequence[Scored]:
    try:
        return decode_features(record.features)
    except BadRequest:  # skip records written by another version of the service
        return ()


def _within(seen: Scored, record: AnswerRecord, caller: Caller) -> Matrix:
    """Return the rows of jobs that the caller may see; a caller bound to clusters sees only jobs that name one."""
    if caller.clusters is None:
        return seen.matrix
    within = [job.get("cluster") in caller.clusters for job in record.jobs()]
    if seen.rows.max(initial=-1) >= len(within):  # an unreadable record
        return seen.matrix[:0]
    return seen.matrix[np.array(within, dtype=np.bool_)[seen.rows]]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts, ignoring `unknown`; if no other is given, return `unknown`.

    >>> worst(["ok", "unknown", "watch"]), worst([])
    ('watch', 'unknown')
    """
    return max(verdicts, key=_ORDER.index, default="unknown")


def by_bounds(value: float, watch: float, drifted: float) -> Verdict:
    """Return `watch` or `drifted` if a value exceeds that bound, otherwise `ok`; `unknown` if it is not finite.

    >>> by_bounds(0.15, 0.1, 0.2)
    'watch'
    """
    if not math.isfinite(value):
        return "unknown"
    return "drifted" if value > drifted else "watch" if value > watch else "ok"


def coverage_verdict(observed: float, expected: float, standard_error: float) -> Verdict:
    """Return the verdict of an observed coverage, compared with the expected coverage from the card.

    >>> coverage_verdict(0.80, 0.90, 0.01), coverage_verdict(0.80, 0.90, 0.05), coverage_verdict(0.87, 0.90, 0.001)
    ('drifted', 'watch', 'ok')
    """
    off = abs(observed - expected)
    if off <= THRESHOLDS.coverage_off + 1e-9:  # in floating point, 1 - 0.95 is more than 0.05
        return "ok"
    return "drifted" if off > THRESHOLDS.coverage_standard_errors * standard_error else "watch"


def error_verdict(median_log: float, mean_absolute_log: float, expected: float | None) -> Verdict:
    """Return the verdict of the errors of a p50, in log seconds.

    `expected` is the mean absolute error in the card, None if the card has none.
    """
    t = THRESHOLDS
    of_median = by_bounds(math.exp(abs(median_log)), t.median_ratio_watch, t.median_ratio_drifted)
    if not expected:
        return of_median
    return worst([of_median, by_bounds(mean_absolute_log / expected, t.error_ratio_watch, t.error_ratio_drifted)])
