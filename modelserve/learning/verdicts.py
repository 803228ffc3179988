"""Verdicts of drift: whether coverage, error or inputs exceed a threshold.

Pure functions of measured values. Called by `drift` and `inputs`.
"""

import math
from collections.abc import Iterable
from typing import Final

from modelserve.contract.learning import Thresholds, Verdict

THRESHOLDS: Final = Thresholds()
_ORDER: Final = ("unknown", "ok", "watch", "drifted")


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts, ignoring `unknown`; if no other is given, return `unknown`.

    >>> worst(["ok", "unknown", "watch"]), worst([])
    ('watch', 'unknown')
    """
    return max(verdicts, key=_ORDER.index, default="unknown")


def by_bounds(value: float, watch: float, drifted: float) -> Verdict:
    """Return `watch` or `drifted` if a value exceeds that bound, otherwise `ok`; `unknown` if it is not finite.

    >>> by_bounds(0.15, 0.1, 0.2)
    'watch'
    """
    if not math.isfinite(value):
        return "unknown"
    return "drifted" if value > drifted else "watch" if value > watch else "ok"


def coverage_verdict(observed: float, expected: float, standard_error: float) -> Verdict:
    """Return the verdict of an observed coverage, compared with the expected coverage from the card.

    >>> coverage_verdict(0.80, 0.90, 0.01), coverage_verdict(0.80, 0.90, 0.05), coverage_verdict(0.87, 0.90, 0.001)
    ('drifted', 'watch', 'ok')
    """
    off = abs(observed - expected)
    if off <= THRESHOLDS.coverage_off + 1e-9:  # in floating point, 1 - 0.95 is more than 0.05
        return "ok"
    return "drifted" if off > THRESHOLDS.coverage_standard_errors * standard_error else "watch"


def error_verdict(median_log: float, mean_absolute_log: float, expected: float | None) -> Verdict:
    """Return the verdict of the errors of a p50, in log seconds.

    `expected` is the mean absolute error in the card, None if the card has none.
    """
    t = THRESHOLDS
    of_median = by_bounds(math.exp(abs(median_log)), t.median_ratio_watch, t.median_ratio_drifted)
    if not expected:
        return of_median
    return worst([of_median, by_bounds(mean_absolute_log / expected, t.error_ratio_watch, t.error_ratio_drifted)])
