"""Drift: compare a model's recent errors and coverage on finished jobs with those on its card.

Finished jobs are stored with the predictions for them.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from modelserve.bundle.served import ServedModel
from modelserve.callers import ANYONE, Caller
from modelserve.contract.feedback import Coverage, DriftAnswer, Error, ModelDrift, Verdict
from modelserve.contract.feedback_rules import shrunk_resources
from modelserve.loading.models import Snapshot
from modelserve.store import Store
from modelserve.store.finished import Finished, newest_finished

__all__ = ["champion_errors", "read_drift"]

COVERAGE_OFF: Final = 0.05
"""Accepted difference between the observed coverage and the card's."""
STANDARD_ERRORS: Final = 3.0
"""Binomial standard errors within which a larger difference is only `watch`."""
ERROR_RATIOS: Final = (1.25, 1.5)
"""Mean absolute log error divided by the card's, above which the verdict is `watch`, and `drifted`."""
MEDIAN_RATIOS: Final = (1.5, 2.0)
"""The same for the median of run time / p50, or its inverse if larger."""
LEAST_JOBS: Final = 50
"""Number of finished jobs below which the verdict is `unknown`."""
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


def read_drift(
    store: Store,
    snapshot: Snapshot,
    caller: Caller,
    trace: str | None = None,
    task_type: str | None = None,
    *,
    window: int,
) -> DriftAnswer:
    """Return the drift of every model the caller may see, from the newest `window` finished jobs."""
    cards = [(model, model.bundle.card) for model in snapshot.champions.values()]
    judged = [
        model
        for model, card in cards
        if caller.reaches(card.trace) and trace in (None, card.trace) and task_type in (None, card.task_type)
    ]
    models = tuple(_model(model, _finished(store, caller, model, window)) for model in judged)
    return DriftAnswer(window=window, models=models)


def champion_errors(store: Store, snapshot: Snapshot, *, window: int) -> dict[str, Error]:
    """Return the recent errors of every run-time model by name."""
    return {
        name: _run_times(model, _finished(store, ANYONE, model, window))[1]
        for name, model in snapshot.champions.items()
        if model.bundle.card.kind == "runtime"
    }


def _finished(store: Store, caller: Caller, model: ServedModel, window: int) -> list[Finished]:
    card = model.bundle.card
    jobs = newest_finished(
        store,
        traces=(card.trace,),
        clusters=caller.clusters,
        scored_by=("run_time" if card.kind == "runtime" else "usage", model.reference),
        limit=window,
    )
    return [job for job in jobs if card.kind == "usage" or job.outcome not in LOWER_BOUNDS]


def _model(model: ServedModel, jobs: Sequence[Finished]) -> ModelDrift:
    card = model.bundle.card
    if card.kind == "runtime":
        coverage, error = _run_times(model, jobs)
    else:
        coverage, error = [_use(model, target, jobs) for target in card.targets], None
    return ModelDrift(
        name=card.name,
        version=model.bundle.version,
        kind=card.kind,
        trace=card.trace,
        task_type=card.task_type,
        coverage=tuple(coverage),
        error=error,
        verdict=worst([*(each.verdict for each in coverage), *([] if error is None else [error.verdict])]),
    )


def _run_times(model: ServedModel, jobs: Sequence[Finished]) -> tuple[list[Coverage], Error]:
    metrics = model.bundle.card.metrics
    known = [(job.run_s, job.p50_s, job.p90_s) for job in jobs if job.p50_s and job.p90_s]
    # Run times below one second count as one second, as in training.
    log_y, log_p50, log_p90 = np.log(np.maximum(np.array(known).reshape(-1, 3), 1.0)).T
    # The card has the pinball loss of the p50, which is half the mean absolute error.
    half = metrics.get("pinball_p50")
    expected = None if half is None else 2.0 * half
    enough = len(known) >= LEAST_JOBS
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
    if expected is not None and observed is not None and jobs >= LEAST_JOBS:
        standard_error = math.sqrt(expected * (1.0 - expected) / jobs)
        verdict = coverage_verdict(observed, expected, standard_error)
    return Coverage(
        of=of, jobs=jobs, observed=observed, expected=expected, standard_error=standard_error, verdict=verdict
    )


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts, ignoring `unknown`; if no other is given, return `unknown`.

    >>> worst(["ok", "unknown", "watch"]), worst([])
    ('watch', 'unknown')
    """
    return max(verdicts, key=_ORDER.index, default="unknown")


def by_bounds(value: float, bounds: tuple[float, float]) -> Verdict:
    """Return `drifted` or `watch` if a value exceeds that bound, `unknown` if it is not finite, otherwise `ok`.

    >>> by_bounds(0.15, (0.1, 0.2))
    'watch'
    """
    watch, drifted = bounds
    if not math.isfinite(value):
        return "unknown"
    return "drifted" if value > drifted else "watch" if value > watch else "ok"


def coverage_verdict(observed: float, expected: float, standard_error: float) -> Verdict:
    """Return the verdict of an observed coverage, compared with the expected coverage from the card.

    >>> coverage_verdict(0.80, 0.90, 0.01), coverage_verdict(0.80, 0.90, 0.05), coverage_verdict(0.87, 0.90, 0.001)
    ('drifted', 'watch', 'ok')
    """
    off = abs(observed - expected)
    if off <= COVERAGE_OFF + 1e-9:  # in floating point, 1 - 0.95 is more than 0.05
        return "ok"
    return "drifted" if off > STANDARD_ERRORS * standard_error else "watch"


def error_verdict(median_log: float, mean_absolute_log: float, expected: float | None) -> Verdict:
    """Return the verdict of the errors of a p50, in log seconds.

    `expected` is the mean absolute error in the card, None if the card has none.
    """
    of_median = by_bounds(math.exp(abs(median_log)), MEDIAN_RATIOS)
    return worst([of_median, by_bounds(mean_absolute_log / expected, ERROR_RATIOS)]) if expected else of_median
