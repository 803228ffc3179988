"""Drift: compare a model's recent errors and coverage with its card, and its recent inputs with its training data.

Reads the finished jobs, which are stored with the predictions for them, and the log of responses. Nothing is written.
Called by the service.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from modelserve.callers import ANYONE, Caller
from modelserve.contract.feedback_rules import shrunk_resources
from modelserve.contract.fields import Alias
from modelserve.contract.learning import Coverage, DriftAnswer, Error, ModelDrift
from modelserve.learning.inputs import Matrix, inputs_of, judged_inputs
from modelserve.learning.verdicts import THRESHOLDS, coverage_verdict, error_verdict, worst
from modelserve.store import Store
from modelserve.store.finished import Finished, ScoredBy, newest_finished

if TYPE_CHECKING:
    from modelserve.loading.models import Snapshot
    from modelserve.loading.served import ServedModel

__all__ = ["champion_errors", "read_drift"]

LOWER_BOUNDS: Final = frozenset({"timeout"})
"""Outcomes of jobs that were stopped early, so that their run time is only a lower bound."""
RESOURCE_OF_TARGET: Final = {"cpu_cores": "cpu_cores", "mem_gib": "mem_gib", "gpus": "gpus", "gpu_mem_gib": "gpus"}
USED_OF_TARGET: Final = {
    "cpu_cores": "used_cpu_cores",
    "mem_gib": "mem_max_gib",
    "gpus": "used_gpus",
    "gpu_mem_gib": "gpu_mem_max_gib",
}


def read_drift(
    store: Store,
    snapshot: "Snapshot",
    caller: Caller,
    trace: str | None = None,
    task_type: str | None = None,
    *,
    window: int,
) -> DriftAnswer:
    """Return the drift of every model the caller may see, from the newest `window` finished jobs and logged inputs.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    judged: list[tuple[Alias, ServedModel]] = []
    aliased: dict[Alias, Mapping[str, ServedModel]] = {
        "champion": snapshot.champions,
        "challenger": snapshot.challengers,
    }
    for alias, models in aliased.items():
        for model in models.values():
            card = model.bundle.card
            if trace not in (None, card.trace) or task_type not in (None, card.task_type):
                continue
            if caller.reaches(card.trace):
                judged.append((alias, model))
    inputs = inputs_of(store, [model for _, model in judged], caller)
    return DriftAnswer(
        window=window,
        thresholds=THRESHOLDS,
        models=tuple(
            _model(alias, model, _finished(store, caller, alias, model, window), inputs.get(model.reference))
            for alias, model in judged
        ),
    )


def champion_errors(store: Store, snapshot: "Snapshot", *, window: int) -> dict[str, Error]:
    """Return the recent errors of every run-time champion by name, without comparing recent inputs with the training.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    return {
        name: _run_times(model, _ran(_finished(store, ANYONE, "champion", model, window)), challenger=False)[1]
        for name, model in snapshot.champions.items()
        if model.bundle.card.kind == "runtime"
    }


def _finished(store: Store, caller: Caller, alias: Alias, model: "ServedModel", window: int) -> list[Finished]:
    kind = model.bundle.card.kind
    if (alias, kind) == ("challenger", "usage"):  # finished jobs are scored with run-time challengers only
        return []
    by: ScoredBy = "challenger" if alias == "challenger" else "run_time" if kind == "runtime" else "usage"
    return newest_finished(
        store,
        traces=(model.bundle.card.trace,),
        clusters=caller.clusters,
        scored_by=(by, model.reference),
        limit=window,
    )


def _ran(jobs: Sequence[Finished]) -> list[Finished]:
    return [job for job in jobs if job.outcome not in LOWER_BOUNDS]


def _model(alias: Alias, model: "ServedModel", jobs: Sequence[Finished], inputs_seen: Matrix | None) -> ModelDrift:
    card = model.bundle.card
    if card.kind == "runtime":
        coverage, error = _run_times(model, _ran(jobs), challenger=alias == "challenger")
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


def _run_times(model: "ServedModel", jobs: Sequence[Finished], *, challenger: bool) -> tuple[list[Coverage], Error]:
    metrics = model.bundle.card.metrics
    quantiles = [(job.challenger_p50_s, job.challenger_p90_s) if challenger else (job.p50_s, job.p90_s) for job in jobs]
    known = [(job.run_s, p50, p90) for job, (p50, p90) in zip(jobs, quantiles, strict=True) if p50 and p90]
    # Run times below one second count as one second, as in training.
    log_y, log_p50, log_p90 = np.log(np.maximum(np.array(known).reshape(-1, 3), 1.0)).T
    coverage = _coverage("p90", log_y <= log_p90, metrics.get("coverage_p90"))
    # The card has the pinball loss of the p50, which is half the mean absolute error.
    half = metrics.get("pinball_p50")
    expected = None if half is None else 2.0 * half
    if len(known) < THRESHOLDS.least_jobs:
        nothing = Error(
            jobs=len(known),
            median_log=None,
            mean_absolute_log=None,
            expected_mean_absolute_log=expected,
            verdict="unknown",
        )
        return [coverage], nothing
    errors = log_y - log_p50
    median, mean = float(np.median(errors)), float(np.mean(np.abs(errors)))
    return [coverage], Error(
        jobs=len(known),
        median_log=median,
        mean_absolute_log=mean,
        expected_mean_absolute_log=expected,
        verdict=error_verdict(median, mean, expected),
    )


def _use(model: "ServedModel", target: str, jobs: Sequence[Finished]) -> Coverage:
    """Return the coverage of a usage target, from unshrunk jobs only: a shrunk job cannot use more than it got."""
    covered = []
    for job in jobs:
        used, peak = getattr(job, USED_OF_TARGET[target]), getattr(job, f"peak_{target}")
        if used is not None and peak is not None and RESOURCE_OF_TARGET[target] not in shrunk_resources(job):
            covered.append(used <= peak)
    return _coverage(target, np.array(covered, dtype=np.bool_), model.bundle.card.metrics.get(f"{target}_coverage"))


def _coverage(of: str, covered: npt.NDArray[np.bool_], expected: float | None) -> Coverage:
    jobs = len(covered)
    if expected is None or jobs < THRESHOLDS.least_jobs:
        observed = float(np.mean(covered)) if jobs else None
        return Coverage(of=of, jobs=jobs, observed=observed, expected=expected, standard_error=None, verdict="unknown")
    observed = float(np.mean(covered))
    standard_error = math.sqrt(expected * (1.0 - expected) / jobs)
    return Coverage(
        of=of,
        jobs=jobs,
        observed=observed,
        expected=expected,
        standard_error=standard_error,
        verdict=coverage_verdict(observed, expected, standard_error),
    )
