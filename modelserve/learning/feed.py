"""The feed: apply the changes stored by all workers to this worker's histories and learnt state.

Changes (feedback, modes, brakes) are applied in the order of their numbers. While the store is unavailable, the state
stays as it is. Called on a timer, after feedback and mode changes, and before each recommendation.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np

from features.errors import FeatureError
from features.online import GROWTH_ROWS, EndedRun
from modelserve.contract.feedback_rules import STATUS_OF_OUTCOME, teachable_use
from modelserve.errors import StoreError
from modelserve.learning.learned import FeedbackState, Learned, state_of
from modelserve.loading.models import ModelSet
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.changes import Brake, changes_between, write_brake
from modelserve.store.finished import BELIEVED, Finished, Stored, past_of, scored_between

__all__ = ["Feed"]

PAST_RUNS: Final = GROWTH_ROWS
"""Maximum number of newest finished jobs per cluster that are added to the history of a newly loaded model.

A history cannot hold more added runs. Earlier jobs are included when the model is trained again.
"""
WEIGHING_RUNS: Final = 20_000
"""Maximum number of newest finished jobs from which weights are learnt at once; earlier jobs no longer matter."""
PAGE: Final = 5_000
"""Maximum number of changes read and applied at once."""
RETRY_S: Final = 1.0
"""Time in seconds after a failure of the store during which `fresh` does not query it."""

logger = logging.getLogger(__name__)


class Feed:
    """Reader of the changes in a store, which applies them to the models and to the learnt state.

    `learned` is the learnt state; it is replaced in one assignment, so threads may read it without a lock.
    """

    def __init__(
        self,
        store: Store,
        models: ModelSet,
        settings: ServeSettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._models = models
        self._settings = settings
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._state = FeedbackState(settings=settings)
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
        self._write_brakes()
        return end - begin

    def _scored(self, model: str, after: int, upto: int) -> Sequence[Stored]:
        return scored_between(self._store, model, after, upto, limit=WEIGHING_RUNS)

    def _apply_between(self, after: int, upto: int) -> None:
        changes = list(changes_between(self._store, after, upto))
        runs = [ended_run(each) for each in changes if isinstance(each, Finished) and each.kind == BELIEVED]
        try:
            self._models.learn(runs)
        except FeatureError as error:  # a failing history must not stop later changes
            logger.error("%d finished jobs could not be added to a history: %s", len(runs), error)
        for change in changes:
            self._state.apply(change)
        self.learned = replace(self._state.frozen(), seq=upto)
        self._state.seq = upto

    def _write_brakes(self) -> None:
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
