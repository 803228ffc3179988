"""What the service answers, as the client reads it: one frozen model per noun, in the vocabulary of the scheduler.

Light: nothing but pydantic is needed to read an answer. What a newer service says beyond it is passed over; that the
service says at least this is held by a test. Called by `modelserve.client`.
"""

from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from scheduler_core.types import Reason

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Frozen(BaseModel):
    """Base of every answer; frozen."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


class Amounts(Frozen):
    """Something of each resource, per instance; None where there is none or it is not known."""

    cpu_cores: Finite | None = None
    mem_gib: Finite | None = None
    gpus: Finite | None = None


class PeakUse(Amounts):
    """The upper quantile of what an instance uses at most."""

    gpu_mem_gib: Finite | None = None


class RunTime(Frozen):
    """Quantiles of the run time in seconds."""

    p50: Finite | None = None
    p90: Finite | None = None


class Models(Frozen):
    """What answered, by name and version, as `runtime.pai.ctr@7`."""

    run_time: str | None = None
    usage: str | None = None


class Prediction(Frozen):
    """How long a job will run and what it will use at most; `reason` says why something is not known."""

    job_id: str
    answer_id: str = ""
    run_time_s: RunTime | None = None
    peak_use: PeakUse | None = None
    measured_runs: int = 0
    reason: str | None = None
    models: Models = Models()
    history: AwareDatetime | None = None


class Recommended(Frozen):
    """What one job should be given, and why; see `scheduler_core.types.Recommendation`."""

    job_id: str
    answer_id: str = ""
    request: Amounts
    target: Amounts
    lower_bound: Amounts
    run_time_s: RunTime
    run_time_change: Finite | None = None
    reasons: dict[str, Reason | None]
    alpha: Finite = 1.0
    model_decided: bool = False
    measured_runs: int = 0
    models: Models = Models()
    history: AwareDatetime | None = None
    note: str | None = None


class PredictionsSaid(Frozen):
    """What one call of predictions is answered."""

    answer_id: str
    predictions: tuple[Prediction, ...]


class RecommendationsSaid(Frozen):
    """What one call of recommendations is answered."""

    answer_id: str
    recommendations: tuple[Recommended, ...]
