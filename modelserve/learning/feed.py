"""The feed: apply the changes stored by all workers to this worker's histories and learnt state; and erasures.

Changes (feedback, modes, brakes, erasures) are applied in the order of their numbers. While the store is unavailable,
the state stays as it is. Called on a timer, after feedback and mode changes, and before each recommendation.

An erasure deletes a user's finished jobs and logged responses. Because the store records it, every worker removes the
user's runs from its histories, and models loaded later drop the user's jobs submitted up to it. A report sent again
afterwards is stored as new.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from pydantic_core import to_json

from features.errors import FeatureError
from features.online import GROWTH_ROWS, EndedRun
from modelserve.callers import Caller
from modelserve.contract.feedback import ErasureAnswer
from modelserve.contract.feedback_rules import STATUS_OF_OUTCOME, teachable_use
from modelserve.errors import BadRequest, StoreError
from modelserve.learning.learned import FeedbackState, Learned, state_of
from modelserve.loading.models import ModelSet
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.answer_log import REFUSED_S, AnswerLog
from modelserve.store.answers import UNREADABLE, AnswerRecord, answers_between, delete_answers
from modelserve.store.changes import Brake, Change, Erasure, changes_between, write_brake, write_erasures
from modelserve.store.finished import BELIEVED, Finished, Stored, past_of, scored_between

__all__ = ["Feed", "erase_user"]

PAST_RUNS: Final = GROWTH_ROWS
"""Maximum number of newest finished jobs per cluster that are added to the history of a newly loaded model.

A history cannot hold more added runs. Earlier jobs are included when the model is trained again.
"""
WEIGHING_RUNS: Final = 20_000
"""Maximum number of newest finished jobs from which weights are learnt at once. Earlier ones have no influence left."""
PAGE: Final = 5_000
"""Maximum number of changes read and applied at once."""
RETRY_S: Final = 1.0
"""Time in seconds after a failure of the store during which `fresh` does not query it."""

logger = logging.getLogger(__name__)


class Feed:
    """Reader of the changes in a store, which applies them to the models and to the learnt state.

    `learned` is the learnt state; it is replaced in one assignment, so threads may read it without a lock. After the
    models dropped the runs of an erased user, answers that `log` wrote late are deleted; if that fails with
    `StoreError`, the next poll repeats it.
    """

    def __init__(
        self,
        store: Store,
        models: ModelSet,
        settings: ServeSettings,
        log: AnswerLog,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._models = models
        self._settings = settings
        self._log = log
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._state = FeedbackState(settings=settings)
        self._erasures: tuple[Erasure, ...] = ()
        self._unstruck: tuple[Erasure, ...] = ()
        self._unfed: set[str] = set()
        self._silent_until = -np.inf
        self.trouble: str | None = None
        self.learned: Learned = self._state.frozen()
        with self._lock:
            self._attempt(self._start)

    def poll(self) -> int:
        """Apply the changes since the last poll and return their number; 0 while the store is unavailable."""
        with self._lock:
            return self._attempt(self._read_on) or 0

    def fresh(self) -> Learned:
        """Return the learnt state after applying new changes, if one small query finds any.

        For `RETRY_S` seconds after a failure the store is not queried, so that recommendations stay fast.
        """
        if self._monotonic() >= self._silent_until:
            try:
                seq = self._store.seq()
            except StoreError as error:
                self._fail(error)
            else:
                if seq != self.learned.seq:
                    self.poll()
        return self.learned

    def past(self, trace: str) -> Iterable[EndedRun]:
        """Return the newest finished jobs of a trace as runs for a new history.

        While the store is unavailable, none are returned; the next successful `poll` then adds them.
        """
        try:
            return [ended_run(row) for row in past_of(self._store, trace, each=PAST_RUNS)]
        except StoreError as error:
            self._fail(error)
            self._unfed.add(trace)
            return []

    def tombstones(self, trace: str) -> tuple[Erasure, ...]:
        """Return the erasures of a trace, for newly loaded models to drop the runs of these users."""
        return tuple(each for each in self._erasures if each.trace == trace)

    def _attempt(self, work: Callable[[], int]) -> int | None:
        try:
            done = work()
        except StoreError as error:
            self._fail(error)
            return None
        self.trouble = None
        return done

    def _fail(self, error: StoreError) -> None:
        if self.trouble is None:
            logger.warning("store unavailable, going on with the state learnt so far: %s", error)
        self.trouble = str(error)
        self._silent_until = self._monotonic() + RETRY_S

    def _start(self) -> int:
        """Build the learnt state from all stored changes; models get finished jobs from `past` when they are loaded."""
        upto = self._store.seq()
        changes = changes_between(self._store, 0, upto, Erasure)
        self._erasures = tuple(each for each in changes if isinstance(each, Erasure))
        self._state = state_of(self._store, self._settings, upto)
        self.learned = self._state.frozen()
        return upto

    def _read_on(self) -> int:
        for trace in list(self._unfed):
            self._models.learn([ended_run(row) for row in past_of(self._store, trace, each=PAST_RUNS)])
            self._unfed.discard(trace)
        begin, end = self._state.seq, self._store.seq()
        while self._state.seq < end:
            self._apply_between(self._state.seq, min(self._state.seq + PAGE, end))
        self._models.weigh(self._scored, end)
        while self._unstruck:
            _strike_late(self._store, self._log, self._unstruck[0])
            self._unstruck = self._unstruck[1:]
        self._write_brakes()
        return end - begin

    def _scored(self, model: str, after: int, upto: int) -> Sequence[Stored]:
        return scored_between(self._store, model, after, upto, limit=WEIGHING_RUNS)

    def _apply_between(self, after: int, upto: int) -> None:
        changes = list(changes_between(self._store, after, upto))
        erased = [change for change in changes if isinstance(change, Erasure)]
        # The state cannot unlearn a user, so after an erasure it is rebuilt from the changes left in the store.
        relearnt = state_of(self._store, self._settings, upto) if erased else None
        if erased:
            self._models.reset_weights()
        # Models loaded from now on drop these users (`tombstones`). Skip erasures that a failed attempt already noted.
        known = {each.seq for each in self._erasures}
        new = tuple(each for each in erased if each.seq not in known)
        self._erasures += new
        self._unstruck += new
        self._update_models(changes)
        if relearnt is not None:
            self._state = relearnt
        else:
            for change in changes:
                self._state.apply(change)
        self.learned = replace(self._state.frozen(), seq=upto)
        self._state.seq = upto

    def _update_models(self, changes: Sequence[Change]) -> None:
        runs: list[EndedRun] = []
        for change in changes:
            if isinstance(change, Finished) and change.kind == BELIEVED:
                runs.append(ended_run(change))
            elif isinstance(change, Erasure):
                self._teach(runs)
                runs = []
                self._forget(change)
        if runs:
            self._teach(runs)

    def _teach(self, runs: Sequence[EndedRun]) -> None:
        try:
            self._models.learn(runs)
        except FeatureError as error:  # a failing history must not stop later changes
            logger.error("%d finished jobs could not be added to a history: %s", len(runs), error)

    def _forget(self, erasure: Erasure) -> None:
        try:
            self._models.forget(erasure.trace, erasure.user, frozenset({erasure.cluster}) if erasure.cluster else None)
        except FeatureError as error:  # do not stop later changes; models loaded later drop the runs
            logger.error("a user of %s could not be removed from a history: %s", erasure.trace, error)

    def _write_brakes(self) -> None:
        # A brake is stored as a change of its own, so that it remains if the jobs that caused it are erased.
        for scope, stop in list(self._state.unwritten.items()):
            trace, cluster, task_type, user, group = scope
            brake = Brake(
                trace=trace, cluster=cluster, task_type=task_type, user=user, group=group, why=stop.why, at=stop.since
            )
            if write_brake(self._store, brake, seen=self._state.seq):
                del self._state.unwritten[scope]
            # Otherwise another worker set or released this brake meanwhile; the next poll applies that change.


def ended_run(row: Finished) -> EndedRun:
    """Convert a finished job to a run for histories, with only the measurements that may be learnt from."""
    use = teachable_use(row)
    numbers = {
        "req_cpu_cores": row.req_cpu_cores,
        "req_mem_gib": row.req_mem_gib,
        "req_gpus": row.req_gpus,
        "used_cpu_cores": use.cpu_cores,
        "used_gpus": use.gpus,
        "mem_max_gib": use.mem_max_gib,
        "gpu_mem_max_gib": use.gpu_mem_max_gib,
    }
    run: dict[str, Any] = {each.name: getattr(row, each.name, None) for each in fields(EndedRun)}  # columns of the job
    run |= {name: np.nan if value is None else value for name, value in numbers.items()}
    run |= {"status": STATUS_OF_OUTCOME[row.outcome].value, "measured": use.measured}
    return EndedRun(**run)


def erase_user(
    store: Store, log: AnswerLog, feed: Feed, caller: Caller, trace: str, user: str, cluster: str | None, *, at: float
) -> ErasureAnswer:
    """Delete a user's jobs and logged responses in one cluster; without `cluster`, in all that the caller may access.

    `at` is the time of the erasure (Unix, s). The call may be repeated.
    """
    if any("\x00" in name for name in (trace, user, cluster or "")):
        raise BadRequest("user: found a NUL character, expected a name without one")
    clusters = caller.clusters if cluster is None else frozenset({cluster})
    for each in clusters or (None,):
        caller.check_reach(trace, each, field="user")
    marks = [
        Erasure(trace=trace, cluster=each, user=user, before_us=round(at * 1e6), caller=caller.name, at=at)
        for each in (sorted(clusters) if clusters is not None else [""])
    ]
    log.flush()  # so that responses still in the write queue are deleted and counted too
    gone = write_erasures(store, marks)
    named = [each.answer_id for each in answers_between(store, None, None) if any(_names(mark, each) for mark in marks)]
    answers = delete_answers(store, named)
    feed.poll()
    return ErasureAnswer(
        trace=trace,
        user=user,
        clusters=None if clusters is None else tuple(sorted(clusters)),
        before=datetime.fromtimestamp(at, tz=UTC),
        feedback=gone,
        answers=answers,
    )


def _strike_late(store: Store, log: AnswerLog, erasure: Erasure) -> None:
    """Delete logged answers about an erased user that were given before the erasure but logged after it."""
    log.refuse(lambda record: record.at <= erasure.at and _names(erasure, record))
    late = answers_between(store, erasure.at - REFUSED_S, erasure.at)
    delete_answers(store, [each.answer_id for each in late if _names(erasure, each)])


def _names(erasure: Erasure, record: AnswerRecord) -> bool:
    """Return whether a logged call has a job of the erased user; the whole record is then deleted."""
    mentioned = to_json(erasure.user) in record.context
    if not mentioned and b"\\" not in record.context:  # without escapes, a text search finds every user name
        return False
    try:
        body = json.loads(record.context)["body"]  # the body of every logged call has `jobs`
        default = body.get("trace") or record.trace
        return any(
            job.get("user") == erasure.user
            and (job.get("trace") or default) == erasure.trace
            and erasure.cluster in ("", job.get("cluster") or body.get("cluster"))
            for job in (*body["jobs"], *body.get("running", ()))
        )
    except UNREADABLE:
        return mentioned  # unknown format: delete rather than keep
