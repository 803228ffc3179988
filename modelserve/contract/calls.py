"""The table of calls under /v1: path, body, answer, scope and function of each.

Routes, the OpenAPI document and the clients are made from it. A new call needs its shapes, a row here, and the function
that `modelserve.service` names for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel

from modelserve.contract.feedback import DriftAnswer, FeedbackAnswer, FeedbackBody, ModeAnswer, ModeChange
from modelserve.contract.jobs import ExplainAnswer, PredictAnswer, RecentAnswer, RecommendAnswer, WhatIfAnswer
from modelserve.contract.models import CardAnswer, ImportancesAnswer, ModelsAnswer
from modelserve.contract.placements import (
    ClusterBody,
    PendingAnswer,
    PendingBody,
    PlaceAnswer,
    RouteAnswer,
    RouteBody,
    ScheduleAnswer,
    ScheduleBody,
)
from modelserve.contract.plans import HoldAnswer, HoldBody, PlanAnswer, PlanBody
from modelserve.contract.requests import ExplainBody, ModeBody, PredictBody, RecommendBody, WhatIfBody
from modelserve.contract.reservations import ReserveAnswer, ReserveBody
from modelserve.scopes import Scope

__all__ = ["CALLS", "FEEDBACK", "PREDICT", "CallShape", "Parameter"]

Said = TypeVar("Said", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter in the path, the query or the headers; only path parameters are required."""

    name: str
    description: str
    place: Literal["path", "query", "header"] = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallShape(Generic[Said]):
    """One call: a method of a path, what it takes and returns, and the function that computes the answer.

    Attributes
    ----------
    function
        Name in `modelserve.service.DECISIONS`, or a method of `Service`.
    body, answer
        Models of the JSON body, if there is one, and of the response.
    jobs
        Where the jobs of the body are: a list in this field, whose cluster is that of each job, or of the whole call
        (`of_call`); `job` is a single job.
    rows
        Field of the answer with one row per job, in the order of the jobs.
    kind
        Kind of the answer in the log; empty if it is not logged.
    fail_fast
        Whether all lists of the body have a maximum length and stop at their first invalid item.
    at_once
        Maximum number of jobs of a call that is computed on the event loop, which takes about a millisecond.
    in_memory
        Whether the call reads no store and is always computed on the event loop.
    repeatable
        Whether sending the call twice has the same effect as once.
    """

    method: Literal["GET", "POST"]
    path: str
    function: str
    summary: str
    answer: type[Said]
    body: type[BaseModel] | None = None
    scope: Scope = Scope.PREDICT
    tag: str = "jobs"
    parameters: tuple[Parameter, ...] = ()
    jobs: str = ""
    of_call: bool = False
    rows: str = ""
    kind: str = ""
    fail_fast: bool = False
    at_once: int = 0
    in_memory: bool = False
    repeatable: bool = True

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def jobs_of(self, body: Any) -> Sequence[Any]:  # Any: a body of any call
        """Return the jobs of a body."""
        found: Any = getattr(body, self.jobs)
        return found if isinstance(found, tuple) else (found,)

    def rows_of(self, answer: Said) -> Iterable[Any]:  # Any: rows of any answer
        """Return the rows of an answer, one per job; an answer about a single job is its own row."""
        rows: Iterable[Any] = getattr(answer, self.rows) if self.rows else (answer,)
        return rows

    @property
    def item(self) -> type[BaseModel]:
        """The model of one of the jobs in the body's list."""
        found: type[BaseModel] = get_args((self.body or BaseModel).model_fields[self.jobs].annotation)[0]
        return found


_TRACE: Final = Parameter(name="trace", description="Of this trace.", place="query")
_TYPE: Final = Parameter(name="task_type", description="Of this task type.", place="query")
_NAME: Final = Parameter(name="name", description="Registered name of a model, as `runtime.pai.ctr`.")

PREDICT: Final = CallShape(
    method="POST", path="/v1/predictions", function="predict", summary="Run time and peak use of each job",
    body=PredictBody, answer=PredictAnswer, jobs="jobs", rows="predictions", kind="prediction", at_once=16,
)  # fmt: skip
RECOMMEND: Final = CallShape(
    method="POST", path="/v1/recommendations", function="recommend",
    summary="How far each job's request can shrink, and why",
    body=RecommendBody, answer=RecommendAnswer, jobs="jobs", rows="recommendations", kind="recommendation",
)  # fmt: skip
RECENT: Final = CallShape(
    method="GET", path="/v1/recommendations", function="recent_recommendations",
    summary="The newest recommendations, and what they freed", answer=RecentAnswer, parameters=(_TRACE, _TYPE),
)  # fmt: skip
RESERVE: Final = CallShape(
    method="POST", path="/v1/reservations", function="reserve",
    summary="What to reserve for each running job, and why",
    body=ReserveBody, answer=ReserveAnswer, jobs="jobs", rows="reservations", kind="reservation", fail_fast=True,
)  # fmt: skip
PLACE: Final = CallShape(
    method="POST", path="/v1/placements", function="place", summary="Where each waiting job starts, or why it waits",
    body=ClusterBody, answer=PlaceAnswer, jobs="jobs", of_call=True, rows="placements", kind="placement",
    fail_fast=True,
)  # fmt: skip
SCHEDULE: Final = CallShape(
    method="POST", path="/v1/schedule", function="schedule",
    summary="How far each waiting job shrinks, and where it starts or why it waits",
    body=ScheduleBody, answer=ScheduleAnswer, jobs="jobs", of_call=True, rows="schedule", kind="recommendation",
    fail_fast=True,
)  # fmt: skip
PENDING: Final = CallShape(
    method="POST", path="/v1/explain-pending", function="explain_pending",
    summary="Why jobs wait, and what would start them",
    body=PendingBody, answer=PendingAnswer, jobs="jobs", of_call=True, kind="pending", fail_fast=True,
)  # fmt: skip
ROUTE: Final = CallShape(
    method="POST", path="/v1/route", function="route", summary="At which site each waiting job starts, and why",
    body=RouteBody, answer=RouteAnswer, jobs="jobs", of_call=True, rows="routes", kind="route", fail_fast=True,
)  # fmt: skip
PLAN: Final = CallShape(
    method="POST", path="/v1/plan", function="plan",
    summary="Which jobs run now on what: within a carbon budget, or at least cost",
    body=PlanBody, answer=PlanAnswer, jobs="jobs", rows="plans", kind="plan", fail_fast=True,
)  # fmt: skip
HOLD: Final = CallShape(
    method="POST", path="/v1/hold", function="hold", summary="Whether to start each job now, or until when to hold it",
    body=HoldBody, answer=HoldAnswer, jobs="jobs", rows="holds", kind="hold", fail_fast=True,
)  # fmt: skip
EXPLAIN: Final = CallShape(
    method="POST", path="/v1/explanations", function="explain",
    summary="Why a job's predicted run time is what it is", body=ExplainBody, answer=ExplainAnswer, jobs="job",
)  # fmt: skip
WHAT_IF: Final = CallShape(
    method="POST", path="/v1/what-if", function="what_if", summary="A job's predicted run time along one resource",
    body=WhatIfBody, answer=WhatIfAnswer, jobs="job",
)  # fmt: skip
MODELS: Final = CallShape(
    method="GET", path="/v1/models", function="list_models", summary="The models within reach", tag="models",
    answer=ModelsAnswer, in_memory=True,
)  # fmt: skip
IMPORTANCES: Final = CallShape(
    method="GET", path="/v1/models/{name}/importances", function="importances_of", tag="models",
    summary="What a model's answers depend on", answer=ImportancesAnswer, parameters=(_NAME,), in_memory=True,
)  # fmt: skip
CARD: Final = CallShape(
    method="GET", path="/v1/models/{name}/card", function="card_of", tag="models", summary="A model's card",
    answer=CardAnswer, parameters=(_NAME,), in_memory=True,
)  # fmt: skip
FEEDBACK: Final = CallShape(
    method="POST", path="/v1/feedback", function="take_feedback", tag="feedback",
    summary="What finished jobs took and used", scope=Scope.FEEDBACK,
    body=FeedbackBody, answer=FeedbackAnswer, jobs="feedback", rows="results",
)  # fmt: skip
DRIFT: Final = CallShape(
    method="GET", path="/v1/drift", function="read_drift", tag="feedback",
    summary="How the models stand, by feedback", answer=DriftAnswer, parameters=(_TRACE, _TYPE),
)  # fmt: skip
MODES: Final = CallShape(
    method="GET", path="/v1/mode", function="read_modes", tag="feedback",
    summary="Where recommendations are applied", answer=ModeAnswer,
)  # fmt: skip
SET_MODE: Final = CallShape(
    method="POST", path="/v1/mode", function="set_mode", tag="feedback",
    summary="Set or unset a mode, or release a brake", scope=Scope.ADMIN,
    body=ModeBody, answer=ModeChange, repeatable=False,
)  # fmt: skip
CALLS: Final[tuple[CallShape[Any], ...]] = (  # Any: each call has an answer of its own
    PREDICT, RECOMMEND, RECENT, RESERVE, PLACE, SCHEDULE, PENDING, ROUTE, PLAN, HOLD, EXPLAIN, WHAT_IF,
    MODELS, IMPORTANCES, CARD, FEEDBACK, DRIFT, MODES, SET_MODE,
)  # fmt: skip
"""All calls under /v1."""
