"""The call for reservations of running jobs, and its response: samples or running statistics in, reservations out.

Wrong samples do not make a call invalid: they are refused one by one in the response.
"""

from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from modelserve.contract.fields import Answer, Finite, Mode, Part, StrictFinite, Text
from modelserve.contract.jobs import Amounts
from modelserve.contract.requests import Moment, RecommendJob

__all__ = [
    "MAX_RUNNING", "MAX_SAMPLES", "ComputeStatistics", "Fault", "InputFault", "Reason", "ReserveAnswer", "ReserveBody",
    "Reserved", "RunningJob", "SampleColumns", "Statistics",
]  # fmt: skip

MAX_RUNNING: Final = 1000
"""Maximum number of running jobs in one call."""
MAX_SAMPLES: Final = 60
"""Maximum number of samples of one job in one call: an hour of one-minute samples."""

Reason = Literal["probation", "stale", "pressing", "held", "measured", "refused"]
"""The reasons of `scheduler_core.reserve`, which clients do not load, and `refused`."""
InputFault = Literal["missing", "ambiguous", "length"]
"""Faults of a job's measurements as a whole: a missing value, two values for the same amount, or unequal lengths."""
Fault = Literal["out_of_range", "out_of_order", "ahead", InputFault]
"""The faults of a sample of `scheduler_core.reserve`, and those of a job's measurements."""

Column = Annotated[tuple[float | None, ...], Field(max_length=MAX_SAMPLES, fail_fast=True)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
Age = Annotated[float, Field(ge=0.0, le=1e10, allow_inf_nan=False)]


class SampleColumns(Part):
    """Samples of one running job in the order of time, as lists of equal length; a resource not sampled is absent.

    `at_s` are seconds since the job's start. Values are per instance: the mean over all instances for CPU cores and
    GPUs, the largest for memory. GPU memory is given in GiB, or in GPUs: its share of a device's memory times devices.
    """

    at_s: Column
    cpu_cores: Column | None = None
    gpus: Column | None = None
    mem_gib: Column | None = None
    gpu_mem_gpus: Column | None = None
    gpu_mem_gib: Column | None = None


class ComputeStatistics(Part):
    """Running statistics of CPU cores or GPUs: `squares` is the sum of squared deviations from the mean.

    `recent` is the mean of the newest samples: each sample moves it by a third of its distance to the sample.
    `pressed_s` are the seconds from the job's start to the last time at which it pressed on its reservation of this
    resource.
    """

    mean: float
    recent: float
    squares: float
    pressed_s: float | None = None


class Statistics(Part):
    """Running statistics of one job's samples, on which its reservation rests.

    The job's next call may send them together with newer samples. They are unchanged if samples were refused, except
    that the largest memory samples include all sound ones. `at_s` are the seconds from the job's start to the newest
    sample. Memory and GPU memory are the largest samples.
    """

    count: Count
    at_s: float | None = None
    cpu_cores: ComputeStatistics | None = None
    gpus: ComputeStatistics | None = None
    mem_gib: float | None = None
    gpu_mem_gpus: float | None = None


class RunningJob(RecommendJob):
    """A running job with its age or start time, and samples, running statistics of earlier samples, or both.

    A `held` job keeps its request until it ends, as after a kill. `device_mem_gib` is the memory of one GPU, by default
    that of the `gpu_type` if known.
    """

    age_s: Age | None = None
    start_ts: Moment | None = None
    held: bool = False
    device_mem_gib: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] | None = None
    samples: SampleColumns | None = None
    statistics: Statistics | None = None


class ReserveBody(Part):
    """A call for reservations: running jobs, and the trace of jobs that name none."""

    jobs: Annotated[tuple[RunningJob, ...], Field(min_length=1, max_length=MAX_RUNNING, fail_fast=True)]
    trace: Text | None = None


class ComputeAmounts(Answer):
    """An amount of CPU cores and of GPUs, per instance; null if the job did not request the resource."""

    cpu_cores: StrictFinite | None
    gpus: StrictFinite | None


class MemoryAmounts(Answer):
    """Memory to reserve per instance; null if neither requested nor sampled.

    `gpu_mem_gib` is also null if a device's memory is unknown. Memory that was not requested is the largest sample with
    a margin.
    """

    mem_gib: StrictFinite | None
    gpu_mem_gpus: StrictFinite | None
    gpu_mem_gib: StrictFinite | None


class RefusedSamples(Answer):
    """Samples refused for one reason: the field, the reason, and their indices (none: the field as a whole)."""

    field: str
    why: Fault
    samples: tuple[int, ...]


class Reserved(Answer):
    """What to reserve for one instance of a running job, and why.

    `mode` says whether to apply the reservation (`enforce`) or only to record it (`observe`). `mean` and `spread` (a
    standard deviation) are of CPU and GPU compute; `memory` is never below the largest sample. With the reason
    `measured` they come from samples; with any other reason the request stands. `refused` lists the refused samples,
    and `note` why the request stands.
    """

    job_id: str
    answer_id: SkipJsonSchema[str] = ""  # filled in by the client
    mode: Mode
    request: Amounts
    mean: ComputeAmounts
    spread: ComputeAmounts
    memory: MemoryAmounts
    reason: Reason
    refused: tuple[RefusedSamples, ...]
    statistics: Statistics
    note: str | None


class ReserveAnswer(Answer):
    """Reservations, one per job, in the order of the jobs in the call.

    A machine or device has room for a newcomer if the sum of means plus `z` times the root of the summed variances
    stays within its capacity. Variances are squared spreads, and each instance counts.
    """

    answer_id: str
    z: Finite
    reservations: tuple[Reserved, ...]
