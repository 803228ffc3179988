"""Shadow comparisons: predict the jobs of a response with the challenger too, and store both predictions.

Comparisons never change or delay a response: those that do not fit into the queue are dropped and counted.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.run_times import calibrated_run_times
from modelserve.contract.writing import known
from modelserve.store.answers import Comparison
from scheduler_core.types import FloatArray, RunTimes

if TYPE_CHECKING:
    from features.online import JobAsked
    from modelserve.calls.context import RequestContext
    from modelserve.loading.feature_records import Scored
    from modelserve.loading.served import ServedModel

__all__ = ["Shadow"]

WAITING: Final = 64
"""Maximum number of comparisons in the queue; further ones are dropped."""
WAITING_JOBS: Final = 20_000
"""Maximum number of jobs in the queue, which holds their feature rows in memory."""
STOP_S: Final = 5.0
"""Maximum time in seconds that `stop` waits for the running comparison."""

STORED: Final = 200
"""Maximum number of jobs compared in one response; further jobs of the response are skipped."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    answer_id: str
    at: float
    champion: "ServedModel"
    challenger: "ServedModel"
    seen: "Scored"
    asked: "Sequence[JobAsked]"


class Shadow:
    """A bounded queue of comparisons, and a thread that makes them; the thread starts with the first comparison.

    The argument `keep` stores a batch of comparisons. Its exceptions are logged and otherwise ignored.
    """

    def __init__(self, keep: Callable[[Sequence[Comparison]], object]) -> None:
        self._keep = keep
        self._tasks: Queue[_Task | None] = Queue(WAITING)
        self._jobs_waiting = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self.dropped = 0

    def offer(self, context: "RequestContext") -> None:
        """Queue the jobs of a response whose run-time model has a challenger, without blocking."""
        if not context.snapshot.challengers or self._stopped:
            return
        for (champion, asked), seen in zip(context.row_jobs, context.scored, strict=True):
            card = champion.bundle.card
            challenger = context.snapshot.challengers.get(card.name) if card.kind == "runtime" else None
            if challenger is not None:
                self._put(
                    _Task(
                        answer_id=context.answer_id,
                        at=context.now,
                        champion=champion,
                        challenger=challenger,
                        seen=seen,
                        asked=asked,
                    )
                )

    def stop(self) -> None:
        """Empty the queue, and end the thread after the running comparison."""
        self._stopped = True
        try:
            while True:
                self._tasks.get_nowait()
        except Empty:
            self._tasks.put(None)
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _put(self, task: _Task) -> None:
        with self._lock:
            if self._jobs_waiting + len(task.asked) > WAITING_JOBS:
                self.dropped += 1
                return
            try:
                self._tasks.put_nowait(task)
            except Full:
                self.dropped += 1
                return
            self._jobs_waiting += len(task.asked)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                self._compare(task)
            except Exception as error:  # a failing challenger must not stop comparisons with other challengers
                logger.warning("comparison with %s failed: %s", task.challenger.reference, error)
            with self._lock:
                self._jobs_waiting -= len(task.asked)

    def _compare(self, task: _Task) -> None:
        asked = task.asked[:STORED]
        found = task.challenger.look(asked)
        theirs = _run_times(task.challenger, found.rows.matrix, found.base_log_s)
        ours = _run_times(task.champion, task.seen.matrix[:STORED], task.seen.base_log_s[:STORED])
        self._keep(
            [
                Comparison(
                    answer_id=task.answer_id,
                    at=task.at,
                    trace=job.trace,
                    cluster=job.cluster or "",
                    job_id=job.job_id,
                    champion=task.champion.reference,
                    challenger=task.challenger.reference,
                    p50_s=known(ours.p50[i]),
                    p90_s=known(ours.p90[i]),
                    challenger_p50_s=known(theirs.p50[i]),
                    challenger_p90_s=known(theirs.p90[i]),
                )
                for i, job in enumerate(asked)
            ]
        )


def _run_times(model: "ServedModel", matrix: npt.NDArray[np.float32], base_log_s: FloatArray) -> RunTimes:
    return calibrated_run_times(model.bundle.card, model.margins(RUNTIME_TARGET, matrix), base_log_s)
