"""Options of `taut simulate` for the slowdown model `shared`: reservations of running jobs, and how use varies.

Slow imports happen only when `settings` is called.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipelines.errors import BadUsage

if TYPE_CHECKING:
    from pipelines.simulation.shared.settings import SharedSettings

VariationOption = Literal[
    "default",
    "prototype",
    "constant",
    "cv_0.3",
    "cv_1",
    "late_peaks",
    "interference_5",
    "interference_10",
    "beyond_request",
    "late_samples",
    "lost_samples",
]
"""How use varies within a run; a test compares the names with `pipelines.simulation.shared.variation.VARIATIONS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserving:
    """Options for the arms that reclaim while jobs run, and for how use varies; all need `--truth shared`."""

    z: Annotated[
        float | None,
        typer.Option(
            "--z",
            help="Arm `reclaim`: standard deviations of the sum of use that stay free on a machine.",
            min=0.0,
            max=10.0,
            show_default="the policy's; the notes name it",
        ),
    ] = None
    probation_min: Annotated[
        float | None,
        typer.Option(
            "--probation-min",
            help="Arm `reclaim`: minutes for which a started job keeps its request.",
            min=0.0,
            max=10_000.0,
            show_default="the policy's; the notes name it",
        ),
    ] = None
    variation: Annotated[
        VariationOption | None,
        typer.Option("--variation", help="Truth `shared`: how use varies within a run.", show_default="default"),
    ] = None

    def settings(self, *, shared: bool) -> "SharedSettings":
        """Return the settings that the options describe; `shared` tells whether `--truth shared` was given."""
        from pipelines.simulation.shared.settings import SharedSettings
        from scheduler_core.reserve import ReservePolicy

        options = {"--z": self.z, "--probation-min": self.probation_min, "--variation": self.variation}
        given = [name for name, value in options.items() if value is not None]
        if given and not shared:
            raise BadUsage(f"found {', '.join(given)} without --truth shared, expected it with them")
        policy = ReservePolicy()
        return SharedSettings(
            policy=replace(
                policy,
                z=policy.z if self.z is None else self.z,
                probation_s=policy.probation_s if self.probation_min is None else 60.0 * self.probation_min,
            ),
            variation=self.variation or "default",
        )
