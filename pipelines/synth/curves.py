"""Quantile curves: from a normal score to a value, linear in log value between the published quantiles.

The only arithmetic on curves; the numbers live in the calibration. Called by `calibration`, `runtime`, `use`, `tables`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

Floats: TypeAlias = npt.NDArray[np.float64]

_ZERO: Final = 1e-3
"""Published quantiles of 0 stand at this value on the log scale; what falls at or below it comes out as 0."""

_TAIL_SLOPE: Final = 0.7
"""Beyond the outermost quantile a curve goes on with this share of its last slope: no quantile says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Knots of a quantile function: normal scores, and natural logarithms of the values there."""

    scores: tuple[float, ...]
    logs: tuple[float, ...]
    has_zero: bool

    @classmethod
    def of(cls, at: Sequence[float], values: Sequence[float]) -> "Curve":
        """Make a curve from probabilities and the values there, both ascending.

        Raises
        ------
        ValueError
            When they differ in length or the values fall.
        """
        if len(at) != len(values) or list(values) != sorted(values):
            raise ValueError(f"quantiles {list(values)} at {list(at)}: expected as many, ascending")
        scores = ndtri(np.asarray(at, dtype=np.float64))
        logs = np.log(np.maximum(np.asarray(values, dtype=np.float64), _ZERO))
        return cls(scores=tuple(scores.tolist()), logs=tuple(logs.tolist()), has_zero=min(values) <= _ZERO)

    def at(self, scores: Floats) -> Floats:
        """Return the values at normal scores.

        >>> Curve.of([0.1, 0.5, 0.9], [1.0, 10.0, 100.0]).at(np.array([0.0])).round(6).tolist()
        [10.0]
        """
        x, y = np.asarray(self.scores), np.asarray(self.logs)
        logs = np.interp(scores, x, y)
        low = _TAIL_SLOPE * (y[1] - y[0]) / (x[1] - x[0])
        high = _TAIL_SLOPE * (y[-1] - y[-2]) / (x[-1] - x[-2])
        logs += low * np.minimum(scores - x[0], 0.0) + high * np.maximum(scores - x[-1], 0.0)
        values = np.exp(logs)
        return np.where(values <= _ZERO * 1.0001, 0.0, values) if self.has_zero else values


def normal_ranks(latent: Floats, stratum: npt.NDArray[np.int64], weight: Floats) -> Floats:
    """Return each row's normal score by its weighted rank within its stratum: exactly normal margins.

    >>> normal_ranks(np.array([3.0, 1.0, 2.0]), np.zeros(3, dtype=np.int64), np.ones(3)).round(2).tolist()
    [0.97, -0.97, 0.0]
    """
    order = np.lexsort((latent, stratum))
    strata, weights = stratum[order], weight[order]
    cumulative = np.cumsum(weights)
    first = np.r_[True, strata[1:] != strata[:-1]]
    group = np.cumsum(first) - 1
    before = (cumulative - weights)[first]
    totals = np.diff(np.r_[before, cumulative[-1]])
    share = (cumulative - weights / 2 - before[group]) / totals[group]
    scores = np.empty_like(latent)
    scores[order] = ndtri(np.clip(share, 1e-9, 1.0 - 1e-9))
    return scores
