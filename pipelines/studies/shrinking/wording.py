"""Predictors that say less, or otherwise, than the one they ask: to see what each part of an answer buys.

Called by `arms` only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler_core.types import FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, RunTimes


@dataclass(frozen=True, slots=True)
class Reworded:
    """Keep only some of what the run-time model knows: `important`, `support`, both or nothing."""

    predictor: Predictor
    keep: tuple[str, ...]

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Answer as the predictor does."""
        return self.predictor.run_times(jobs, rows, requests)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Answer as the predictor does."""
        return self.predictor.peak_use(jobs)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Answer what is kept; without support the run-time model is silent wherever a floor guards."""
        return [
            Knowledge(**{name: getattr(known, name) for name in self.keep}) for known in self.predictor.knowledge(jobs)
        ]


@dataclass(frozen=True, slots=True)
class WithUse:
    """Answer another peak use, of the same jobs in the same order; the run-time model is silent."""

    predictor: Predictor
    use: PeakUse

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Answer as the predictor does."""
        return self.predictor.run_times(jobs, rows, requests)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:  # noqa: ARG002 -- the protocol gives the signature
        """Answer the use that was given."""
        return self.use

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Answer that nothing is known."""
        return [Knowledge()] * len(jobs)


if TYPE_CHECKING:
    SATISFIES: tuple[type[Predictor], ...] = (Reworded, WithUse)
