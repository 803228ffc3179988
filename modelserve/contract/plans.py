"""The calls for plans and holds, and their responses: which jobs run now on what, and until when jobs wait.

A call carries all that its decision needs: jobs with predicted run times, nodes, and the grid.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from modelserve.contract.fields import Answer, Finite, Mode, Part, Text
from modelserve.contract.requests import JobRow, Moment

__all__ = [
    "MAX_PLANNED", "Held", "HoldAnswer", "HoldBody", "HoldJob", "HourlyValues", "PlanAnswer", "PlanBody", "PlanJob",
]  # fmt: skip

MAX_PLANNED: Final = 1000
"""Maximum number of jobs, and of nodes, in one call."""
MAX_GPUS: Final = 1024
"""Maximum number of GPUs of one job."""
MAX_NODE_GPUS: Final = 128
MAX_SEARCH: Final = 1_000_000
"""Maximum of jobs x nodes x groups of nodes x GPU counts of a job for the objective cost: about a second of search."""
MAX_GROUPS: Final = 32
MAX_HOURS: Final = 24 * 31
MAX_VALUE: Final = 1e6
MAX_RUN_S: Final = 90 * 86_400.0
FIRST_TS: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST_TS: Final = datetime(2200, 1, 1, tzinfo=UTC)

PRICE_S_PER_KWH: Final = 3_000.0
"""Default price of energy (ours): at 200 W, a second GPU has to make a job 1.14 times as fast."""

Watts = Annotated[float, Field(ge=0.0, le=1e5, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=1.0, le=MAX_RUN_S, allow_inf_nan=False)]
When = Annotated[Moment, Field(ge=FIRST_TS, le=LAST_TS)]
Ratio = Annotated[float, Field(gt=0.0, le=1e4, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=MAX_GPUS)]
Price = Annotated[float, Field(ge=-1e3, le=1e3, allow_inf_nan=False)]
Grams = Annotated[float, Field(ge=0.0, le=1e15, allow_inf_nan=False)]


class PlanJob(JobRow):
    """A waiting or running job; its GPUs are those of its request times instances, a whole number.

    `run_s` is the predicted run time of the whole job with these GPUs, such as the p50 of a prediction, and `done_frac`
    the part that is done. `speedup` are the other GPU counts that the job may run with, each with its speed relative to
    the requested count; without it, the job keeps its count. `speed_on` is its speed by GPU type relative to `run_s`, 1
    where absent. `running_gpus` are the GPUs with which it runs now, on `node`, a node of a group, if it is given.
    """

    run_s: Seconds
    done_frac: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    speedup: Annotated[dict[Count, Ratio], Field(max_length=64)] = Field(default_factory=dict)
    speed_on: Annotated[dict[Text, Ratio], Field(max_length=64)] = Field(default_factory=dict)
    gpu_watts: Annotated[float, Field(gt=0.0, le=1e5, allow_inf_nan=False)] | None = None
    running_gpus: Annotated[int, Field(ge=0, le=MAX_GPUS)] = 0
    node: Text | None = None
    due_ts: When | None = None
    weight_usd_per_h: Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False)] = 1.0

    @property
    def gpus(self) -> int:
        """Return the requested GPUs of the whole job."""
        return round((self.request.gpus or 0.0) * self.instances)

    @model_validator(mode="after")
    def _whole_gpus(self) -> Self:
        wanted = (self.request.gpus or 0.0) * self.instances
        if not 1 <= wanted <= MAX_GPUS or abs(wanted - round(wanted)) > 1e-9:
            raise ValueError(
                f"request.gpus: found {wanted:g} with its instances, expected a whole number from 1 to {MAX_GPUS}"
            )
        if self.node is not None and not self.running_gpus:
            raise ValueError(f"running_gpus: found 0 on node {self.node[:40]!r}, expected 1 or more, or no node")
        return self


class NodeGroup(Part):
    """Equal nodes, named `name-0`, `name-1` and so on. Power is of one GPU, and of the rest of one node."""

    name: Text
    gpu_type: Text
    gpus: Annotated[int, Field(ge=1, le=MAX_NODE_GPUS)]
    count: Annotated[int, Field(ge=1, le=MAX_PLANNED)] = 1
    gpu_idle_w: Watts
    gpu_full_w: Annotated[float, Field(ge=1.0, le=1e5, allow_inf_nan=False)]
    rest_idle_w: Watts = 0.0

    @property
    def names(self) -> list[str]:
        """Return the names of its nodes."""
        return [f"{self.name}-{number}" for number in range(self.count)]

    @model_validator(mode="after")
    def _full_above_idle(self) -> Self:
        if self.gpu_full_w < self.gpu_idle_w:
            raise ValueError(
                f"gpu_full_w: found {self.gpu_full_w:g}, expected gpu_idle_w, {self.gpu_idle_w:g}, or more"
            )
        return self


class Clock(Part):
    """A core frequency: speed and power of a running GPU, relative to those at the highest frequency."""

    mhz: Annotated[float, Field(gt=0.0, le=1e5)]
    speed: Annotated[float, Field(gt=0.0, le=1.0)]
    power: Annotated[float, Field(gt=0.0, le=1.0)]


def check_ids(jobs: Sequence[JobRow]) -> None:
    job_id, times = Counter(row.job_id for row in jobs).most_common(1)[0]
    if times > 1:
        raise ValueError(f"jobs: found job_id {job_id[:40]!r} {times} times, expected each job once")


class PlanBody(Part):
    """A call for a plan: jobs, nodes and the grid now.

    With the objective `carbon`, GPU counts and clocks are chosen so that the emissions within `period_s` (budget
    `period`), or until the jobs end (`to-completion`, as in the carbon patent), are at most `budget_g` at
    `g_per_kwh`. The planner `priced` (ours) adds a GPU or raises a clock only where it saves at least `price_s_per_kwh`
    seconds of run time per kWh; `two_stages` (the carbon patent) does so while the budget lasts. With the objective
    `cost`, jobs with due dates are placed on node types at the lowest cost of tardiness and energy, at `usd_per_kwh`
    now and `later_usd_per_kwh` later. Without `preempt`, a running job is stopped only if the budget does not suffice
    for it.
    """

    objective: Literal["carbon", "cost"]
    jobs: Annotated[tuple[PlanJob, ...], Field(min_length=1, max_length=MAX_PLANNED, fail_fast=True)]
    nodes: Annotated[tuple[NodeGroup, ...], Field(min_length=1, max_length=MAX_GROUPS)]
    clocks: Annotated[tuple[Clock, ...], Field(max_length=100)] = ()
    trace: Text | None = None
    now_ts: When | None = None
    period_s: Annotated[float, Field(ge=1.0, le=86_400.0)] = 900.0
    pue: Annotated[float, Field(ge=1.0, le=10.0)] = 1.0
    preempt: bool = True
    g_per_kwh: Annotated[float, Field(ge=0.0, le=2500.0)] | None = None
    budget: Literal["period", "to-completion"] = "period"
    budget_g: Grams | None = None
    planner: Literal["priced", "two_stages"] = "priced"
    price_s_per_kwh: Annotated[float, Field(ge=0.0, le=1e9)] = PRICE_S_PER_KWH
    usd_per_kwh: Price | None = None
    later_usd_per_kwh: Price | None = None
    restart_s: Annotated[float, Field(ge=0.0, le=86_400.0)] = 60.0

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needs = ("g_per_kwh", "budget_g") if self.objective == "carbon" else ("usd_per_kwh",)
        missing = [name for name in needs if getattr(self, name) is None]
        if missing:
            raise ValueError(f"found none, expected {' and '.join(missing)} for the objective {self.objective}")
        types = {(group.gpu_type, group.gpu_full_w) for group in self.nodes}
        if self.objective == "carbon" and len(types) > 1:
            raise ValueError(
                f"nodes: found {len(types)} GPU types or powers, expected one for the objective carbon; plan each apart"
            )
        mhz, speeds = [clock.mhz for clock in self.clocks], [clock.speed for clock in self.clocks]
        if mhz != sorted(set(mhz)) or speeds != sorted(speeds):
            raise ValueError("clocks: expected ascending frequencies and speeds")
        if self.clocks and (self.clocks[-1].speed, self.clocks[-1].power) != (1.0, 1.0):
            raise ValueError("clocks: expected speed 1 and power 1 at the highest frequency; the others are relative")
        check_ids(self.jobs)
        self._check_nodes()
        return self

    def _check_nodes(self) -> None:
        count = sum(group.count for group in self.nodes)
        if count > MAX_PLANNED:
            raise ValueError(f"nodes: found {count} nodes, expected at most {MAX_PLANNED}")
        search = len(self.jobs) * count * len(self.nodes) * max(1 + len(row.speedup) for row in self.jobs)
        if self.objective == "cost" and search > MAX_SEARCH:
            raise ValueError(
                f"nodes: found {search} combinations (jobs x nodes x groups x GPU counts), expected at most "
                f"{MAX_SEARCH} for the objective cost; plan parts of the cluster apart"
            )
        gpus = {name: group.gpus for group in self.nodes for name in group.names}
        if len(gpus) < count:
            raise ValueError("nodes: found a name twice, expected each name once")
        running = Counter[str]()
        for at, row in enumerate(self.jobs):
            if row.node is not None and row.node not in gpus:
                raise ValueError(f"jobs.{at}.node: found {row.node[:40]!r}, expected one such as {next(iter(gpus))!r}")
            running[row.node or ""] += row.running_gpus
        for name, used in running.items():
            if used > gpus.get(name, sum(gpus.values())):
                raise ValueError(
                    f"jobs: found {used} running_gpus on {name or 'the nodes'}, expected at most their "
                    f"{gpus.get(name, sum(gpus.values()))} GPUs"
                )


PlanReason = Literal["runs", "late", "no_gpus", "budget", "postponed"]
"""Why a job runs or waits: it runs (and by the plan ends late), no GPUs are free, the budget does not suffice, or
running it later costs less."""


class Planned(Answer):
    """What one job gets until the next plan: GPUs by node, and a clock in MHz (null: unchanged).

    `left_s` is its predicted remaining run time, null if it waits. `grams` are what the budget counts for it; null for
    the objective `cost`.
    """

    job_id: str
    mode: Mode
    gpus: int
    mhz: Finite | None
    nodes: dict[str, int]
    left_s: Finite | None
    grams: Finite | None
    reason: PlanReason
    note: str


class PlanAnswer(Answer):
    """A plan until `again_ts` at the latest: the end of the period, or the first predicted end.

    `planned_g` are the grams that the budget counts; `notes` say which limits stopped the plan.
    """

    answer_id: str
    again_ts: AwareDatetime
    planned_g: Finite | None
    notes: tuple[str, ...]
    plans: tuple[Planned, ...]


class HourlyValues(Part):
    """Hourly values from `start_ts` (a whole hour): past values until now, then a forecast if there is one.

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
"""Why a job starts now or is held: no hour within its slack is better, a later hour is, or its slack is too short."""


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
