"""Conformal calibration of quantiles: a static offset, and an adaptive one that updates as jobs end.

An offset in log units is added to a quantile. The adaptive offset at a submission depends only on jobs that ended
strictly before it. Called by `pipelines.models.fitted` and `peaks`.

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
    """Parameters of an adaptive offset.

    Attributes
    ----------
    window
        Number of ended jobs in the window of residuals.
    gain
        Step of the quantile level after each ended job; 0 keeps the level at `tau`. Long jobs give late feedback, so
        large steps overshoot.
    least
        Minimum of ended jobs; below it the offset is 0.
    shares
        Candidate shares of the offset; the one with the least loss on the window is applied. `(1.0,)` always applies
        the whole offset, `(0.0, 0.5, 1.0)` only as much as has reduced the loss.
    """

    window: int = 8000
    gain: float = 0.0
    least: int = 30
    shares: tuple[float, ...] = (1.0,)


P90_ADAPTATION: Final = Adaptation()
P50_ADAPTATION: Final = Adaptation(shares=(0.0,))
"""p90 promises coverage, so its offset always applies in full; recentring p50 lost on every inner cut."""


def static_offset(log_y: FloatArray, log_q: FloatArray, tau: float) -> float:
    """Return the split-conformal offset: the ceil((n + 1)·tau)-th smallest of y - q; 0 without rows.

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
    """The adaptive offset of one quantile.

    The offset is a quantile of the last `window` residuals y - q, at a level that starts at `tau`. After each ended job
    the level moves by gain·(tau - covered), where `covered` is 1 if the job ended within its quantile plus offset: too
    many misses raise the level, too few lower it.
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
        """Return the full offset that calibrates the window, in log units."""
        if len(self._ranked) < self.adaptation.least:
            return 0.0
        return rank_quantile(self._ranked, self._level)

    def share(self) -> float:
        """Return the share of the offset with the least loss over the window; the first on ties."""
        best = min(range(len(self._losses)), key=lambda i: (round(self._losses[i], 9), i))
        return self.adaptation.shares[best]

    def learn(self, miss: float, whole: float) -> None:
        """Add an ended job: its residual y - q, and the full offset at its submission."""
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
    """Offsets by row, as of each submission (n,), and the final one after all rows."""

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
    """Walk submissions and ends in time order; return the offset in force at each submission.

    Rows are the calibration rows and the judged rows together, in any order. A row reads the offset at its submission
    and updates it at its end. At equal times submissions come first, so no row influences its own offset.

    Parameters
    ----------
    submit_us, end_us
        Microseconds since the epoch (n,).
    log_y, log_q
        Log run time, and the raw quantile predicted without it (n,). Rows with NaN `log_y` never update the offset.
    tau
        The level of the quantile.
    """
    n = len(submit_us)
    state = AdaptiveOffset(tau=tau, adaptation=adaptation or Adaptation())
    misses = (log_y - log_q).tolist()
    wholes, offsets = [0.0] * n, [0.0] * n
    moments = np.concatenate([submit_us, end_us])
    is_end = np.repeat([False, True], n)
    # Ties among ends are ordered by residual, not by row number, so shuffling rows changes nothing.
    order = np.lexsort((np.concatenate([log_y - log_q] * 2), is_end, moments))
    for event in order.tolist():
        if event < n:
            wholes[event] = state.whole()
            offsets[event] = state.share() * wholes[event]
        elif not np.isnan(misses[event - n]):
            state.learn(misses[event - n], wholes[event - n])
    return Calibration(offsets=np.array(offsets, dtype=np.float64), final=state.share() * state.whole())
