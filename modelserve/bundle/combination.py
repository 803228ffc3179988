"""Combine forecasts of run time by weights learnt from ended jobs, and widen p90 by an offset learnt from them.

The same compiled functions serve training, which walks through the jobs of a trace in time order, and the service,
which learns from feedback.

References: Cesa-Bianchi and Lugosi, "Prediction, Learning, and Games" (2006), chapter 2, for exponentially weighted
forecasts; Gibbs and Candes, "Adaptive Conformal Inference Under Distribution Shift" (2021), for the tracked offset.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from features.references import HISTORY_FORECASTS
from modelserve.bundle.card import FITTED, TYPICAL, WIDEST, CombinationState
from modelserve.bundle.trees.compiled import jitted
from scheduler_core.types import FloatArray, IntArray

__all__ = ["Combination", "forecasts_of"]

LEVELS: Final = (0.5, 0.9)

RATE: Final = 0.1
"""Learning rate: a weight is the prior weight times exp(-RATE * discounted loss / mean loss of the prior mixture)."""
DISCOUNT: Final = 0.99
"""Factor on all earlier losses at each ended job, so that the last few hundred ended jobs count."""
STEP: Final = 0.1
"""Step of the p90 offset in log units: an ended job above p90 raises it by 0.9 steps, any other lowers it by 0.1."""
LEAST_LOSS: Final = 1e-3
"""Added to the mean loss, so that exact forecasts do not divide by zero."""

PRIOR_ROWS: Final = (2000.0, 6000.0)
"""Number of training rows, for p50 and p90, with which the fitted members together get half of the prior weight.

With few rows, most weight is with the history. A p90 needs more rows, because only a tenth of them lies above it.
"""

_NO_ENDS: Final[FloatArray] = np.empty(0)
_FIRST_ENDS: Final[IntArray] = np.array([1])
"""Events of `_walk` in which one row ends, and nothing else happens."""
_COUNT, _OFFSET, _RAW, _WIDENED = range(4)
"""Positions after the losses in a state: discounted number of jobs, p90 offset, losses of p90 without and with it."""


@jitted(None)
def _pinball(gap, level):  # type: ignore[no-untyped-def]  # numba infers the types
    return max(level * gap, (level - 1.0) * gap)


@jitted(None)
def _weights(state, prior, place, weights):  # type: ignore[no-untyped-def]  # as above
    """Fill in the members' weights for the quantile at `place`; before the first ended job, the prior weights."""
    members = prior.shape[1]
    first = place * (members + 1)
    count = state[2 * (members + 1) + _COUNT]
    scale = state[first + members] / max(count, 1.0) + LEAST_LOSS
    least, total = np.inf, 0.0
    for k in range(members):
        if prior[place, k] > 0.0:
            least = min(least, state[first + k])
    for k in range(members):
        weights[k] = 0.0
        if prior[place, k] > 0.0:
            weights[k] = prior[place, k] * np.exp(-RATE * (state[first + k] - least) / scale)
        total += weights[k]
    for k in range(members):
        weights[k] /= total


@jitted(None)
def _widening(state, members):  # type: ignore[no-untyped-def]  # as above
    """Return the p90 offset times its weight, which its losses with and without the offset give."""
    at = 2 * (members + 1)
    raw, widened = state[at + _RAW], state[at + _WIDENED]
    scale = raw / max(state[at + _COUNT], 1.0) + LEAST_LOSS
    return state[at + _OFFSET] / (1.0 + np.exp(min(RATE * (widened - raw) / scale, 500.0)))


@jitted(None)
def _combined(state, prior, forecasts, weights, answer):  # type: ignore[no-untyped-def]  # as above
    """Fill in p50 and p90 (2,) of one job before sorting, from its forecasts (members, 2)."""
    members = len(forecasts)
    for place in range(2):
        _weights(state, prior, place, weights)
        total = 0.0
        for k in range(members):
            total += weights[k] * forecasts[k, place]
        answer[place] = total
    answer[1] += _widening(state, members)


@jitted(None)
def _learn(state, prior, forecasts, log_y, weights, answer):  # type: ignore[no-untyped-def]  # as above
    """Update the state with one ended job: its forecasts (members, 2) and its log run time."""
    members = len(forecasts)
    at = 2 * (members + 1)
    _combined(state, prior, forecasts, weights, answer)
    p90, offset = answer[1] - _widening(state, members), state[at + _OFFSET]
    state[at + _RAW] = state[at + _RAW] * DISCOUNT + _pinball(log_y - p90, LEVELS[1])
    state[at + _WIDENED] = state[at + _WIDENED] * DISCOUNT + _pinball(log_y - p90 - offset, LEVELS[1])
    covered = 1.0 if log_y <= p90 + offset else 0.0
    state[at + _OFFSET] = min(max(offset + STEP * (LEVELS[1] - covered), 0.0), WIDEST)
    state[at + _COUNT] = state[at + _COUNT] * DISCOUNT + 1.0
    for place in range(2):
        first, mixed = place * (members + 1), 0.0
        for k in range(members):
            mixed += prior[place, k] * forecasts[k, place]
            loss = _pinball(log_y - forecasts[k, place], LEVELS[place])
            state[first + k] = state[first + k] * DISCOUNT + loss
        state[first + members] = state[first + members] * DISCOUNT + _pinball(log_y - mixed, LEVELS[place])


@jitted(None)
def _walk(state, prior, events, forecasts, log_y, out):  # type: ignore[no-untyped-def]  # as above
    """Go through the events: `event < n` is the submission of row `event`, otherwise row `event - n` ends."""
    n, members = forecasts.shape[:2]
    weights, answer = np.empty(members), np.empty(2)
    for event in events:
        if event < n:
            _combined(state, prior, forecasts[event], weights, out[event])
            out[event].sort()
        else:
            _learn(state, prior, forecasts[event - n], log_y[event - n], weights, answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """The members of a combination, and what was learnt about them: discounted losses, and the offset of p90.

    `state` holds for each quantile the loss of each member and of the prior mixture; then the discounted number of
    ended jobs, the offset, and the losses of p90 without and with the offset. `prior` (2, members) holds the weights
    before the first ended job.
    """

    members: tuple[str, ...]
    state: FloatArray
    prior: FloatArray

    @classmethod
    def new(cls, members: Sequence[str], *, rows: int) -> "Combination":
        """Return the combination before any job has ended; `rows` is the number of rows that trees were fitted to.

        >>> Combination.new(["xgboost", "reference"], rows=2000).weights(0.5).tolist()
        [0.5, 0.5]
        """
        return cls(members=tuple(members), state=np.zeros(2 * (len(members) + 1) + 4), prior=_prior(members, rows))

    @classmethod
    def of(cls, stored: CombinationState, *, rows: int) -> "Combination":
        """Return the combination that a model card stores."""
        return cls(members=stored.members, state=np.array(stored.state), prior=_prior(stored.members, rows))

    def stored(self) -> CombinationState:
        """Return the combination in the form that a model card stores."""
        return CombinationState(members=self.members, state=tuple(self.state.tolist()))

    def weights(self, level: float) -> FloatArray:
        """Return the weight of each member (members,) for the quantile 0.5 or 0.9; they sum to 1."""
        found = np.empty(len(self.members))
        _weights(self.state, self.prior, LEVELS.index(level), found)
        return found

    @property
    def offset(self) -> float:
        """The offset that is added to the combined p90, in log units."""
        return float(_widening(self.state, len(self.members)))

    def combined(self, forecasts: FloatArray) -> FloatArray:
        """Return p50 and p90 in log seconds (n, 2), ascending, from the members' forecasts (n, members, 2)."""
        out = np.empty((len(forecasts), 2))
        _walk(self.state, self.prior, np.arange(len(forecasts)), np.ascontiguousarray(forecasts), _NO_ENDS, out)
        return out

    def learnt(self, forecasts: FloatArray, log_run_s: float) -> "Combination":
        """Return the combination after one more ended job, given its forecasts (members, 2) and log run time."""
        state, ended = self.state.copy(), np.ascontiguousarray(forecasts[None])
        _walk(state, self.prior, _FIRST_ENDS, ended, np.array([log_run_s]), np.empty((1, 2)))
        return replace(self, state=state)

    def walked(
        self, *, submit_us: IntArray, end_us: IntArray, forecasts: FloatArray, log_y: FloatArray
    ) -> tuple[FloatArray, "Combination"]:
        """Forecast each job at its submission and learn from it at its end, in time order.

        At equal times submissions come first, so no job influences its own forecast. Simultaneous ends are ordered by
        run time and forecasts, so the order of the rows does not matter. Rows with NaN `log_y` are forecast, but not
        learnt from. `forecasts` (n, members, 2) are in log seconds, from models that were not trained on the row.

        Returns p50 and p90 in log seconds (n, 2), and the combination after all rows.
        """
        ends = _ends_in_order(end_us, forecasts, log_y)
        submissions = np.argsort(submit_us, kind="stable")
        before = np.searchsorted(submit_us[submissions], end_us[ends], side="right")
        events = np.insert(submissions, before, ends + len(submit_us))
        state, out = self.state.copy(), np.empty((len(submit_us), 2))
        _walk(state, self.prior, events, np.ascontiguousarray(forecasts), log_y, out)
        return out, replace(self, state=state)


def _ends_in_order(end_us: IntArray, forecasts: FloatArray, log_y: FloatArray) -> IntArray:
    """Return the rows with a run time by end, then by run time and by forecasts."""
    ends = np.flatnonzero(~np.isnan(log_y))
    ends = ends[np.argsort(end_us[ends], kind="stable")]
    # Sorting all rows by all forecasts takes seconds for a large trace, so only simultaneous ends are.
    same = end_us[ends[1:]] == end_us[ends[:-1]]
    tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    rows = ends[tied]
    ties = forecasts[rows].reshape(len(rows), 2 * forecasts.shape[1]).T
    ends[tied] = rows[np.lexsort((*ties, log_y[rows], end_us[rows]))]
    return ends


def _prior(members: Sequence[str], rows: int) -> FloatArray:
    """Return the prior weights (2, members): fitted members share rows / (rows + PRIOR_ROWS), other members the rest.

    If all members are fitted, they share the whole weight.
    """
    fitted = np.array([each in FITTED for each in members])
    shares = np.array([1.0 if fitted.all() else rows / (rows + half) for half in PRIOR_ROWS])[:, None]
    found = np.where(fitted, shares / max(fitted.sum(), 1), (1.0 - shares) / max((~fitted).sum(), 1))
    weights: FloatArray = found / found.sum(axis=1, keepdims=True)
    return weights


def forecasts_of(
    members: Sequence[str],
    *,
    xgboost: FloatArray,
    forest: FloatArray | None,
    reference_log_s: FloatArray,
    history_log_s: FloatArray,
    typical_s: tuple[float, float] | None = None,
) -> FloatArray:
    """Return the members' forecasts in log seconds (n, members, 2), each ascending with NaN at its end.

    `xgboost` and `reference_log_s` have shape (n, 2), `forest` too; `history_log_s` (n, 3, 2) is that of
    `features.references.Referenced`, `typical_s` that of a card.
    """
    known = {"xgboost": xgboost, "reference": reference_log_s}
    known |= {name: history_log_s[:, i] for i, name in enumerate(HISTORY_FORECASTS)}
    if forest is not None:
        known["forest"] = forest
    if typical_s is not None:
        known[TYPICAL] = np.log(np.array([typical_s]))
    out = np.empty((len(xgboost), len(members), 2))
    for k, name in enumerate(members):
        out[:, k] = known[name]
    out.sort(axis=-1)
    return out
