"""The feed: what others and this worker stored since the last look, applied to the models and to what was learnt.

It only reads on, in the order of the store's numbers; while the store is away everything stays as it was. Called by
the service: on a timer, after its own feedback, and before each recommendation.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from features.errors import FeatureError
from features.online import GROWTH_ROWS, EndedRun
from modelserve.contract.feedback_rules import STATUS_OF_OUTCOME, teachable_use
from modelserve.errors import StoreError
from modelserve.learning.learned import FeedbackState, Learned
from modelserve.learning.relearning import apply, state_of
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.controls import Brake, Erasure, ModeSet, Reset, controls_between, write_brake
from modelserve.store.finished import Finished, finished_between, past_of

PAST_RUNS: Final = GROWTH_ROWS
"""Finished jobs of each cluster that a model is given when it is loaded, the newest: as many as it could have learnt
since. What came before is in the model's own history once it was trained again."""
PAGE: Final = 5_000
"""Changes that are applied at a time."""
RETRY_S: Final = 1.0
"""How long a store that did not answer is left alone by `fresh`."""

logger = logging.getLogger(__name__)


class Learner(Protocol):
    """The models as the feed knows them: what learns of runs and forgets users (`loading.models.ModelSet`)."""

    def learn(self, runs: Sequence[EndedRun]) -> object:
        """Add runs to the histories of their trace; known ones are passed over."""

    def forget(self, trace: str, user: str, clusters: frozenset[str] | None) -> object:
        """Drop a user's runs from the histories of a trace."""


class Feed:
    """The changes of a store, applied in their order; `learned` is replaced in one assignment.

    `erased` is told of each erasure once the models have forgotten, and again where the store failed it.
    """

    def __init__(
        self,
        store: Store,
        models: Learner,
        settings: ServeSettings,
        *,
        erased: Callable[[Erasure], object] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._models = models
        self._settings = settings
        self._erased = erased
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
        """Apply what is new and return how many changes that were; 0 as well while the store is away."""
        with self._lock:
            return self._attempt(self._read_on) or 0

    def fresh(self) -> Learned:
        """Return what is known, after a look whether there is news: one small question to the store.

        A store that is away is asked again after `RETRY_S`, so that it costs a recommendation little.
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
        """Return the newest finished jobs of a trace, as histories take them; none while the store is away.

        What is missed here is made up for by a later `poll`.
        """
        try:
            return [ended_run(row) for row in past_of(self._store, trace, each=PAST_RUNS)]
        except StoreError as error:
            self._fail(error)
            self._unfed.add(trace)
            return []

    def tombstones(self, trace: str) -> tuple[Erasure, ...]:
        """Return the users of a trace whose runs up to a moment are to be forgotten by every model that is loaded."""
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
            logger.warning("going on with what was learnt so far: %s", error)
        self.trouble = str(error)
        self._silent_until = self._monotonic() + RETRY_S

    def _start(self) -> int:
        """Rebuild the state from all that is stored; the models take their runs as they are loaded, by `past`."""
        upto = self._store.seq()
        self._erasures = tuple(controls_between(self._store, Erasure, 0, upto))
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
        while self._unstruck:
            self._erased(self._unstruck[0])
            self._unstruck = self._unstruck[1:]
        self._write_brakes()
        return end - begin

    def _apply_between(self, after: int, upto: int) -> None:
        changes: list[Finished | ModeSet | Reset | Brake | Erasure] = [
            *finished_between(self._store, after, upto),
            *controls_between(self._store, ModeSet, after, upto),
            *controls_between(self._store, Reset, after, upto),
            *controls_between(self._store, Brake, after, upto),
            *controls_between(self._store, Erasure, after, upto),
        ]
        changes.sort(key=lambda change: change.seq)
        erased = [change for change in changes if isinstance(change, Erasure)]
        # What a user's jobs taught goes with them, and only what is left can tell what that leaves.
        relearnt = state_of(self._store, self._settings, upto) if erased else None
        # Before the models forget: one that is loaded meanwhile has to know. An attempt may be the second one.
        known = {each.seq for each in self._erasures}
        new = tuple(each for each in erased if each.seq not in known)
        self._erasures += new
        self._unstruck += new
        self._tell_models(changes)
        if relearnt is None:
            for change in changes:
                if not isinstance(change, Erasure):
                    apply(self._state, change)
        else:
            self._state = relearnt
        self.learned = replace(self._state.frozen(), seq=upto)
        self._state.seq = upto

    def _tell_models(self, changes: Sequence[Finished | ModeSet | Reset | Brake | Erasure]) -> None:
        runs: list[EndedRun] = []
        for change in changes:
            if isinstance(change, Finished):
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
        except FeatureError as error:  # what one history cannot take must not stop all that comes after
            logger.error("a history did not take %d finished jobs: %s", len(runs), error)

    def _forget(self, erasure: Erasure) -> None:
        try:
            self._models.forget(erasure.trace, erasure.user, frozenset({erasure.cluster}) if erasure.cluster else None)
        except FeatureError as error:  # as above; a model that is loaded anew forgets by the mark
            logger.error("a history did not forget a user of %s: %s", erasure.trace, error)

    def _write_brakes(self) -> None:
        # Kept apart from the jobs that caused them: those may be erased, the brake stands until it is released.
        for (trace, cluster, task_type), stop in list(self._state.unwritten.items()):
            brake = Brake(trace=trace, cluster=cluster, task_type=task_type, why=stop.why, at=stop.since)
            if write_brake(self._store, brake, seen=self._state.seq):
                del self._state.unwritten[trace, cluster, task_type]
            # Else what is read next takes it away.


def ended_run(row: Finished) -> EndedRun:
    """Return a finished job as histories take it, with the use that it may teach."""
    use = teachable_use(row)
    return EndedRun(
        trace=row.trace,
        cluster=row.cluster,
        job_id=row.job_id,
        role=row.role,
        user=row.user,
        vc=row.vc,
        group=row.group,
        submit_us=row.submit_us,
        start_us=row.start_us,
        end_us=row.end_us,
        run_s=row.run_s,
        status=STATUS_OF_OUTCOME[row.outcome].value,
        instances=row.instances,
        req_gpus=_or_nan(row.req_gpus),
        used_cpu_cores=_or_nan(use.cpu_cores),
        used_gpus=_or_nan(use.gpus),
        mem_max_gib=_or_nan(use.mem_max_gib),
        gpu_mem_max_gib=_or_nan(use.gpu_mem_max_gib),
        measured=use.measured,
    )


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
