"""Settings of the slowdown model `shared`: reservations of running jobs, and how use varies.

Part of `pipelines.simulation.settings.SimulationSettings`; imports no compiled code.
"""

from dataclasses import dataclass, field
from typing import Final

from pipelines.errors import BadUsage
from pipelines.simulation.shared.inputs import check_discipline
from pipelines.simulation.shared.variation import VARIATIONS, Variation
from scheduler_core.errors import BadInput
from scheduler_core.queueing import Discipline
from scheduler_core.reserve import ReservePolicy

__all__ = ["SHARED", "SharedSettings"]

SHARED: Final = "shared"
"""Name of the slowdown model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSettings:
    """Settings of the slowdown model `shared`: `policy` of the arms that reclaim, and the name of a variation."""

    policy: ReservePolicy = field(default_factory=ReservePolicy)
    variation: str = "default"

    def __post_init__(self) -> None:
        if self.variation not in VARIATIONS:
            raise BadUsage(f"variation: found {self.variation!r}, expected one of {', '.join(VARIATIONS)}")

    @property
    def varies(self) -> Variation:
        """Return how use varies."""
        return VARIATIONS[self.variation]

    def check(self, discipline: Discipline, *, outages: bool, energy: bool) -> None:
        """Raise BadUsage if only the other slowdown models support the rest of the settings."""
        why = ""
        try:
            check_discipline(discipline)
        except BadInput as error:
            why = str(error)
        why = "found outages of machines, which shared machines lack" if outages else why
        why = "found energy accounts, which need fixed allocations" if energy else why
        if why:
            raise BadUsage(f"--truth {SHARED}: {why}; for them use --truth contention")

    def notes(self) -> list[str]:
        """Return notes on the assumptions, to print with the results."""
        policy = self.policy
        return [
            f"truth {SHARED}: jobs take what others leave idle, by weights of their requests; how use varies within a "
            f"run is assumed (variation {self.variation})",
            f"arm reclaim: a job keeps its request for {policy.probation_s / 60.0:g} min, then reserves its measured "
            f"mean, with {policy.z:g} standard deviations free per machine, and its memory peak times "
            f"{policy.memory_margin:g}; *_allocated_frac counts requests and can exceed 1",
        ]
