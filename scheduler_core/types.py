"""Jobs, requests, recommendations and predictions, and the protocol of a predictor.

Frozen dataclasses and one protocol; no behaviour beyond arithmetic on a request.
Used by every module here; `modelserve.bundle.predictor` implements `Predictor`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

__all__ = [
    "LEAST_GIVEN",
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
"""The requestable resources, in the column order of every request matrix."""

LEAST_GIVEN: Final = (0.001, 1.0 / 1024.0, 0.001)
"""The smallest amount of each resource that a cluster can allocate; a smaller target is invalid."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Reason(StrEnum):
    """Why a recommendation has its target for a resource."""

    SHRUNK = "shrunk"
    IMPORTANT = "important"
    FLOOR = "floor"
    COLD_START = "cold_start"
    NO_CANDIDATE = "no_candidate"
    BELOW_THRESHOLD = "below_threshold"
    OPTED_OUT = "opted_out"
    PREDICTOR_UNAVAILABLE = "predictor_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Amounts that one instance requests or is given: CPU cores, GiB of memory, GPUs (fractional below one).

    NaN is an unknown amount, as in a trace that lacks the resource: it takes nothing of a machine, is never shrunk, and
    has no reason. An amount of 0 is known, and takes nothing either. None is invalid.
    """

    cpu_cores: float
    mem_gib: float
    gpus: float

    def row(self) -> tuple[float, float, float]:
        """Return the request in the order of `RESOURCES`."""
        return (self.cpu_cores, self.mem_gib, self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job (gang) as known at submission.

    `submit_ts` is Unix time in seconds (UTC). A trace that lacks a field leaves it `None`. `minimum` is the
    least that the job is given, whatever was measured, unless it requested less; NaN if it has none.
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
    """Predicted run time in seconds, one value per row; NaN where unknown."""

    p50: FloatArray
    p90: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakUse:
    """Upper quantile of use per instance and the number of measured runs behind it, by job; NaN where unknown."""

    cpu_cores: FloatArray
    mem_gib: FloatArray
    gpus: FloatArray
    gpu_mem_gib: FloatArray
    runs: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The resources that the run-time model of one task type depends on, and its range of training requests.

    `important` holds the resources whose permutation importance passes the cut; `support` maps each resource to the
    lowest and highest request in training (with equal ends the model cannot judge the resource).
    """

    important: frozenset[str] = frozenset()
    support: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The recommended request of one job, per instance, with reasons.

    `lower_bound <= target <= request` wherever they are known; a lower bound is NaN where no floor is known, and a
    resource that the trace lacks is NaN throughout and absent from `reasons`.
    `reasons`: `shrunk` when alpha set the target, `floor` when the peak-use floor did (below or at the request).
    Run times are predicted for the accepted candidate, with resources outside the model's range held at the request;
    `run_time_change` is relative to the request, 0 where all are outside, NaN without a prediction.
    `alpha` is the accepted factor, 1 where none was. `model_decided`: the target differs from the target by floors
    alone. `runs` counts the measured runs behind the floor; `note` holds the error of a failed predictor.
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


class Predictor(Protocol):
    """A predictor of run time and peak use; it raises `PredictorUnavailable` if it fails."""

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict `len(rows)` run times at once: row i is `jobs[rows[i]]` with the request `requests[i]` (k, 3)."""
        ...

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Predict the upper quantile of use of each job's instances (n,)."""
        ...

    def knowledge(self, jobs: Sequence[Job]) -> Sequence[Knowledge]:
        """Return the importance and training range of the resources in each job's model (n,)."""
        ...
