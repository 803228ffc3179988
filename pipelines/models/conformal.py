"""Conformal calibration of predicted quantiles: a static offset, and an adaptive offset that updates as jobs end.

The offset, in log units, is added to the predicted quantile. The adaptive offset of a job depends only on jobs that
ended strictly before its submission. Called by `pipelines.models.fitted` and `peaks`.

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
        Number of residuals kept: those of the jobs that ended last.
    gain
        Step by which the quantile level moves after each ended job; 0 keeps it at `tau`. Long jobs give late
        feedback, so large steps overshoot.
    least
        Minimum number of ended jobs below which the offset is 0.
    shares
        Candidate factors on the offset; the factor with the least loss on the window is applied. `(1.0,)` always
        applies the full offset; `(0.0, 0.5, 1.0)` applies none, half or all of it.
    """

    window: int = 8000
    gain: float = 0.0
    least: int = 30
    shares: tuple[float, ...] = (1.0,)


P90_ADAPTATION: Final = Adaptation()
"""Default adaptation of p90: its offset is always applied in full, so that p90 reaches its coverage. p50 has none,
because an offset increased its loss at every cut tried on training data."""


def static_offset(log_y: FloatArray, log_q: FloatArray, tau: float) -> float:
    """Return the split-conformal offset: the ceil((n + 1)·tau)-th smallest residual y - q; 0 without rows.

    If rows are exchangeable, at least a share `tau` of new rows has y <= q + offset.

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
    """The adaptive calibration offset of one quantile.

    The offset is a quantile of the last `window` residuals y - q, at a level that starts at `tau`. After each ended job
    the level moves by gain·(tau - covered), where `covered` is 1 if y was at most q plus the offset, else 0. So too low
    coverage raises the level, and too high coverage lowers it.
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
        """Return the full offset in log units: the quantile of the residuals in the window."""
        if len(self._ranked) < self.adaptation.least:
            return 0.0
        return rank_quantile(self._ranked, self._level)

    def share(self) -> float:
        """Return the factor on the offset with the least loss over the window; of equal ones, the first in `shares`."""
        best = min(range(len(self._losses)), key=lambda i: (round(self._losses[i], 9), i))
        return self.adaptation.shares[best]

    def learn(self, miss: float, whole: float) -> None:
        """Add an ended job with its residual y - q (`miss`) and the full offset at its submission (`whole`)."""
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
    """The offset in force at each submission (n,), and the final offset after all rows."""

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
    """Return the offset in force at each submission, by walking through submissions and ends in time order.

    The rows are the calibration rows and the judged rows together, in any order. A job gets the offset at its
    submission and updates it at its end. At equal times submissions come first, so no job influences its own offset.

    Parameters
    ----------
    submit_us, end_us
        Microseconds since the epoch (n,).
    log_y, log_q
        Log run time, and its predicted quantile before calibration (n,), from a model not trained on the row. Rows with
        NaN `log_y` do not update the offset.
    tau
        The level of the quantile.
    """
    n = len(submit_us)
    state = AdaptiveOffset(tau=tau, adaptation=adaptation or Adaptation())
    misses = (log_y - log_q).tolist()
    wholes, offsets = [0.0] * n, [0.0] * n
    moments = np.concatenate([submit_us, end_us])
    is_end = np.repeat([False, True], n)
    # Simultaneous ends are ordered by residual, not by row number, so the order of the rows does not matter.
    order = np.lexsort((np.concatenate([log_y - log_q] * 2), is_end, moments))
    for event in order.tolist():
        if event < n:
            wholes[event] = state.whole()
            offsets[event] = state.share() * wholes[event]
        elif not np.isnan(misses[event - n]):
            state.learn(misses[event - n], wholes[event - n])
    return Calibration(offsets=np.array(offsets, dtype=np.float64), final=state.share() * state.whole())
