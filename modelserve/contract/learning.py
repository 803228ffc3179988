"""Answers about jobs that have finished: feedback, modes and what came of them, drift, erasure.

No call is made here. Read by `modelserve.client`.
"""

from typing import Literal

from pydantic import AwareDatetime

from modelserve.contract.fields import Alias, Answer, Finite, Kind, Mode
from modelserve.contract.verdict import Thresholds, Verdict


class FeedbackResult(Answer):
    """What became of one row: stored, there already, or there already and otherwise."""

    job_id: str
    status: Literal["accepted", "duplicate", "conflict"]


class FeedbackTaken(Answer):
    """What became of finished jobs, in their order; of the same job the first report stands."""

    accepted: int
    duplicates: int
    conflicts: int
    results: tuple[FeedbackResult, ...]


class ModeHeld(Answer):
    """A mode that was set; None means every cluster, type or group."""

    trace: str
    cluster: str | None
    task_type: str | None
    group: str | None
    mode: Mode


class BrakeHeld(Answer):
    """A type whose jobs are not shrunk until its brake is released, and since when that is so."""

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


class Modes(Answer):
    """The modes and brakes within reach, the mode where none was set, and what was realised."""

    default: Mode
    modes: tuple[ModeHeld, ...]
    brakes: tuple[BrakeHeld, ...]
    realised: tuple[Realised, ...]


class ModesChanged(Modes):
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
    """How far what a model is asked now lies from what it was trained on; `psi` is weighted by importance."""

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


class Drift(Answer):
    """Every model within reach, over the last `window` finished jobs of each, and what the verdicts mean."""

    window: int
    thresholds: Thresholds
    models: tuple[ModelDrift, ...]


class Erased(Answer):
    """What was deleted; runs of the user that ended before `before` are forgotten, also by models loaded later."""

    trace: str
    user: str
    clusters: tuple[str, ...] | None
    before: AwareDatetime
    feedback: int
    answers: int
