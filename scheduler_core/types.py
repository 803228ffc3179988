"""Types of jobs, requests, recommendations and predictions, and the protocol that a predictor implements."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

__all__ = [
    "LEAST_GIVEN",
    "NOTHING",
    "RESOURCES",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "Job",
    "Knowledge",
    "PeakUse",
    "Predictor",
    "Reason",
    "Recommendation",
    "Request",
    "RunTimes",
]

RESOURCES: Final[tuple[str, ...]] = ("cpu_cores", "mem_gib", "gpus")
"""The resources that a job requests, in the column order of every request matrix."""

LEAST_GIVEN: Final = (0.001, 1.0 / 1024.0, 0.001)
"""The smallest positive amount of each resource that a cluster can allocate, in the order of `RESOURCES`."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Reason(StrEnum):
    """Why a recommendation has its target for a resource."""

    SHRUNK = "shrunk"
    IMPORTANT = "important"
    FLOOR = "floor"
    TOO_LITTLE = "too_little"
    ABOVE_USUAL = "above_usual"
    COLD_START = "cold_start"
    NOT_MEASURED = "not_measured"
    NO_CANDIDATE = "no_candidate"
    BELOW_THRESHOLD = "below_threshold"
    OPTED_OUT = "opted_out"
    PREDICTOR_UNAVAILABLE = "predictor_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Amounts that one instance requests or is allocated: CPU cores, GiB of memory, GPUs (fractional below one).

    NaN marks a resource that the trace does not record: nothing is allocated for it, it is never shrunk, and its
    recommendation has no reason. An amount of 0 is known. None is invalid.
    """

    cpu_cores: float
    mem_gib: float
    gpus: float

    def row(self) -> tuple[float, float, float]:
        """Return the amounts as a tuple, in the order of `RESOURCES`."""
        return (self.cpu_cores, self.mem_gib, self.gpus)


NOTHING: Final = Request(cpu_cores=math.nan, mem_gib=math.nan, gpus=math.nan)
"""A request of which no amount is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job (gang) as known at submission.

    `submit_ts` is Unix time in seconds (UTC). Fields that the trace does not record are `None`. `minimum` is a lower
    bound of every target, whatever use was measured, but never above the request; NaN for resources without one.
    """

    job_id: str
    trace: str
    task_type: str
    request: Request
    instances: int = 1
    cluster: str | None = None
    role: str = "job"
    user: str | None = None
    group: str | None = None
    vc: str | None = None
    workload: str | None = None
    gpu_type: str | None = None
    submit_ts: float = 0.0
    opted_out: bool = False
    minimum: Request | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """Predicted run times in seconds (p50 and p90), one value per predicted request; NaN where unknown."""

    p50: FloatArray
    p90: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakUse:
    """Predicted peak use per instance (an upper quantile), one value per job, NaN where unknown.

    `runs` is the number of measured runs that support each job's prediction. `usual` (n, 3) is the largest usual
    request of each job's group; a job with a far larger request may differ from the measured jobs.
    """

    cpu_cores: FloatArray
    mem_gib: FloatArray
    gpus: FloatArray
    gpu_mem_gib: FloatArray
    runs: IntArray
    usual: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Facts on the run-time model of a task type: important resources, and the requests for which it is valid.

    `important` holds the resources whose permutation importance exceeds the threshold. `support` maps each resource to
    the lowest and highest request in training; if both are equal, the model cannot predict an effect of the resource.
    """

    important: frozenset[str] = frozenset()
    support: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The recommended request of one job, per instance, with reasons.

    Where known, `lower_bound <= target <= request`. A lower bound is NaN if the resource has neither floor nor minimum.
    A resource that the trace does not record is NaN everywhere and absent from `reasons`.

    `reasons` holds the reason for each resource's target: `shrunk` if the factor alpha set it, `floor` if the floor of
    peak use or the minimum set it. `too_little` marks a resource whose predicted peak use exceeds its request; the
    target stays at the request, and `raise_to` is the floor, NaN for other resources. `not_measured` marks a resource
    without floor although similar jobs were measured, `above_usual` a request far above the group's usual one. `alpha`
    is the factor that Algorithm 1 accepted, 1 if it accepted none. Run times are predictions for the accepted
    candidate; resources outside the model's training range are predicted at their request. `run_time_change` is
    relative to the run time at the request: 0 if all resources are outside the range, NaN without a prediction.
    `model_decided` is true if the target differs from the one that floors alone give. `runs` is the number of measured
    runs that support the floor; `note` is the error message of a failed predictor.
    """

    job_id: str
    request: Request
    target: Request
    lower_bound: Request
    run_time_p50_s: float
    run_time_p90_s: float
    run_time_change: float
    reasons: Mapping[str, Reason]
    alpha: float
    model_decided: bool
    runs: int = 0
    note: str = ""
    raise_to: Request = NOTHING

    @classmethod
    def unchanged(cls, job: Job, reason: Reason, *, note: str = "") -> "Recommendation":
        """Return a recommendation that keeps a job's request, with the same reason for every known resource."""
        return cls(
            job_id=job.job_id,
            request=job.request,
            target=job.request,
            lower_bound=NOTHING,
            run_time_p50_s=math.nan,
            run_time_p90_s=math.nan,
            run_time_change=math.nan,
            reasons={name: reason for name, value in zip(RESOURCES, job.request.row(), strict=True) if value == value},
            alpha=1.0,
            model_decided=False,
            note=note,
        )


class Predictor(Protocol):
    """A predictor of run time and peak use; its methods raise `PredictorUnavailable` if they fail."""

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict k run times: the i-th is of `jobs[rows[i]]` with the request `requests[i]`; `requests` is (k, 3)."""
        ...

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Predict for each of n jobs the peak use per instance, as an upper quantile."""
        ...

    def knowledge(self, jobs: Sequence[Job]) -> Sequence[Knowledge]:
        """Return for each of n jobs what its run-time model depends on."""
        ...
