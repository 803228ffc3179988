"""The call for holds and its response: until when each job should wait for cleaner or cheaper energy.

Used by `modelserve.calls`, `modelserve.client` and `taut plan hold`.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from modelserve.contract.fields import Answer, Finite, Mode, Text
from modelserve.contract.plans import MAX_PLANNED, Part, Seconds, When, check_ids
from modelserve.contract.requests import JobRow

__all__ = ["Held", "HoldAnswer", "HoldBody", "HoldJob", "HourlyValues"]

MAX_HOURS: Final = 24 * 31
MAX_VALUE: Final = 1e6


class HourlyValues(Part):
    """Hourly values from `start_ts` (a whole hour): of the past until now, then a forecast as far as there is one.

    Hours after the last value are forecast from the same hours of the last 14 days, as far as they are given.
    """

    start_ts: When
    values: Annotated[
        tuple[Annotated[float, Field(ge=-MAX_VALUE, le=MAX_VALUE, allow_inf_nan=False)], ...],
        Field(min_length=1, max_length=MAX_HOURS),
    ]

    @model_validator(mode="after")
    def _whole_hour(self) -> Self:
        if self.start_ts.timestamp() % 3600.0:
            raise ValueError(f"start_ts: found {self.start_ts}, expected a whole hour")
        return self


class HoldJob(JobRow):
    """A submitted job: its predicted run time, and how long its start may be delayed from now."""

    run_s: Seconds
    slack_s: Annotated[float, Field(ge=0.0, le=7 * 86_400.0, allow_inf_nan=False)]


class HoldBody(Part):
    """A call for holds: jobs, and the hourly series by which to delay them, in g/kWh or USD/kWh."""

    jobs: Annotated[tuple[HoldJob, ...], Field(min_length=1, max_length=MAX_PLANNED, fail_fast=True)]
    by: Literal["carbon", "price"]
    hours: HourlyValues
    trace: Text | None = None
    now_ts: When | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_ids(self.jobs)
        if self.by == "carbon" and min(self.hours.values) < 0.0:
            raise ValueError(f"hours: found {min(self.hours.values):g} g/kWh, expected 0 or more")
        return self


HoldReason = Literal["now_is_best", "better_hour", "no_slack"]
"""Why a job starts now or is held: no hour within its slack is better, one is, or it has less slack than an hour."""


class Held(Answer):
    """Until when to hold one job: null to start it now.

    `mean_now` and `mean_then` are the expected means of the series over its run if it starts now or then.
    """

    job_id: str
    answer_id: SkipJsonSchema[str] = ""  # filled in by the client
    mode: Mode
    until_ts: AwareDatetime | None
    mean_now: Finite
    mean_then: Finite
    reason: HoldReason
    note: str


class HoldAnswer(Answer):
    """Holds, one per job, in the order of the jobs in the call."""

    answer_id: str
    holds: tuple[Held, ...]
