"""The service: settings, models, store, answer log and feedback feed in one object, with a method for each call.

Each method passes on only the parts that its call needs. This module knows no HTTP and starts no thread or process.
Opened by `modelserve.opening`; called by the routes of `modelserve.api`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from modelserve.bundle.routing_policy import RoutingPolicy
from modelserve.callers import Caller, check_jobs
from modelserve.calls.catalogue import Compared, card_of, importances_of, list_models, show_model
from modelserve.calls.explanations import explain_job
from modelserve.calls.holds import holds
from modelserve.calls.logged_context import (
    HOLD,
    PENDING,
    PLACEMENT,
    PLAN,
    PREDICTION,
    RECOMMENDATION,
    RESERVATION,
    ROUTE,
    Answered,
    Call,
    as_json,
    record_of,
)
from modelserve.calls.measured import measured, write_logged
from modelserve.calls.placements import explained, placed
from modelserve.calls.plans import plans
from modelserve.calls.predictions import predicted
from modelserve.calls.recent import recent_recommendations
from modelserve.calls.recommendations import recommended
from modelserve.calls.request_context import RequestContext
from modelserve.calls.reservations import POLICY, reserved
from modelserve.calls.routes import routed, write_logged_routes
from modelserve.calls.scoring import Columns, Scores, body_of, model_named, scores_of
from modelserve.calls.shadow import Shadow
from modelserve.calls.what_if import what_if
from modelserve.contract.feedback import FeedbackBody
from modelserve.contract.fields import Alias
from modelserve.contract.holds import HoldBody
from modelserve.contract.jobs import RecentAnswer
from modelserve.contract.learning import DriftAnswer, ErasureAnswer, Error, FeedbackAnswer, ModeAnswer, ModeChange
from modelserve.contract.models import CardAnswer, ImportancesAnswer, ModelAnswer, ModelsAnswer
from modelserve.contract.placements import ClusterBody, PendingBody
from modelserve.contract.plans import PlanBody
from modelserve.contract.requests import ExplainBody, ModeBody, PredictBody, RecommendBody, WhatIfBody
from modelserve.contract.reservations import ReserveBody
from modelserve.contract.routes import RouteBody
from modelserve.learning.drift import champion_errors, read_drift
from modelserve.learning.erasure import erase_user
from modelserve.learning.feed import Feed
from modelserve.learning.feedback import take_feedback
from modelserve.learning.modes import read_modes, set_mode
from modelserve.loading.models import ModelSet
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.answer_log import AnswerLog

if TYPE_CHECKING:
    from modelserve.loading.served import ServedModel

__all__ = ["Service"]

Decided = TypeVar("Decided", PlanBody, HoldBody)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts of the service, and its calls as methods; `clock` returns Unix time in seconds.

    A method raises the errors of the imported function with the same name. A method that takes jobs also raises
    `BadRequest` for a job without a trace, and `Forbidden` for a job whose trace or cluster the caller may not use.
    """

    settings: ServeSettings
    models: ModelSet
    store: Store
    log: AnswerLog
    feed: Feed
    routing: RoutingPolicy = field(default_factory=RoutingPolicy)
    shadow: Shadow | None = None
    clock: Callable[[], float] = time.time

    def predict_jobs(self, body: PredictBody, caller: Caller, *, answer_id: str, call_json: bytes = b"") -> Answered:
        """Predict the requested outputs of each job, and log the answer; `call_json` is the body as received."""
        call = self._call(answer_id, body.trace)
        check_jobs(body.jobs, call.trace, caller)
        context = self._context()
        answered = predicted(context, body, call)
        self._keep(PREDICTION, context, call, caller, call_json or as_json(body), answered)
        return answered

    def recommend_jobs(
        self, body: RecommendBody, caller: Caller, *, answer_id: str, call_json: bytes = b""
    ) -> Answered:
        """Recommend a target for each job, and log the answer; `call_json` is the request body as received.

        Feedback that is new in the store is applied to the models first.
        """
        call = self._call(answer_id, body.trace)
        check_jobs(body.jobs, call.trace, caller)
        context = RequestContext(snapshot=self.models.current, learned=self.feed.fresh())
        answered = recommended(context, body, call, self.settings.types)
        self._keep(RECOMMENDATION, context, call, caller, call_json or as_json(body), answered)
        return answered

    def reserve_jobs(self, body: ReserveBody, caller: Caller, *, answer_id: str) -> Answered:
        """Return what to reserve for each running job, and log the answer with statistics instead of samples.

        Feedback that is new in the store is applied first.
        """
        call = self._call(answer_id, body.trace)
        check_jobs(body.jobs, call.trace, caller)
        context = RequestContext(snapshot=self.models.current, learned=self.feed.fresh())
        found = measured(body, call.now, POLICY)
        answered = reserved(context, body.jobs, found, call, self.settings.types)
        self._keep(RESERVATION, context, call, caller, write_logged(body, found), answered)
        return answered

    def place_jobs(self, body: ClusterBody, caller: Caller, *, answer_id: str, call_json: bytes = b"") -> Answered:
        """Return where each job of a queue starts now and why, and log the answer; `call_json` as in `predict_jobs`."""
        call = self._call(answer_id, body.trace)
        check_jobs([body], call.trace, caller, field="call")
        answered = placed(body, call)
        self._keep(PLACEMENT, self._context(), call, caller, call_json or as_json(body), answered)
        return answered

    def explain_pending(self, body: PendingBody, caller: Caller, *, answer_id: str, call_json: bytes = b"") -> Answered:
        """Return why jobs wait and what would start them, and log the answer; `call_json` as in `predict_jobs`."""
        call = self._call(answer_id, body.trace)
        check_jobs([body], call.trace, caller, field="call")
        answered = explained(body, call)
        self._keep(PENDING, self._context(), call, caller, call_json or as_json(body), answered)
        return answered

    def route_jobs(self, body: RouteBody, caller: Caller, *, answer_id: str) -> Answered:
        """Return the site where each waiting job starts now and why, and log the answer with the policy."""
        call = self._call(answer_id, body.trace)
        check_jobs([body], call.trace, caller, field="call")
        answered = routed(body, call, self.routing)
        self._keep(ROUTE, self._context(), call, caller, write_logged_routes(body, self.routing), answered)
        return answered

    def plan_jobs(self, body: PlanBody, caller: Caller, *, answer_id: str) -> Answered:
        """Return which jobs run now on what, within a carbon budget or at least cost, and log the answer."""
        return self._decide(PLAN, plans, body, caller, answer_id)

    def hold_jobs(self, body: HoldBody, caller: Caller, *, answer_id: str) -> Answered:
        """Return for each job whether to start it now or until when to hold it, and log the answer."""
        return self._decide(HOLD, holds, body, caller, answer_id)

    def score(self, model: "ServedModel", columns: Columns, caller: Caller, *, answer_id: str) -> Scores:
        """Predict jobs given as columns, with one model for all of them, and log the answer."""
        body = body_of(model, columns, caller)
        card = model.bundle.card
        call = Call(answer_id=answer_id, trace=card.trace, now=self.clock())
        snapshot = replace(self.models.current, champions={card.name: model}, failures={})
        context = RequestContext(snapshot=snapshot, learned=self.feed.learned)
        answered = predicted(context, body, call)
        self._keep(PREDICTION, context, call, caller, as_json(body), answered)
        return scores_of(model, answered)

    def explain_job(self, body: ExplainBody, caller: Caller) -> Answered:
        """Return how much each feature adds to the predicted run time of one job."""
        return explain_job(self._context(), body, caller, default_trace=self.settings.trace, now=self.clock())

    def what_if(self, body: WhatIfBody, caller: Caller) -> Answered:
        """Predict the run time of one job for several amounts of one resource."""
        return what_if(self._context(), body, caller, default_trace=self.settings.trace, now=self.clock())

    def recent_recommendations(
        self, caller: Caller, trace: str | None = None, task_type: str | None = None
    ) -> RecentAnswer:
        """Return the newest logged recommendations for traces and clusters that the caller may use."""
        return recent_recommendations(self.store, caller, trace, task_type)

    def model_named(self, caller: Caller, name: str | None, version: str | None = None) -> "ServedModel":
        """Return the champion registered under `name`; if `name` is None, the only one that the caller may use."""
        return model_named(self.models.current, caller, name, version)

    def list_models(self, caller: Caller) -> ModelsAnswer:
        """Return the models that the caller may use."""
        return list_models(self.models.current, caller)

    def show_model(self, caller: Caller, name: str) -> ModelAnswer:
        """Return one model, and the comparison with its challenger if there is one."""
        compared = None
        if self.shadow is not None:
            window, dropped = self.settings.drift_window, self.shadow.dropped
            compared = Compared(store=self.store, window=window, dropped=dropped)
        return show_model(self.models.current, caller, name, compared)

    def importances_of(self, caller: Caller, name: str, alias: Alias = "champion") -> ImportancesAnswer:
        """Return a model's features, the most important first."""
        return importances_of(self.models.current, caller, name, alias)

    def card_of(self, caller: Caller, name: str, alias: Alias = "champion") -> CardAnswer:
        """Return a model's card."""
        return card_of(self.models.current, caller, name, alias)

    def take_feedback(self, body: FeedbackBody, caller: Caller) -> FeedbackAnswer:
        """Store the reports of finished jobs, and learn from them."""
        default_trace, at = self.settings.trace, self.clock()
        snapshot = self.models.current
        return take_feedback(self.store, self.feed, snapshot, body, caller, default_trace=default_trace, at=at)

    def read_drift(self, caller: Caller, trace: str | None = None, task_type: str | None = None) -> DriftAnswer:
        """Measure the drift of every model that the caller may use, from its newest finished jobs and answers."""
        window = self.settings.drift_window
        return read_drift(self.store, self.models.current, caller, trace, task_type, window=window)

    def champion_errors(self) -> dict[str, Error]:
        """Return the recent prediction errors of every run-time champion, by model name."""
        return champion_errors(self.store, self.models.current, window=self.settings.drift_window)

    def read_modes(self, caller: Caller) -> ModeAnswer:
        """Return the modes and brakes that the caller may see, and the resources that finished jobs saved."""
        return read_modes(self.store, self.feed, caller)

    def set_mode(self, body: ModeBody, caller: Caller) -> ModeChange:
        """Set a mode, unset a mode, or release a brake."""
        champions, default_trace, at = self.models.current.champions, self.settings.trace, self.clock()
        return set_mode(self.store, self.feed, body, caller, champions=champions, default_trace=default_trace, at=at)

    def erase_user(self, caller: Caller, trace: str, user: str, cluster: str | None = None) -> ErasureAnswer:
        """Delete a user's history in one cluster; `cluster` None: in all clusters that the caller may use."""
        return erase_user(self.store, self.log, self.feed, caller, trace, user, cluster, at=self.clock())

    def close(self) -> None:
        """Stop the shadow comparisons with challengers, then close the store."""
        if self.shadow is not None:
            self.shadow.stop()
        self.store.close()

    def _decide(
        self,
        kind: str,
        decide: Callable[[RequestContext, Decided, Call], Answered],
        body: Decided,
        caller: Caller,
        answer_id: str,
    ) -> Answered:
        """Decide on jobs from the call and the newest modes alone, and log the answer."""
        call = self._call(answer_id, body.trace)
        check_jobs(body.jobs, call.trace, caller)
        context = RequestContext(snapshot=self.models.current, learned=self.feed.fresh())
        answered = decide(context, body, call)
        self._keep(kind, context, call, caller, as_json(body), answered)
        return answered

    def _call(self, answer_id: str, trace: str | None) -> Call:
        return Call(answer_id=answer_id, trace=trace or self.settings.trace, now=self.clock())

    def _context(self) -> RequestContext:
        return RequestContext(snapshot=self.models.current, learned=self.feed.learned)

    def _keep(
        self, kind: str, context: RequestContext, call: Call, caller: Caller, body: bytes, answered: Answered
    ) -> None:
        """Log an answer unless logging is off, and queue its jobs for challenger models if there are any."""
        if self.settings.answers_kept:
            types = self.settings.types if kind in (RECOMMENDATION, RESERVATION) else {}
            self.log.put(record_of(kind, context, call, caller, body, answered, types))
        if self.shadow is not None and context.snapshot.challengers:
            self.shadow.offer(context, call)
