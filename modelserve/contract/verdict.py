"""When drift is drift: the thresholds, and the verdict that each figure gets by them.

Pure arithmetic. Called by `drift` and `inputs`.
"""

import math
from collections.abc import Iterable
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

Verdict = Literal["ok", "watch", "drifted", "unknown"]

_ORDER: Final = ("unknown", "ok", "watch", "drifted")


class Thresholds(BaseModel):
    """What the verdicts mean; every figure beyond its first bound is to be watched, beyond its second it has drifted.

    `coverage_off`: coverage differs from the card's by this much; a difference within `coverage_standard_errors`
    binomial standard errors may be chance, and is only to be watched.
    `error_ratio_*`: mean absolute log error over the card's. `median_ratio_*`: run time over its p50, in the median,
    either way. `psi_*`: population stability index, the mean over features by their importance.
    `least_jobs`, `least_rows`: with fewer finished jobs, or asked rows, nothing is said.
    """

    model_config = ConfigDict(frozen=True)

    coverage_off: float = 0.05
    coverage_standard_errors: float = 3.0
    error_ratio_watch: float = 1.25
    error_ratio_drifted: float = 1.5
    median_ratio_watch: float = 1.5
    median_ratio_drifted: float = 2.0
    psi_watch: float = 0.1
    psi_drifted: float = 0.2
    least_jobs: int = 50
    least_rows: int = 200


THRESHOLDS: Final = Thresholds()


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts; what is unknown counts only where nothing is known.

    >>> worst(["ok", "unknown", "watch"]), worst([])
    ('watch', 'unknown')
    """
    return max(verdicts, key=_ORDER.index, default="unknown")


def by_bounds(value: float, watch: float, drifted: float) -> Verdict:
    """Return the verdict of a figure that is the worse the larger it is.

    >>> by_bounds(0.15, 0.1, 0.2)
    'watch'
    """
    if not math.isfinite(value):
        return "unknown"
    return "drifted" if value > drifted else "watch" if value > watch else "ok"


def coverage_verdict(observed: float, expected: float, standard_error: float) -> Verdict:
    """Return the verdict of a coverage.

    >>> coverage_verdict(0.80, 0.90, 0.01), coverage_verdict(0.80, 0.90, 0.05), coverage_verdict(0.87, 0.90, 0.001)
    ('drifted', 'watch', 'ok')
    """
    off = abs(observed - expected)
    if off <= THRESHOLDS.coverage_off + 1e-9:  # 1 - 0.95 is a little more than 0.05
        return "ok"
    return "drifted" if off > THRESHOLDS.coverage_standard_errors * standard_error else "watch"


def error_verdict(median_log: float, mean_absolute_log: float, expected: float | None) -> Verdict:
    """Return the verdict of the errors of a p50, all in log seconds; `expected` is the card's mean, if it has one."""
    t = THRESHOLDS
    of_median = by_bounds(math.exp(abs(median_log)), t.median_ratio_watch, t.median_ratio_drifted)
    if not expected:
        return of_median
    return worst([of_median, by_bounds(mean_absolute_log / expected, t.error_ratio_watch, t.error_ratio_drifted)])
