"""How fast a figure grows: a line through samples, with an interval that knows samples resemble their neighbours.

Called by the soak.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

Z95: Final = 1.96
MOST_ALIKE: Final = 0.98
"""Correlation of neighbours beyond which no number of samples says anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """Growth per unit of time, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def slope_of(at: Sequence[float], values: Sequence[float]) -> Slope:
    """Fit a line by least squares; the interval is widened by the residuals' correlation from sample to sample.

    With a correlation r of neighbours, the variance of the slope is (1 + r) / (1 - r) times that of independent ones.
    """
    x, y = np.asarray(at, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if len(x) < 3 or np.ptp(x) == 0.0:
        raise ValueError(f"found {len(x)} samples, expected three or more at different times")
    centred = x - x.mean()
    value = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - value * centred
    squares = float(rest @ rest)
    alike = float(np.clip(rest[1:] @ rest[:-1] / squares, 0.0, MOST_ALIKE)) if squares else 0.0
    variance = squares / (len(x) - 2) / float(centred @ centred) * (1.0 + alike) / (1.0 - alike)
    half = Z95 * float(np.sqrt(variance))
    return Slope(value=value, low=value - half, high=value + half)
