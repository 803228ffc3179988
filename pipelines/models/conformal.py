"""Calibration of quantiles by what was missed: static split conformal, and adaptive as jobs end.

Adds an offset in log units to a quantile; fits nothing else. An adaptive offset at a submission has seen only jobs
that ended strictly before it. Called by `training.runtime` and `training.evaluate`.

References: Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World" (2005); Romano, Patterson, Candes,
"Conformalized Quantile Regression" (2019); Gibbs and Candes, "Adaptive Conformal Inference Under Distribution
Shift" (2021), here with feedback that arrives when jobs end.
"""

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from pipelines.models.baselines import rank_quantile
from pipelines.models.metrics import FloatArray

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """How an adaptive offset follows the workload.

    Attributes
    ----------
    window
        Ended jobs whose misses are remembered.
    gain
        Step of the level asked of the window after each ended job; 0 keeps the level at `tau`. Feedback is as late as
        the jobs are long, so large steps overshoot.
    least
        Ended jobs before the offset leaves 0.
    shares
        Shares of the offset to choose from, by the loss they would have had on the jobs of the window: `(1.0,)`
        calibrates always, `(0.0, 0.5, 1.0)` only as far as it has been helping.
    """

    window: int = 8000
    gain: float = 0.0
    least: int = 30
    shares: tuple[float, ...] = (1.0,)


P90_ADAPTATION: Final = Adaptation()
P50_ADAPTATION: Final = Adaptation(shares=(0.0,))
"""Coverage is owed to p90, so its offset is always added; recentring p50 lost on every inner cut."""


def static_offset(log_y: FloatArray, log_q: FloatArray, tau: float) -> float:
    """Return the split-conformal offset: the ceil((n + 1)·tau)-th smallest of y - q; 0 when there is nothing to go by.

    Adding it to q covers at least `tau` of exchangeable rows.

    >>> static_offset(np.array([1.0, 2.0, 3.0, 4.0]), np.zeros(4), 0.5)
    3.0
    """
    n = len(log_y)
    if n == 0:
        return 0.0
    rank = min(int(np.ceil((n + 1) * tau)), n)
    return float(np.partition(log_y - log_q, rank - 1)[rank - 1])


@dataclass(slots=True, kw_only=True)
class AdaptiveOffset:
    """The offset of one quantile, as ended jobs teach it.

    The offset is the quantile, at a level that starts at `tau`, of the last `window` misses y - q. After each ended
    job the level moves by gain·(tau - covered), covered being whether the whole offset of that job's submission held:
    too many misses raise the level, too few lower it.
    """

    tau: float
    adaptation: Adaptation = field(default_factory=Adaptation)
    _level: float = field(init=False)
    _held: deque[tuple[float, list[float]]] = field(init=False, default_factory=deque)
    _ranked: list[float] = field(init=False, default_factory=list)
    _losses: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self._level = self.tau
        self._losses = [0.0] * len(self.adaptation.shares)

    def whole(self) -> float:
        """Return the offset that would calibrate the window, in log units."""
        if len(self._ranked) < self.adaptation.least:
            return 0.0
        return rank_quantile(self._ranked, self._level)

    def share(self) -> float:
        """Return the share of the offset that has lost least over the window; the first of equals."""
        best = min(range(len(self._losses)), key=lambda i: (round(self._losses[i], 9), i))
        return self.adaptation.shares[best]

    def learn(self, miss: float, whole: float) -> None:
        """Take in an ended job: its miss y - q, and what `whole` was at its submission."""
        if len(self._ranked) >= self.adaptation.least:
            covered = 1.0 if miss <= whole else 0.0
            self._level = min(max(self._level + self.adaptation.gain * (self.tau - covered), 0.0), 1.0)
        losses = [self._loss(miss - share * whole) for share in self.adaptation.shares]
        self._losses = [total + loss for total, loss in zip(self._losses, losses, strict=True)]
        self._held.append((miss, losses))
        insort(self._ranked, miss)
        if len(self._held) > self.adaptation.window:
            oldest, gone = self._held.popleft()
            self._ranked.pop(bisect_left(self._ranked, oldest))
            self._losses = [total - loss for total, loss in zip(self._losses, gone, strict=True)]

    def _loss(self, gap: float) -> float:
        return max(self.tau * gap, (self.tau - 1.0) * gap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Offsets by row, as of each submission (n,), and the one that stands after all rows ended or were asked."""

    offsets: FloatArray
    final: float


def adaptive_offsets(
    *,
    submit_us: IntArray,
    end_us: IntArray,
    log_y: FloatArray,
    log_q: FloatArray,
    tau: float,
    adaptation: Adaptation | None = None,
) -> Calibration:
    """Walk submissions and ends in the order of time, and return the offset each submission was given.

    Rows are the calibration rows and the judged rows together, in any order; each answers at its submission and
    teaches at its end. At one instant submissions come before ends. A row never teaches itself an offset.

    Parameters
    ----------
    submit_us, end_us
        Microseconds since the epoch (n,).
    log_y, log_q
        Log run time, and the raw quantile predicted without sight of it (n,). A NaN `log_y` never teaches.
    tau
        The level of the quantile.
    """
    n = len(submit_us)
    state = AdaptiveOffset(tau=tau, adaptation=adaptation or Adaptation())
    misses = (log_y - log_q).tolist()
    wholes, offsets = [0.0] * n, [0.0] * n
    moments = np.concatenate([submit_us, end_us])
    is_end = np.repeat([False, True], n)
    # Ties among ends fall back on the miss, not the row number: shuffling the rows changes nothing.
    order = np.lexsort((np.concatenate([log_y - log_q] * 2), is_end, moments))
    for event in order.tolist():
        if event < n:
            wholes[event] = state.whole()
            offsets[event] = state.share() * wholes[event]
        elif not np.isnan(misses[event - n]):
            state.learn(misses[event - n], wholes[event - n])
    return Calibration(offsets=np.array(offsets, dtype=np.float64), final=state.share() * state.whole())
