"""Responses about submitted jobs: predictions, recommendations, explanations and what-if curves, as pydantic models.

Made by `modelserve.calls`, mostly as dicts instead of these models, for speed (`modelserve.contract.writing`). Read by
`modelserve.client`.
"""

from typing import Final, Literal

from pydantic import AwareDatetime, Field
from pydantic.json_schema import SkipJsonSchema

from modelserve.bundle.card import Resource
from modelserve.contract.fields import Answer, Finite, Mode, StrictFinite
from scheduler_core.types import Reason

__all__ = [
    "RECENT_SHOWN",
    "Amounts",
    "Became",
    "ExplainAnswer",
    "MissingReason",
    "PredictAnswer",
    "Prediction",
    "Recent",
    "RecentAnswer",
    "RecommendAnswer",
    "Recommended",
    "WhatIfAnswer",
]

MissingReason = Literal["no_model", "predictor_unavailable"]
"""Reasons why an output is null."""

RECENT_SHOWN: Final = 100
"""Maximum number of recent recommendations that are listed."""


class Amounts(Answer):
    """Something of each resource, per instance; null where the job did not ask for it or nothing is known."""

    cpu_cores: StrictFinite | None
    mem_gib: StrictFinite | None
    gpus: StrictFinite | None


class PeakUse(Answer):
    """The upper quantile of what one instance uses at most; null where it is not known."""

    cpu_cores: StrictFinite | None
    mem_gib: StrictFinite | None
    gpus: StrictFinite | None
    gpu_mem_gib: StrictFinite | None


class RunTime(Answer):
    """Quantiles of the run time in seconds; null where the model has none."""

    p50: StrictFinite | None
    p90: StrictFinite | None


class Models(Answer):
    """What answered, by name and version; null where nothing did, or nothing was asked."""

    run_time: str | None
    usage: str | None


class Prediction(Answer):
    """What is to be expected of one job; `reason` and `note` say why something that was asked for is null.

    `measured_runs` counts the ended and measured runs of the job's group and role, or, if more, the groups of jobs
    alike; `history` is when the models' training data ends.
    """

    job_id: str
    answer_id: SkipJsonSchema[str] = ""  # filled in by the client
    run_time_s: RunTime | None
    peak_use: PeakUse | None
    measured_runs: int
    models: Models
    history: AwareDatetime | None
    reason: MissingReason | None
    note: str | None


class PredictAnswer(Answer):
    """The answer: one prediction per job, in the order of the call."""

    answer_id: str
    predictions: tuple[Prediction, ...]


class Reasons(Answer):
    """Why each resource is what it is; null where the job did not ask for it."""

    cpu_cores: Reason | None
    mem_gib: Reason | None
    gpus: Reason | None


class Evidence(Answer):
    """How much stands behind an answer: measured runs, and the age of what the models were trained on."""

    measured_runs: int
    history_age_s: Finite | None


class Recommended(Answer):
    """What one job should be given, per instance, and why.

    `mode` says whether to follow it (`enforce`) or only to note it (`observe`). `run_time_change` is that of the
    predicted run time, relative to the request. `alpha` is the accepted share of the request, 1 where none was;
    `model_decided` says that the floors alone would have given something else.
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
    models: Models
    history: AwareDatetime | None
    measured_runs: int
    evidence: Evidence
    note: str | None


class RecommendAnswer(Answer):
    """The answer: one recommendation per job, in the order of the call."""

    answer_id: str
    recommendations: tuple[Recommended, ...]


class Became(Answer):
    """What became of a recommended job, by its feedback; `saved_hours` are resource-hours over all its instances."""

    outcome: str
    run_s: Finite
    applied: bool = Field(description="it was given less than it asked for")
    saved_hours: Amounts


class Recent(Answer):
    """One recommendation as it was given; `freed` is what less it gives, over all instances of the job.

    `finished` is null while no feedback tells of the job, or tells that it followed another answer.
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
    """The newest recommendations, the newest first; `shown_at_most` is how many that can be."""

    shown_at_most: int = RECENT_SHOWN
    recommendations: tuple[Recent, ...]


class Contribution(Answer):
    """What one feature does: the run time is multiplied by `factor`, which is worth `seconds`.

    `value` is what the model saw: a text for a category, null where it is unknown; run times that are seen against the
    reference are given in seconds again.
    """

    feature: str
    value: Finite | str | None
    unit: str
    factor: Finite
    seconds: Finite


class ExplainAnswer(Answer):
    """Why a run time is predicted: `base_s`, the seconds of the features named, and those of the rest add up to it.

    A model answers in log units, where SHAP values add up; factors multiply: `base_s` times all factors is the run
    time. Seconds share out what lies between the two in proportion to the logs of the factors. `base_s` holds what the
    model expects of any job, on top of `reference_s`, what the job's like ran lately (null where the model takes none).
    """

    job_id: str
    quantile: Literal["p50", "p90"]
    run_time_s: Finite | None
    base_s: Finite | None
    reference_s: Finite | None
    contributions: tuple[Contribution, ...]
    rest_s: Finite | None
    rest_factor: Finite | None
    model: str | None
    history: AwareDatetime | None
    reason: MissingReason | None
    note: str | None


class Point(Answer):
    """The run time predicted at one value; `supported` where training saw requests around it."""

    value: Finite
    run_time_s: RunTime
    supported: bool
    requested: bool


class WhatIfAnswer(Answer):
    """The curve, from the smallest value to the larger of request and support; GPUs on the grid they are shared on.

    `support` is the lowest and highest request seen in training; where the two are equal, or there is none, the model
    is `silent`: it saw no second value, and its curve says nothing. `important` resources are never shrunk.
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
