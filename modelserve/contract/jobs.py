"""Responses about submitted jobs: predictions, recommendations, explanations and what-if curves.

The service writes them as dicts, for speed; tests validate these with the models here.
"""

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import AwareDatetime, Field
from pydantic.json_schema import SkipJsonSchema

from modelserve.bundle.card import Resource, VerdictWord
from modelserve.contract.fields import Answer, Finite, Mode, StrictFinite
from scheduler_core.types import Reason

__all__ = [
    "RECENT_SHOWN", "Amounts", "Became", "ExplainAnswer", "MissingReason", "PredictAnswer", "Prediction", "Recent",
    "RecentAnswer", "RecommendAnswer", "Recommended", "WhatIfAnswer", "flat",
]  # fmt: skip

MissingReason = Literal["no_model", "predictor_unavailable"]
"""Reasons why an output is null."""

RECENT_SHOWN: Final = 100
"""Maximum number of recent recommendations that are listed."""


class Amounts(Answer):
    """An amount of each resource, per instance; null if the job did not request the resource or nothing is known."""

    cpu_cores: StrictFinite | None
    mem_gib: StrictFinite | None
    gpus: StrictFinite | None


NO_AMOUNTS: Final = Amounts(cpu_cores=None, mem_gib=None, gpus=None)


class PeakUse(Answer):
    """Upper bounds on the peak use of one instance; null if unknown."""

    cpu_cores: StrictFinite | None
    mem_gib: StrictFinite | None
    gpus: StrictFinite | None
    gpu_mem_gib: StrictFinite | None


class RunTime(Answer):
    """Quantiles of the predicted run time in seconds; null if the model does not predict the quantile."""

    p50: StrictFinite | None
    p90: StrictFinite | None


class Models(Answer):
    """The models that predicted a job, as `<name>@<version>`; null if there is none or the output was not requested."""

    run_time: str | None
    usage: str | None


Basis = Literal["model", "similar_jobs", "same_gpus", "newest_jobs", "typical", "prior"]
"""The source of a predicted run time."""


class Prediction(Answer):
    """The predictions for one job; `reason` and `note` say why a requested output is null.

    `measured_runs` is the number of measured runs of the job's group and role or, if larger, the number of groups with
    similar jobs (same role and request). `basis` is the source of the run time: a trained model, or ended jobs (similar
    jobs, jobs with the same number of GPUs, the cluster's newest jobs, or the newest training jobs of the type,
    `typical`), or a prior without any job. `ended_jobs` is the number of these jobs, at most 1000; for a trained model,
    of similar jobs. `verdict` is that of the gate on the run-time model: a model that is `worse` than the best simple
    answer does not answer. `history` is the time at which the models' training data ends.
    """

    job_id: str
    answer_id: SkipJsonSchema[str] = ""  # filled in by the client
    run_time_s: RunTime | None
    basis: Basis | None
    ended_jobs: int | None
    verdict: VerdictWord | None
    peak_use: PeakUse | None
    measured_runs: int
    models: Models
    history: AwareDatetime | None
    reason: MissingReason | None
    note: str | None


class PredictAnswer(Answer):
    """Predictions, one per job, in the order of the jobs in the call."""

    answer_id: str
    predictions: tuple[Prediction, ...]


class Reasons(Answer):
    """The reason for the target of each resource; null if the job did not request the resource."""

    cpu_cores: Reason | None
    mem_gib: Reason | None
    gpus: Reason | None


class Evidence(Answer):
    """The data behind a recommendation: number of measured runs, and age of the models' training data in seconds."""

    measured_runs: int
    history_age_s: Finite | None


class Recommended(Answer):
    """The recommended resources of one job, per instance, and the reasons.

    `mode` says whether to apply the target (`enforce`) or only to record it (`observe`). `run_time_change` is the
    relative change of the predicted run time from request to target. `alpha` is the share of the request that the
    run-time model accepted, 1 if none. `model_decided` is true if floors alone would have given another target.
    `judged_by` names the model that predicts whether a run gets longer: the response model if it is trusted, else the
    run-time forecast, with the reason; null without a model. `raise_to` is a larger request, for a resource whose peak
    use in similar jobs exceeds the request (reason `too_little`), else null; it is never applied here: a target never
    exceeds its request.
    """

    job_id: str
    answer_id: SkipJsonSchema[str] = ""  # filled in by the client
    mode: Mode
    request: Amounts
    target: Amounts
    lower_bound: Amounts
    run_time_s: RunTime
    run_time_change: StrictFinite | None
    reasons: Reasons
    alpha: StrictFinite
    model_decided: bool
    judged_by: str | None = None
    models: Models
    history: AwareDatetime | None
    measured_runs: int
    evidence: Evidence
    raise_to: Amounts = NO_AMOUNTS  # a service of an earlier version does not send it
    note: str | None


class RecommendAnswer(Answer):
    """Recommendations, one per job, in the order of the jobs in the call."""

    answer_id: str
    recommendations: tuple[Recommended, ...]


class Became(Answer):
    """The reported outcome of a job with a recommendation; `saved_hours` are resource-hours over all its instances."""

    outcome: str
    run_s: Finite
    applied: bool = Field(description="it was given less than it asked for")
    saved_hours: Amounts


class Recent(Answer):
    """One logged recommendation; `freed` is the request minus the target, over all instances of the job.

    `finished` is null if the job has not been reported as finished, or if its report names another answer.
    """

    answer_id: str
    at: AwareDatetime
    trace: str
    cluster: str | None
    job_id: str
    role: str
    task_type: str
    instances: int
    mode: Mode
    request: Amounts
    target: Amounts
    reasons: Reasons
    freed: Amounts
    finished: Became | None


class RecentAnswer(Answer):
    """The newest recommendations, newest first; `shown_at_most` is their maximum number."""

    shown_at_most: int = RECENT_SHOWN
    recommendations: tuple[Recent, ...]


class Contribution(Answer):
    """The effect of one feature: it multiplies the predicted run time by `factor`, which adds `seconds`.

    `value` is the feature's value: a text for a category, null if unknown. Run times that the model takes relative to
    the reference are converted back to seconds.
    """

    feature: str
    value: Finite | str | None
    unit: str
    factor: Finite
    seconds: Finite


class RoleRuns(Answer):
    """The number of measured runs of a job's group in one role."""

    role: str
    measured_runs: int


class ExplainAnswer(Answer):
    """The parts of a predicted run time: `base_s`, the seconds of the listed features, and `rest_s` add up to it.

    The model predicts log run time, so `base_s` times all factors is the run time. The difference between run time and
    `base_s` is divided among the features in proportion to the logs of their factors (SHAP values). `base_s` is the
    run time expected before any feature is known, given the recent run time `reference_s` of similar jobs, if used.
    `roles` counts the measured runs of the job's group by role, the most first: a job with another role has none of
    them as evidence for its use.
    """

    job_id: str
    quantile: Literal["p50", "p90"]
    run_time_s: Finite | None
    base_s: Finite | None
    reference_s: Finite | None
    contributions: tuple[Contribution, ...]
    rest_s: Finite | None
    rest_factor: Finite | None
    roles: tuple[RoleRuns, ...] = ()  # a service of an earlier version does not send it
    model: str | None
    history: AwareDatetime | None
    reason: MissingReason | None
    note: str | None


class Point(Answer):
    """The run time predicted for one value; `supported` if the value is within the range of requests in training."""

    value: Finite
    run_time_s: RunTime
    supported: bool
    requested: bool


class WhatIfAnswer(Answer):
    """The predicted run time at values of one resource, from the lowest to the highest of request and `support`.

    `support` is the lowest and highest request in training. If they are equal or unknown, the model is `silent`: its
    curve carries no information. GPU counts are allowed GPU shares. `important` resources are never shrunk.
    """

    job_id: str
    resource: Resource
    requested: Finite | None
    support: tuple[Finite, Finite] | None
    silent: bool
    important: bool
    points: tuple[Point, ...]
    model: str | None
    history: AwareDatetime | None
    reason: MissingReason | None
    note: str | None


_PER_RESOURCE: Final[Mapping[str, str]] = {
    "request": "",
    "target": "_target",
    "given": "_given",
    "lower_bound": "_lower_bound",
    "raise_to": "_raise_to",
    "reasons": "_reason",
}


def flat(answer: Mapping[str, object]) -> dict[str, object]:
    """Return a response as one flat table row with keys such as `cpu_cores`, `cpu_cores_target`, `cpu_cores_reason`.

    >>> flat({"job_id": "a1", "models": {"usage": None}, "history": None})
    {'job_id': 'a1', 'models_usage': None, 'history': None}
    """
    row: dict[str, object] = {}
    for key, value in answer.items():
        if not isinstance(value, Mapping):
            row[key] = value
        elif key in _PER_RESOURCE:
            row |= {f"{resource}{_PER_RESOURCE[key]}": part for resource, part in value.items()}
        else:
            row |= {f"{key}_{part}": inner for part, inner in value.items()}
    return row
