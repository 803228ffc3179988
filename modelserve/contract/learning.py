"""Responses about finished jobs: feedback, modes and their effect, drift with its thresholds and verdicts, and erasure.

Made by `modelserve.learning`, read by `modelserve.client`.
"""

import math
from collections.abc import Iterable
from typing import Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from modelserve.contract.fields import Alias, Answer, Finite, Kind, Mode

__all__ = [
    "THRESHOLDS",
    "BrakeHeld",
    "Coverage",
    "DriftAnswer",
    "ErasureAnswer",
    "Error",
    "FeatureDrift",
    "FeedbackAnswer",
    "FeedbackResult",
    "Hours",
    "InputDrift",
    "ModeAnswer",
    "ModeChange",
    "ModeHeld",
    "ModelDrift",
    "NotApplied",
    "Realised",
    "RowStatus",
    "Stretch",
    "by_bounds",
    "coverage_verdict",
    "error_verdict",
    "worst",
]

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


RowStatus = Literal["accepted", "duplicate", "conflict"]


class FeedbackResult(Answer):
    """What became of one row: stored, there already, or there already and otherwise."""

    job_id: str
    status: RowStatus


class FeedbackAnswer(Answer):
    """What became of a call, in the order of its rows; of the same job the first report stands."""

    accepted: int
    duplicates: int
    conflicts: int
    results: tuple[FeedbackResult, ...]


class ModeHeld(Answer):
    """A mode that was set; null means every cluster, type or group."""

    trace: str
    cluster: str | None
    task_type: str | None
    group: str | None
    mode: Mode


class BrakeHeld(Answer):
    """A type whose jobs are not shrunk until its brake is released; a null cluster: jobs that named none."""

    trace: str
    cluster: str | None
    task_type: str
    why: str
    since: AwareDatetime


class Hours(Answer):
    """Resource-hours over all instances: what was asked for, what was given, and the difference."""

    asked: Finite
    allocated: Finite
    saved: Finite


class Stretch(Answer):
    """Medians of run time over the p50 predicted at submission, of completed jobs; `ratio` is shrunk over unshrunk."""

    shrunk: Finite | None
    unshrunk: Finite | None
    ratio: Finite | None
    shrunk_jobs: int
    unshrunk_jobs: int


class NotApplied(Answer):
    """Jobs that could have been shrunk by an answer still in the log, and ran as asked for all the same."""

    jobs: int
    hours: dict[str, Finite]


class Realised(Answer):
    """What came of the finished jobs of one type; `kill_rate` is of the shrunk ones."""

    trace: str
    task_type: str
    jobs: int
    shrunk_jobs: int
    kills: int
    kill_rate: Finite | None
    hours: dict[str, Hours]
    stretch: Stretch
    not_applied: NotApplied


class ModeAnswer(Answer):
    """The modes and brakes within reach, the mode where none was set, and what was realised."""

    default: Mode
    modes: tuple[ModeHeld, ...]
    brakes: tuple[BrakeHeld, ...]
    realised: tuple[Realised, ...]


class ModeChange(ModeAnswer):
    """What stands after a call, and what the call ended: the mode it replaced or took back, the brakes it released."""

    replaced: tuple[ModeHeld, ...]
    released: tuple[BrakeHeld, ...]


class Coverage(Answer):
    """The share of finished jobs at or below the upper quantile, beside the card's; `standard_error` is binomial."""

    of: str
    jobs: int
    observed: Finite | None
    expected: Finite | None
    standard_error: Finite | None
    verdict: Verdict


class Error(Answer):
    """Errors of the p50 in log seconds: median (above zero: jobs ran longer), and mean absolute beside the card's."""

    jobs: int
    median_log: Finite | None
    mean_absolute_log: Finite | None
    expected_mean_absolute_log: Finite | None
    verdict: Verdict


class FeatureDrift(Answer):
    """One feature's population stability index, and how much it matters to the model."""

    feature: str
    psi: Finite
    importance: Finite | None


class InputDrift(Answer):
    """How far what a model is asked now lies from what it was trained on.

    `psi` is the mean over features weighted by their permutation importance: of hundreds of features some always move,
    and most of them do not matter. `features` are those that add most to it.
    """

    rows: int
    psi: Finite | None
    features: tuple[FeatureDrift, ...]
    verdict: Verdict


class ModelDrift(Answer):
    """How one version of a model stands; `verdict` is the worst of its parts that could be judged."""

    name: str
    version: str | None
    alias: Alias
    kind: Kind
    trace: str
    task_type: str
    coverage: tuple[Coverage, ...]
    error: Error | None
    inputs: InputDrift
    verdict: Verdict


class DriftAnswer(Answer):
    """Every model within reach, over the last `window` finished jobs of each, and what the verdicts mean."""

    window: int
    thresholds: Thresholds
    models: tuple[ModelDrift, ...]


class ErasureAnswer(Answer):
    """What was deleted; models loaded later forget the user's jobs that were submitted up to `before`."""

    trace: str
    user: str
    clusters: tuple[str, ...] | None
    before: AwareDatetime
    feedback: int
    answers: int


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
