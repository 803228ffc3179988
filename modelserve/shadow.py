"""Challengers in the shadow: the jobs of an answer scored again by the model that would like to answer, and compared.

Nothing of it is ever returned to a caller, and nothing here can hold up or fail an answer: what does not fit in the
queue is dropped and counted. Called by `modelserve.{predictions, recommendations}`.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from modelserve.answered import Call
from modelserve.card import RUNTIME_TARGET
from modelserve.predictor import calibrated_run_times, calibrated_use
from scheduler_core.types import FloatArray

if TYPE_CHECKING:
    from features.online import JobAsked
    from modelserve.scored import Scored
    from modelserve.served import ServedModel
    from modelserve.sight import Sight

WAITING: Final = 64
"""Answers that may wait to be compared; then they are dropped."""
WAITING_JOBS: Final = 20_000
"""Jobs that may wait to be compared: a queue of large calls would hold their matrices."""
RECENT: Final = 10_000
"""Jobs over which a comparison is summed up."""
STOP_S: Final = 5.0
"""Longest that stopping waits for the comparison at work."""

Comparison = tuple[str, float, str, str, int, float, float]
"""Answer, time, champion, challenger, jobs compared, mean log ratio, largest absolute log ratio."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How a challenger's answers lie beside the champion's, over the recent jobs: logs of challenger over champion.

    Run times are compared at p50, use as log1p of each target.
    """

    champion: str
    challenger: str
    jobs: int
    mean_log_ratio: float
    p50_abs_log_ratio: float
    p90_abs_log_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    call: Call
    champion: "ServedModel"
    challenger: "ServedModel"
    seen: "Scored"
    asked: "Sequence[JobAsked]"


class Shadow:
    """A bounded queue of answers, and the one thread that scores them with challengers; it starts with the first.

    `keep` takes what is to be stored, some comparisons at a time; whatever it raises is logged and passed over.
    """

    def __init__(self, keep: Callable[[Sequence[Comparison]], object]) -> None:
        self._keep = keep
        self._tasks: Queue[_Task | None] = Queue(WAITING)
        self._jobs_waiting = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._recent: dict[tuple[str, str], deque[float]] = {}
        self._stopped = False
        self.dropped = 0

    def offer(self, sight: "Sight", call: Call) -> None:
        """Take what an answer's models were shown, where they have challengers; without waiting."""
        if not sight.snapshot.challengers or self._stopped:
            return
        for (champion, asked), seen in zip(sight.shown, sight.scored, strict=True):
            challenger = sight.snapshot.challengers.get(champion.bundle.card.name)
            if challenger is not None:
                self._put(_Task(call=call, champion=champion, challenger=challenger, seen=seen, asked=asked))

    def compared(self) -> list[Compared]:
        """Sum up the recent comparisons, by champion and challenger."""
        with self._lock:
            recent = {pair: np.array(ratios) for pair, ratios in self._recent.items() if ratios}
        return [
            Compared(
                champion=champion,
                challenger=challenger,
                jobs=len(ratios),
                mean_log_ratio=float(ratios.mean()),
                p50_abs_log_ratio=float(np.quantile(np.abs(ratios), 0.5)),
                p90_abs_log_ratio=float(np.quantile(np.abs(ratios), 0.9)),
            )
            for (champion, challenger), ratios in sorted(recent.items())
        ]

    def stop(self) -> None:
        """End the thread after the comparison at work; what still waits is dropped."""
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
            except Exception as error:  # a challenger may fail at anything; that is for its owner to know
                logger.warning("%s was not compared: %s", task.challenger.reference, error)
            with self._lock:
                self._jobs_waiting -= len(task.asked)

    def _compare(self, task: _Task) -> None:
        rows = task.challenger.rows.rows(task.asked, task.challenger.history)
        theirs = log_answers(task.challenger, rows.matrix, rows.reference_log_s)
        ours = log_answers(task.champion, task.seen.matrix, task.seen.reference_log_s)
        both = [target for target in theirs if target in ours]
        ratios = np.concatenate([theirs[target] - ours[target] for target in both])
        ratios = ratios[np.isfinite(ratios)]
        if not len(ratios):
            return
        pair = (task.champion.reference, task.challenger.reference)
        with self._lock:
            self._recent.setdefault(pair, deque(maxlen=RECENT)).extend(ratios.tolist())
        worst = float(np.abs(ratios).max())
        self._keep([(task.call.answer_id, task.call.now, *pair, len(task.asked), float(ratios.mean()), worst)])


def log_answers(model: "ServedModel", matrix: npt.NDArray[np.float32], reference: FloatArray) -> dict[str, FloatArray]:
    """Return a model's calibrated answers in log units, by target (n,): p50 of log run time, log1p of use."""
    card = model.bundle.card
    if card.kind == "runtime":
        times = calibrated_run_times(card, model.margins(RUNTIME_TARGET, matrix), reference)
        return {RUNTIME_TARGET: np.log(times.p50)}
    return {target: np.log1p(calibrated_use(card, target, model.margins(target, matrix))) for target in card.targets}
