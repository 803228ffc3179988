"""The call for routes of waiting jobs among sites, and its response."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from modelserve.contract.fields import Answer, Part, StrictFinite, Text
from modelserve.contract.requests import Moment

__all__ = ["RouteAnswer", "RouteBody", "RoutedJob", "SiteRow"]

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
Seconds = Annotated[float, Field(gt=0.0, le=1e8, allow_inf_nan=False)]


class SiteRow(Part):
    """One site: its GPUs, what a running GPU adds to its power (PUE included), and forecasts by hour.

    The forecasts begin with the current hour; 24 hours, which then repeat. `freeing` are GPUs that running jobs are
    expected to free within each of the next hours.
    """

    site: Text
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)]
    free: Gpus
    gpu_kw: Annotated[float, Field(gt=0.0, le=100.0, allow_inf_nan=False)]
    price_usd_per_kwh: Annotated[tuple[Price, ...], Field(min_length=HOURS, max_length=HOURS)]
    carbon_g_per_kwh: Annotated[tuple[Carbon, ...], Field(min_length=HOURS, max_length=HOURS)]
    freeing: Annotated[tuple[Gpus, ...], Field(max_length=48)] = ()

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
    run_time_s: Seconds
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
