"""Hindsight: predict finished jobs with the current models, from what was known when each job was submitted.

The predictions are stored with the jobs, to compute errors and drift from them. If a model fails, its predictions are
left empty.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np

from features.online import JobAsked
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.predictor import calibrated_use
from modelserve.bundle.run_times import calibrated_run_times
from modelserve.loading.models import Snapshot
from modelserve.loading.served import Look, ServedModel
from modelserve.store.finished import Finished
from scheduler_core.types import FloatArray, RunTimes

Figures = Mapping[str, float | str | None]
Score = Callable[[ServedModel, Sequence[JobAsked]], list[Figures]]
NUMBERS: Final = ("req_cpu_cores", "req_mem_gib", "req_gpus", "time_limit_s", "priority")
logger = logging.getLogger(__name__)


def scored_in_hindsight(rows: Sequence[Finished], snapshot: Snapshot) -> list[Finished]:
    """Return the jobs with the predictions of champions and challengers; None where there is no model.

    The predictions are for the original request, also for jobs that ran with a smaller allocation.
    """
    scored = list(rows)
    for score in (_run_times, _peaks, _challenged):
        members: dict[int, tuple[ServedModel, list[int]]] = {}
        for i, row in enumerate(rows):
            model = _model_of(score, row, snapshot)
            if model is not None:
                members.setdefault(id(model), (model, []))[1].append(i)
        for model, places in members.values():
            try:
                figures = score(model, [_asked(rows[i], model) for i in places])
            except Exception as error:  # feedback must be stored even if a prediction fails
                logger.warning("%s could not score %d finished jobs: %s", model.reference, len(places), error)
                continue
            for i, each in zip(places, figures, strict=True):
                scored[i] = replace(scored[i], **each)  # type: ignore[arg-type]  # the keys are columns of `Finished`
    return scored


def _model_of(score: Score, row: Finished, snapshot: Snapshot) -> ServedModel | None:
    if score is not _challenged:
        return snapshot.model_of("usage" if score is _peaks else "runtime", row.trace, row.workload, row.task_type)
    names = [f"runtime.{row.trace}.{part}" for part in (row.workload, row.task_type) if part is not None]
    return next((snapshot.challengers[name] for name in names if name in snapshot.challengers), None)


def _run_times(model: ServedModel, asked: Sequence[JobAsked]) -> list[Figures]:
    found = model.look(asked)
    answer = _quantiles(model, found)
    members = [None] * len(asked) if found.forecasts is None else [json.dumps(row.tolist()) for row in found.forecasts]
    return [
        {"run_time_model": model.reference, "p50_s": a, "p90_s": b, "forecasts": c}
        for a, b, c in zip(_known(answer.p50), _known(answer.p90), members, strict=True)
    ]


def _challenged(model: ServedModel, asked: Sequence[JobAsked]) -> list[Figures]:
    answer = _quantiles(model, model.look(asked))
    return [
        {"challenger_model": model.reference, "challenger_p50_s": a, "challenger_p90_s": b}
        for a, b in zip(_known(answer.p50), _known(answer.p90), strict=True)
    ]


def _quantiles(model: ServedModel, found: Look) -> RunTimes:
    outputs = model.outputs(found.rows.matrix) if found.outputs is None else found.outputs
    return calibrated_run_times(model.bundle.card, outputs[RUNTIME_TARGET], found.base_log_s)


def _peaks(model: ServedModel, asked: Sequence[JobAsked]) -> list[Figures]:
    matrix = model.rows.rows(asked, model.history).matrix
    card = model.bundle.card
    peaks = {target: _known(calibrated_use(card, target, raw)) for target, raw in model.outputs(matrix).items()}
    return [
        {"usage_model": model.reference, **{f"peak_{target}": values[i] for target, values in peaks.items()}}
        for i in range(len(asked))
    ]


def _asked(row: Finished, model: ServedModel) -> JobAsked:
    given: dict[str, Any] = {
        each.name: getattr(row, each.name, None) for each in fields(JobAsked)
    }  # columns of the job
    given |= {name: np.nan for name in NUMBERS if given[name] is None}
    return JobAsked(**{**given, "cluster": row.cluster or model.history.cluster_of(row.vc)})


def _known(values: FloatArray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
