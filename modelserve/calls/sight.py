"""What one call sees of the world, once: its models, their rows and what feedback taught, all of it kept for the log.

A replay hands in what was kept instead, and the same code answers the same. No answers are made here.
Called by `modelserve.calls`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from modelserve.errors import BadRequest
from modelserve.loading.scored import Scored
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import FloatArray, IntArray

if TYPE_CHECKING:
    from features.online import JobAsked
    from modelserve.contract.fields import Mode
    from modelserve.learning.learned import Learned
    from modelserve.loading.models import Snapshot
    from modelserve.loading.served import ServedModel

Kind = Literal["runtime", "usage"]
Whose = tuple[str, str | None, str]
"""Trace, workload and task type: what chooses a model."""
Parts = tuple[str | None, ...]
"""What `Learned` is asked about, in the order of its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which model answers; without one, what is wrong with the one that should, if anything is."""

    model: "ServedModel | None"
    failure: str | None


Look = Callable[["ServedModel", "Sequence[JobAsked]", IntArray, bool], Scored]
"""How the rows of jobs come about: from the model's history as it is now, or from the log."""


def from_history(model: "ServedModel", asked: "Sequence[JobAsked]", index: IntArray, counted: bool) -> Scored:
    """Build the rows of jobs from the model's history; with `counted`, count the measured runs behind each."""
    history = model.history
    built = model.rows.rows(asked, history)
    runs, (first, last) = [0] * len(asked), built.versions
    for i, job in enumerate(asked if counted else ()):
        with history.lock:
            runs[i], last = history.measured_runs(job), history.version
    return Scored(
        model=model.reference,
        digest=model.bundle.digest,
        rows=index,
        matrix=built.matrix,
        reference_log_s=built.reference_log_s,
        runs=np.array(runs, dtype=np.int64),
        versions=(first, last),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """What was asked of `Learned` during one call, and what it said."""

    modes: "dict[Parts, Mode]" = field(default_factory=dict)
    brakes: dict[Parts, str | None] = field(default_factory=dict)
    floors_gib: dict[Parts, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One call's view: one snapshot, so that no answer combines two versions, and everything it was told.

    `chosen` gathers which models answer, `scored` what they were shown, `shown` (as long) of which jobs, `failed` the
    models that fell over, by reference, `lessons` what feedback had taught about the jobs. With them and the bundles,
    the same answer is made again.
    """

    snapshot: "Snapshot"
    learned: "Learned"
    look: Look = from_history
    chosen: dict[tuple[Kind, Whose], Choice] = field(default_factory=dict)
    scored: list[Scored] = field(default_factory=list)
    shown: "list[tuple[ServedModel, Sequence[JobAsked]]]" = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    lessons: Lessons = field(default_factory=Lessons)

    def choice(self, kind: Kind, whose: Whose) -> Choice:
        """Return which model answers for jobs of a trace, workload and task type."""
        found = self.chosen.get((kind, whose))
        if found is None:
            model = self.snapshot.model_of(kind, *whose)
            failure = None if model is not None else self.snapshot.failure_of(kind, *whose)
            found = self.chosen[kind, whose] = Choice(model=model, failure=failure)
        return found

    def cited(self) -> tuple[str, ...]:
        """Return the models that were to answer, by reference."""
        return tuple(sorted({each.model.reference for each in self.chosen.values() if each.model is not None}))

    def rows(self, model: "ServedModel", asked: "Sequence[JobAsked]", index: IntArray, *, counted: bool) -> Scored:
        """Return the rows that a model is shown of jobs, `index` being their places in the call (n,).

        With `counted`, the measured runs behind each job are counted, otherwise they are 0.

        Raises
        ------
        PredictorUnavailable
            The rows cannot be built.
        """
        self._check(model)
        try:
            seen = self.look(model, asked, index, counted)
        except BadRequest:  # a log that holds something else
            raise
        except Exception as error:  # whatever is wrong with a model, only its own jobs go without
            raise self._fallen(model, error) from error
        self.scored.append(seen)
        self.shown.append((model, asked))
        return seen

    def margins(self, model: "ServedModel", target: str, matrix: npt.NDArray[np.float32]) -> FloatArray:
        """Return a booster's outputs (n, outputs) for a matrix, before any calibration.

        Raises
        ------
        PredictorUnavailable
            The model cannot answer.
        """
        self._check(model)
        try:
            return model.margins(target, matrix)
        except Exception as error:  # whatever is wrong with a model, only its own jobs go without
            raise self._fallen(model, error) from error

    def mode(self, trace: str, task_type: str, group: str | None, cluster: str | None) -> "Mode":
        """Return the mode of a job."""
        key = (trace, task_type, group, cluster)
        found = self.lessons.modes.get(key)
        if found is None:
            found = self.lessons.modes[key] = self.learned.mode(trace, task_type, group, cluster)
        return found

    def braked(self, trace: str, task_type: str, cluster: str | None) -> str | None:
        """Return why jobs of a type are not shrunk for now, and since when; None where they may be."""
        key = (trace, task_type, cluster)
        if key not in self.lessons.brakes:
            stop = self.learned.braked(trace, task_type, cluster)
            self.lessons.brakes[key] = None if stop is None else str(stop)
        return self.lessons.brakes[key]

    def memory_floor_gib(
        self, trace: str, cluster: str | None, group: str | None, role: str, user: str | None
    ) -> float:
        """Return the memory below which a job's like was killed; NaN where none was."""
        key = (trace, cluster, group, role, user)
        found = self.lessons.floors_gib.get(key)
        if found is None:
            found = self.learned.memory_floor_gib(trace, cluster, group, role, user)
            self.lessons.floors_gib[key] = found
        return found

    def _check(self, model: "ServedModel") -> None:
        if self.failed and model.reference in self.failed:
            raise PredictorUnavailable(self.failed[model.reference])

    def _fallen(self, model: "ServedModel", error: Exception) -> PredictorUnavailable:
        text = f"{model.reference}: {error}"[:400]
        self.failed[model.reference] = text
        return PredictorUnavailable(text)
