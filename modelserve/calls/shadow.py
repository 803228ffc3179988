"""Shadow comparisons: predict the jobs of a response with the challenger too, and store both predictions.

Comparisons never change or delay a response: those that do not fit into the queue are dropped and counted.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from features.online import JobAsked
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.run_times import calibrated_run_times
from modelserve.calls.context import RequestContext, finite
from modelserve.loading.served import Scored, ServedModel
from modelserve.store.answers import Comparison
from scheduler_core.types import FloatArray, RunTimes

__all__ = ["Shadow"]

WAITING: Final = 64
"""Maximum number of comparisons in the queue; further ones are dropped."""
WAITING_JOBS: Final = 20_000
"""Maximum number of jobs in the queue, which holds their feature rows in memory."""
STORED: Final = 200
"""Maximum number of jobs compared in one response; further jobs of the response are skipped."""

logger = logging.getLogger(__name__)


class Shadow:
    """A bounded queue of comparisons, and a thread that makes them; the thread starts with the first comparison.

    The argument `keep` stores a batch of comparisons. Its exceptions are logged and otherwise ignored.
    """

    def __init__(self, keep: Callable[[Sequence[Comparison]], object]) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shadow")
        self._waiting = self._jobs_waiting = 0
        self._stopped = False
        self.dropped = 0

    def offer(self, context: RequestContext) -> None:
        """Queue the jobs of a response whose run-time model has a challenger, without blocking."""
        answer = (context.answer_id, context.now)
        for champion, asked, seen in context.scored:
            card = champion.bundle.card
            challenger = context.snapshot.challengers.get(card.name) if card.kind == "runtime" else None
            if challenger is not None:
                compare = partial(_compared, answer, champion, challenger, asked[:STORED], seen)
                self._put(challenger.reference, len(asked), compare)

    def stop(self) -> None:
        """Empty the queue, and end the thread after the running comparison."""
        with self._lock:
            self._stopped = True
        self._thread.shutdown(cancel_futures=True)

    def _put(self, challenger: str, jobs: int, compare: Callable[[], list[Comparison]]) -> None:
        with self._lock:
            if self._stopped:
                return
            if self._waiting >= WAITING or self._jobs_waiting + jobs > WAITING_JOBS:
                self.dropped += 1
                return
            self._waiting, self._jobs_waiting = self._waiting + 1, self._jobs_waiting + jobs
            self._thread.submit(self._run, challenger, jobs, compare)

    def _run(self, challenger: str, jobs: int, compare: Callable[[], list[Comparison]]) -> None:
        try:
            self._keep(compare())
        except Exception as error:  # a failing challenger must not stop comparisons with other challengers
            logger.warning("comparison with %s failed: %s", challenger, error)
        with self._lock:
            self._waiting, self._jobs_waiting = self._waiting - 1, self._jobs_waiting - jobs


def _compared(
    answer: tuple[str, float], champion: ServedModel, challenger: ServedModel, asked: Sequence[JobAsked], seen: Scored
) -> list[Comparison]:
    """Predict jobs with both models; `answer` is the id and the time (Unix, s) of the response."""
    found = challenger.look(asked)
    theirs = _run_times(challenger, found.matrix, found.base_log_s)
    ours = _run_times(champion, seen.matrix[: len(asked)], seen.base_log_s[: len(asked)])
    return [
        Comparison(
            answer_id=answer[0],
            at=answer[1],
            trace=job.trace,
            cluster=job.cluster or "",
            job_id=job.job_id,
            champion=champion.reference,
            challenger=challenger.reference,
            p50_s=finite(ours.p50[i]),
            p90_s=finite(ours.p90[i]),
            challenger_p50_s=finite(theirs.p50[i]),
            challenger_p90_s=finite(theirs.p90[i]),
        )
        for i, job in enumerate(asked)
    ]


def _run_times(model: ServedModel, matrix: npt.NDArray[np.float32], base_log_s: FloatArray) -> RunTimes:
    return calibrated_run_times(model.bundle.card, model.margins(RUNTIME_TARGET, matrix), base_log_s)
