"""The calls that place, explain or route waiting jobs, and their responses: clusters or sites as they are now.

Names and amounts that contradict each other are refused by `scheduler_core.scene`.
"""

from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from modelserve.contract.fields import Amount, Answer, Finite, Part, RequestRow, StrictFinite, Text
from modelserve.contract.jobs import Amounts, Recommended
from modelserve.contract.requests import Moment, RecommendBody, RecommendJob
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queueing import QUEUE_POLICIES

__all__ = [
    "MAX_EXPLAINED", "ClusterBody", "PendingAnswer", "PendingBody", "PlaceAnswer", "QueuedRow", "RouteAnswer",
    "RouteBody", "RoutedJob", "ScheduleAnswer", "ScheduleBody", "SiteRow",
]  # fmt: skip

MAX_MACHINES: Final = 5000
MAX_RUNNING_JOBS: Final = 10_000
MAX_QUEUED: Final = 1000
MAX_SPOTS: Final = 1000
"""Maximum number of machines of one running job, and of machines that one waiting job names."""
MAX_GPUS: Final = 1000
"""Maximum number of GPUs of one machine."""
MAX_EXPLAINED: Final = 10
"""Maximum number of waiting jobs that one call explains."""
MAX_INSTANCES: Final = 10_000
"""Maximum number of instances of one job."""

Seconds = Annotated[float, Field(ge=0.0, le=1e10, allow_inf_nan=False)]
Instances = Annotated[int, Field(ge=1, le=MAX_INSTANCES)]
Devices = Annotated[tuple[Annotated[int, Field(ge=0, lt=MAX_GPUS)], ...], Field(max_length=MAX_GPUS, fail_fast=True)]
GpuType = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^|\x00]+$")]

if TYPE_CHECKING:
    Policy = str
    PlacementName = str
else:
    Policy = Literal[tuple(QUEUE_POLICIES)]
    PlacementName = Literal[tuple(sorted(PLACEMENTS))]


class MachineRow(Part):
    """One machine: its capacity, the type of its GPUs and the memory of each.

    A `closed` machine (cordoned, draining) takes no new jobs.
    """

    machine: Text
    cpu_cores: Amount
    mem_gib: Amount
    gpus: Annotated[int, Field(ge=0, le=MAX_GPUS)] = 0
    gpu_type: GpuType | None = None
    device_mem_gib: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] | None = None
    closed: bool = False


class SpotRow(Part):
    """Instances of a running job on one machine, and the GPUs that they hold, by index from 0, if known."""

    machine: Text
    instances: Instances = 1
    devices: Devices = ()


class RunningRow(Part):
    """One running job: its request per instance, its machines, and the seconds until it should end, if known."""

    job_id: Text
    request: RequestRow
    on: Annotated[tuple[SpotRow, ...], Field(min_length=1, max_length=MAX_SPOTS, fail_fast=True)]
    user: Text | None = None
    ends_in_s: Seconds | None = None


class QueuedRow(RecommendJob):
    """One waiting job: its request per instance, its constraints, and what queue policies and models read.

    `gpu_type` may list alternatives (`T4|P100`). `machines` are the only machines that the job may use, if given, and
    `device_mem_gib` is the least memory of each GPU. `run_time_s` is the expected run time, `priority` is larger for
    jobs that go first. Jobs that waited equally long are in the order of the call. The fields that models read count
    only in `/v1/schedule`. The job is of the trace and cluster of the call.
    """

    instances: Instances = 1
    machines: Annotated[tuple[Text, ...], Field(max_length=MAX_SPOTS, fail_fast=True)] = ()
    device_mem_gib: Amount = 0.0
    priority: Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)] = 0.0
    waited_s: Seconds = 0.0
    run_time_s: Seconds | None = None


class ClusterBody(Part):
    """A call for placements: the machines, the running jobs, the queue (`jobs`), and the rules by which jobs start.

    `overtakes` is the number of later jobs that may start before a job that does not fit; absent: any number. With
    `backfill` `easy`, later jobs must not delay it. GPUs are pooled per machine, or shared by device: by default as the
    placement needs, and by device if any GPU is named.
    """

    machines: Annotated[tuple[MachineRow, ...], Field(min_length=1, max_length=MAX_MACHINES, fail_fast=True)]
    running: Annotated[tuple[RunningRow, ...], Field(max_length=MAX_RUNNING_JOBS, fail_fast=True)] = ()
    jobs: Annotated[tuple[QueuedRow, ...], Field(min_length=1, max_length=MAX_QUEUED, fail_fast=True)]
    trace: Text | None = None
    cluster: Text | None = None
    policy: Policy = "fifo"
    placement: PlacementName = "best_fit"
    sharing: Literal["pooled", "devices"] | None = None
    backfill: Literal["none", "easy"] = "none"
    overtakes: Annotated[int, Field(ge=0, le=1_000_000)] | None = None


class PendingBody(ClusterBody):
    """A call for explanations: a cluster, and the ids of the jobs to explain; absent: the first in queue order."""

    explain: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MAX_EXPLAINED, fail_fast=True)] | None = None


class ScheduleBody(ClusterBody, RecommendBody):
    """A call to shrink and place the waiting jobs of a cluster, with the limits on shrinking of a recommendation."""

    jobs: Annotated[tuple[QueuedRow, ...], Field(min_length=1, max_length=MAX_QUEUED, fail_fast=True)]


class SpotAnswer(Answer):
    """Instances of a job on one machine, and the GPUs that they take, by index; none if GPUs are pooled."""

    machine: str
    instances: int
    devices: tuple[int, ...]


class PlaceReason(Answer):
    """Why a job starts where it does, or waits: a code, and the same in words.

    `short` counts the machines that cannot take an instance of a waiting job, by cause; a machine counts once for each
    resource it lacks.
    """

    code: str
    text: str
    short: dict[str, int]


class Placed(Answer):
    """Where one waiting job starts now, and why; it waits if `on` is empty."""

    job_id: str
    starts: bool
    on: tuple[SpotAnswer, ...]
    reason: PlaceReason


class PlaceAnswer(Answer):
    """Placements, one per waiting job, in the order of the jobs in the call."""

    answer_id: str
    placements: tuple[Placed, ...]


class Scheduled(Recommended, Placed):
    """One waiting job: its recommendation, the request that it is `given`, and where it starts, or why it waits.

    `given` is the target in mode `enforce`, otherwise the request; the job is placed with it. `reasons` are those of
    the target, `reason` is that of the placement. A job without `run_time_s` is queued by its predicted median.
    """

    given: Amounts


class ScheduleAnswer(Answer):
    """Recommendations with placements, one per waiting job, in the order of the jobs in the call."""

    answer_id: str
    schedule: tuple[Scheduled, ...]


class Change(Answer):
    """One change with which, alone, a job would start now; tried by deciding again.

    `to` has the new value of each changed field of the job.
    """

    field: str
    text: str
    to: dict[str, int | Finite | str | None]


class PendingJob(Answer):
    """Why one job waits after the next round, and what would have to change.

    `hold` is the reason: `room`, `never` (more than the empty cluster), or a rule that protects the job `head`:
    `overtakes`, `reservation`, `depth`. `place` counts from 1 in queue order, 0 if the job can never start. `hosted`
    instances would fit now. `must_end` are the jobs that must end before it fits, `room_in_s` and `expected_wait_s`
    the expected seconds until then and until it starts after the jobs before it; null if unknown.
    """

    job_id: str
    hold: str
    place: int
    head: str | None
    text: str
    instances: int
    hosted: int
    short: dict[str, int]
    must_end: tuple[str, ...]
    room_in_s: StrictFinite | None
    expected_wait_s: StrictFinite | None
    changes: tuple[Change, ...]


class PendingAnswer(Answer):
    """Explanations of waiting jobs, in the order of the ids or of the queue; jobs that start now are left out."""

    answer_id: str
    pending: tuple[PendingJob, ...]


MAX_ROUTED: Final = 1000
"""Maximum number of waiting jobs in one call."""
MAX_SITES: Final = 32
HOURS: Final = 24
MOST_GPUS: Final = 1_000_000

RouteReason = Literal["stays", "sent", "waits", "no_room", "too_wide"]
"""The reasons of `scheduler_core.planning.sites`, which clients do not load."""

Gpus = Annotated[int, Field(ge=0, le=MOST_GPUS)]
Price = Annotated[float, Field(ge=-1000.0, le=1000.0, allow_inf_nan=False)]
Carbon = Annotated[float, Field(ge=0.0, le=10_000.0, allow_inf_nan=False)]


class SiteRow(Part):
    """One site: its GPUs, what a running GPU adds to its power (PUE included), and forecasts by hour.

    The forecasts begin with the current hour; 24 hours, which then repeat.
    """

    site: Text
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)]
    free: Gpus
    gpu_kw: Annotated[float, Field(gt=0.0, le=100.0, allow_inf_nan=False)]
    price_usd_per_kwh: Annotated[tuple[Price, ...], Field(min_length=HOURS, max_length=HOURS)]
    carbon_g_per_kwh: Annotated[tuple[Carbon, ...], Field(min_length=HOURS, max_length=HOURS)]

    @model_validator(mode="after")
    def _free_exist(self) -> Self:
        if self.free > self.gpus:
            raise ValueError(f"found {self.free} free GPUs, expected at most the site's {self.gpus}")
        return self


class RoutedJob(Part):
    """A waiting job at its site of origin: GPUs, predicted run time, time left until its due date, data to move."""

    job_id: Text
    site: Text
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)]
    run_time_s: Annotated[float, Field(gt=0.0, le=1e8, allow_inf_nan=False)]
    due_in_s: Annotated[float, Field(ge=0.0, le=1e8, allow_inf_nan=False)]
    data_gb: Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False)] = 0.0


class RouteBody(Part):
    """A call for routes: sites, waiting jobs, and the moment (ISO 8601), by default now."""

    sites: Annotated[tuple[SiteRow, ...], Field(min_length=1, max_length=MAX_SITES, fail_fast=True)]
    jobs: Annotated[tuple[RoutedJob, ...], Field(min_length=1, max_length=MAX_ROUTED, fail_fast=True)]
    trace: Text | None = None
    cluster: Text | None = None
    at: Moment | None = None


class Routed(Answer):
    """Where a job starts now (null: it waits), why, and what that is expected to gain over never running it.

    `safe_mode` marks a decision of the greedy rule: the job or the sites lie outside what the policy was trained on.
    """

    job_id: str
    site: str | None
    reason: RouteReason
    gain_usd: StrictFinite
    safe_mode: bool


class RouteAnswer(Answer):
    """Routes, one per job, in the order of the jobs in the call, and the policy that decided."""

    answer_id: str
    policy: str
    routes: tuple[Routed, ...]
