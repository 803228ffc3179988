"""What the service answers, as the client reads it: one frozen model per noun, in the vocabulary of the scheduler.

Light: nothing but pydantic is needed to read an answer. What a newer service says beyond it is passed over; that the
service says at least this is held by a test. Called by `modelserve.client`.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from modelserve.card import Resource
from scheduler_core.types import Reason

Mode = Literal["observe", "enforce"]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Frozen(BaseModel):
    """Base of every answer; frozen."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


class Amounts(Frozen):
    """Something of each resource, per instance; None where the job did not ask for it or it is not known."""

    cpu_cores: Finite | None
    mem_gib: Finite | None
    gpus: Finite | None


class PeakUse(Amounts):
    """The upper quantile of what one instance uses at most; None where it is not known."""

    gpu_mem_gib: Finite | None


class RunTime(Frozen):
    """Quantiles of the run time in seconds; None where the model has none."""

    p50: Finite | None
    p90: Finite | None


class Models(Frozen):
    """What answered, by name and version, as `runtime.pai.ctr@7`; None where nothing did, or nothing was asked."""

    run_time: str | None
    usage: str | None


class Prediction(Frozen):
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


class Reasons(Frozen):
    """Why each resource is what it is; None where the job did not ask for it."""

    cpu_cores: Reason | None
    mem_gib: Reason | None
    gpus: Reason | None


class Recommended(Frozen):
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


class PredictionsSaid(Frozen):
    """What one call of predictions is answered."""

    answer_id: str
    predictions: tuple[Prediction, ...]


class RecommendationsSaid(Frozen):
    """What one call of recommendations is answered."""

    answer_id: str
    recommendations: tuple[Recommended, ...]


class Contribution(Frozen):
    """What one feature does: the run time is multiplied by `factor`, which is worth `seconds`; `value` is in `unit`."""

    feature: str
    value: Finite | str | None
    unit: str
    factor: Finite
    seconds: Finite


class Explanation(Frozen):
    """Why a run time is predicted: `base_s`, the seconds of the features named, and `rest_s` add up to it.

    `reference_s` is what the job's like ran lately, None where the model takes none.
    """

    answer_id: str
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


class Point(Frozen):
    """The run time predicted at one value; `supported` where training saw requests around it."""

    value: Finite
    run_time_s: RunTime
    supported: bool
    requested: bool


class Curve(Frozen):
    """A job's predicted run time along one resource, and the lowest and highest request seen in training.

    Where the model is `silent`, it saw one value only and the curve says nothing; `important` resources never shrink.
    """

    answer_id: str
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


class FeedbackResult(Frozen):
    """What became of one row: stored, there already, or there already and otherwise."""

    job_id: str
    status: Literal["accepted", "duplicate", "conflict"]


class FeedbackTaken(Frozen):
    """What became of finished jobs, in their order; of the same job the first report stands."""

    accepted: int
    duplicates: int
    conflicts: int
    results: tuple[FeedbackResult, ...]


class ModeHeld(Frozen):
    """A mode that was set; None means every cluster, type or group."""

    trace: str
    cluster: str | None
    task_type: str | None
    group: str | None
    mode: Mode


class BrakeHeld(Frozen):
    """A type whose jobs are not shrunk until its brake is released."""

    trace: str
    cluster: str | None
    task_type: str
    why: str


class Hours(Frozen):
    """Resource-hours over all instances: what was asked for, what was given, and the difference."""

    asked: Finite
    allocated: Finite
    saved: Finite


class Stretch(Frozen):
    """Medians of run time over the p50 predicted at submission, of completed jobs; `ratio` is shrunk over unshrunk."""

    shrunk: Finite | None
    unshrunk: Finite | None
    ratio: Finite | None
    shrunk_jobs: int
    unshrunk_jobs: int


class NotApplied(Frozen):
    """Jobs that could have been shrunk by an answer still in the log, and ran as asked for all the same."""

    jobs: int
    hours: dict[str, Finite]


class Realised(Frozen):
    """What came of the finished jobs of one type; `kill_rate` is of the shrunk ones."""

    trace: str
    task_type: str
    jobs: int
    shrunk_jobs: int
    kills: int
    kill_rate: Finite | None
    hours: dict[str, Hours]
    stretch: Stretch
    not_applied: NotApplied


class Modes(Frozen):
    """The modes and brakes within reach, the mode where none was set, and what was realised."""

    default: Mode
    modes: tuple[ModeHeld, ...]
    brakes: tuple[BrakeHeld, ...]
    realised: tuple[Realised, ...]


class Readiness(Frozen):
    """Whether calls should be sent to a worker, and what is amiss."""

    status: Literal["ready", "draining", "no model"]
    generation: int
    serving: int
    failing: int
    models: tuple[str, ...]
    failures: dict[str, str]
    store: str | None
