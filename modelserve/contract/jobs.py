"""Answers about jobs as they are submitted: predictions, recommendations, explanations, curves.

No call is made here. Read by `modelserve.client`.
"""

from typing import Literal

from pydantic import AwareDatetime

from modelserve.bundle.card import Resource
from modelserve.contract.fields import Answer, Finite, Mode
from scheduler_core.types import Reason


class Amounts(Answer):
    """Something of each resource, per instance; None where the job did not ask for it or it is not known."""

    cpu_cores: Finite | None
    mem_gib: Finite | None
    gpus: Finite | None


class PeakUse(Amounts):
    """The upper quantile of what one instance uses at most; None where it is not known."""

    gpu_mem_gib: Finite | None


class RunTime(Answer):
    """Quantiles of the run time in seconds; None where the model has none."""

    p50: Finite | None
    p90: Finite | None


class Models(Answer):
    """What answered, by name and version, as `runtime.pai.ctr@7`; None where nothing did, or nothing was asked."""

    run_time: str | None
    usage: str | None


class Prediction(Answer):
    """What is to be expected of one job; `reason` and `note` say why something that was asked for is None.

    `history` is when the models' training data ends, `answer_id` the name under which the answer can be replayed.
    """

    job_id: str
    answer_id: str = ""
    run_time_s: RunTime | None
    peak_use: PeakUse | None
    measured_runs: int
    models: Models
    history: AwareDatetime | None
    reason: str | None
    note: str | None


class Reasons(Answer):
    """Why each resource is what it is; None where the job did not ask for it."""

    cpu_cores: Reason | None
    mem_gib: Reason | None
    gpus: Reason | None


class Recommended(Answer):
    """What one job should be given, per instance, and why; as `scheduler_core.types.Recommendation` says it.

    `mode` says whether to follow it (`enforce`) or only to note it (`observe`).
    """

    job_id: str
    answer_id: str = ""
    mode: Mode
    request: Amounts
    target: Amounts
    lower_bound: Amounts
    run_time_s: RunTime
    run_time_change: Finite | None
    reasons: Reasons
    alpha: Finite
    model_decided: bool
    models: Models
    history: AwareDatetime | None
    measured_runs: int
    note: str | None


class PredictionsSaid(Answer):
    """What one call of predictions is answered."""

    answer_id: str
    predictions: tuple[Prediction, ...]


class RecommendationsSaid(Answer):
    """What one call of recommendations is answered."""

    answer_id: str
    recommendations: tuple[Recommended, ...]


class Became(Answer):
    """What became of a recommended job; `applied`: it was given less, `saved_hours` are over all its instances."""

    outcome: str
    run_s: Finite
    applied: bool
    saved_hours: Amounts


class Recent(Answer):
    """One recommendation as it was given; `freed` is over all instances, `finished` None while no feedback tells."""

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


class RecentSaid(Answer):
    """The newest recommendations within reach, the newest first."""

    shown_at_most: int
    recommendations: tuple[Recent, ...]


class Contribution(Answer):
    """What one feature does: the run time is multiplied by `factor`, which is worth `seconds`; `value` is in `unit`."""

    feature: str
    value: Finite | str | None
    unit: str
    factor: Finite
    seconds: Finite


class Explanation(Answer):
    """Why a run time is predicted: `base_s`, the seconds of the features named, and `rest_s` add up to it.

    `reference_s` is what the job's like ran lately, None where the model takes none.
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
    reason: str | None
    note: str | None


class Point(Answer):
    """The run time predicted at one value; `supported` where training saw requests around it."""

    value: Finite
    run_time_s: RunTime
    supported: bool
    requested: bool


class Curve(Answer):
    """A job's predicted run time along one resource, and the lowest and highest request seen in training.

    Where the model is `silent`, it saw one value only and the curve says nothing; `important` resources never shrink.
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
    reason: str | None
    note: str | None
