"""The service: settings, models, store, answer log and feedback feed in one object, with a method for each call.

This module uses no HTTP and starts no thread or process.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from modelserve.bundle.routing_policy import RoutingPolicy, read_routing_policy
from modelserve.bundle.served import ServedModel
from modelserve.callers import Caller, check_jobs
from modelserve.calls.catalogue import card_of, importances_of, list_models, recent_recommendations
from modelserve.calls.context import Answered, RequestContext, record_of
from modelserve.calls.explanations import explain_job, what_if
from modelserve.calls.placements import explained, placed, routed
from modelserve.calls.plans import holds, plans
from modelserve.calls.predictions import predicted
from modelserve.calls.recommendations import recommended
from modelserve.calls.reservations import reserved
from modelserve.calls.schedule import scheduled
from modelserve.contract.calls import PREDICT, CallShape
from modelserve.contract.feedback import DriftAnswer, Error, FeedbackAnswer, FeedbackBody, ModeAnswer, ModeChange
from modelserve.contract.jobs import RecentAnswer
from modelserve.contract.models import CardAnswer, ImportancesAnswer, ModelsAnswer
from modelserve.contract.requests import ModeBody, PredictBody
from modelserve.learning.drift import champion_errors, read_drift
from modelserve.learning.feed import Feed
from modelserve.learning.feedback import take_feedback
from modelserve.learning.modes import read_modes, set_mode
from modelserve.loading.models import ModelSet
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.answers import AnswerLog

__all__ = ["DECISIONS", "Service", "open_service"]

DECISIONS: Final[Mapping[str, Callable[[RequestContext, Any], Answered]]] = {  # Any: each has a body of its own
    "predict": predicted,
    "recommend": recommended,
    "reserve": reserved,
    "place": placed,
    "schedule": scheduled,
    "explain_pending": explained,
    "route": routed,
    "plan": plans,
    "hold": holds,
    "explain": explain_job,
    "what_if": what_if,
}
"""The calls that decide on or explain jobs, by the function in the table of calls."""

NEWEST_FEEDBACK: Final = frozenset({"recommend", "schedule", "reserve", "plan", "hold"})
"""Decisions before which feedback that is new in the store is applied to the models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts of the service, and its calls as methods; `clock` returns Unix time in seconds."""

    settings: ServeSettings
    models: ModelSet
    store: Store
    log: AnswerLog
    feed: Feed
    routing: RoutingPolicy | None = None
    clock: Callable[[], float] = time.time

    def decide(
        self, of: CallShape[Any], body: Any, caller: Caller, *, answer_id: str = "", call_json: bytes = b""
    ) -> Answered:
        """Answer a call about jobs (`DECISIONS`), and log the answer; `call_json` is the body as received."""
        trace = body.trace or self.settings.trace
        rows = (body,) if of.of_call else of.jobs_of(body)
        check_jobs(rows, trace, caller, field="call" if of.of_call else of.jobs)
        learned = self.feed.fresh() if of.function in NEWEST_FEEDBACK else self.feed.learned
        context = RequestContext(
            snapshot=self.models.current,
            learned=learned,
            answer_id=answer_id,
            trace=trace,
            now=self.clock(),
            types=self.settings.types,
            routing=self.routing,
        )
        answered = DECISIONS[of.function](context, body)
        if of.kind:
            self._keep(of.kind, context, caller, call_json or body, answered)
        return answered

    def score(self, model: ServedModel, body: PredictBody, caller: Caller, *, answer_id: str) -> Answered:
        """Predict all jobs with one model, whatever their type, and log the answer."""
        card = model.bundle.card
        for i, job in enumerate(body.jobs):
            check_jobs((job,), card.trace, caller, field=f"row {i}")
        context = RequestContext(
            snapshot=replace(self.models.current, champions={card.name: model}, failures={}),
            learned=self.feed.learned,
            answer_id=answer_id,
            trace=card.trace,
            now=self.clock(),
        )
        answered = predicted(context, body)
        self._keep(PREDICT.kind, context, caller, body, answered)
        return answered

    def recent_recommendations(
        self, caller: Caller, trace: str | None = None, task_type: str | None = None
    ) -> RecentAnswer:
        """Return the newest logged recommendations for traces and clusters that the caller may use."""
        return recent_recommendations(self.store, caller, trace, task_type)

    def list_models(self, caller: Caller) -> ModelsAnswer:
        """Return the models that the caller may use."""
        return list_models(self.models.current, caller)

    def importances_of(self, caller: Caller, name: str) -> ImportancesAnswer:
        """Return a model's features, the most important first."""
        return importances_of(self.models.current, caller, name)

    def card_of(self, caller: Caller, name: str) -> CardAnswer:
        """Return a model's card."""
        return card_of(self.models.current, caller, name)

    def take_feedback(self, body: FeedbackBody, caller: Caller) -> FeedbackAnswer:
        """Store the reports of finished jobs, and learn from them."""
        default_trace, at = self.settings.trace, self.clock()
        snapshot = self.models.current
        if not caller.believed:
            self.log.flush()  # reports may name answers that wait to be logged
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

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def _keep(self, kind: str, context: RequestContext, caller: Caller, body: Any, answered: Answered) -> None:
        """Log an answer unless logging is off; `body` is the body of the call, as JSON if it was received so."""
        if self.settings.answers_kept:
            text = body if isinstance(body, bytes) else body.model_dump_json(exclude_defaults=True).encode()
            self.log.put(record_of(kind, context, caller, text, answered))


def open_service(
    settings: ServeSettings, *, clock: Callable[[], float] = time.time, store_inode: int | None = None
) -> Service:
    """Open the store, load the models in the folder, and read the stored feedback; `store_inode` as in `Store.open`."""
    store = Store.open(settings.store, inode=store_inode)
    feeds: list[Feed] = []
    models = ModelSet(
        settings.bundles,
        past=lambda trace: feeds[0].past(trace),  # called later: the feed needs the models, so it is created below
        clock=clock,
    )
    log = AnswerLog(store, settings.answers_kept, settings.answers_kept_bytes)
    feed = Feed(store, models, settings)
    feeds.append(feed)
    models.refresh()
    feed.poll()
    return Service(
        settings=settings,
        models=models,
        store=store,
        log=log,
        feed=feed,
        routing=None if settings.sites_policy is None else read_routing_policy(settings.sites_policy),
        clock=clock,
    )
