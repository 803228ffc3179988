"""What a placement against fragmentation aims at: jobs as they arrive, or all of a run's jobs beforehand.

Targets themselves are `scheduler_core.target`'s. Called by `simulation_settings`, `paired_runs` and what keeps results.
"""

from dataclasses import dataclass
from typing import Final, Literal

from pipelines.errors import BadUsage
from pipelines.simulation.engine.workload import Workload
from scheduler_core.discipline import Discipline
from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE, Demand
from scheduler_core.placement import Placement
from scheduler_core.target import WINDOW, SlidingTarget, TargetWorkload, check_popularity, target_of
from scheduler_core.types import IntArray

AIMING: Final = frozenset({"fgd", "fgd_used_first"})
"""The placements that look at a target."""

Target = Literal["online", "trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aiming:
    """A target, and the share of the pods that is kept in it."""

    target: Target = "online"
    popularity: float = 1.0

    def check(self, discipline: Discipline) -> None:
        """Refuse a popularity that is no share, and a target that the placement would not look at.

        Raises
        ------
        BadUsage
            If so.
        """
        try:
            check_popularity(self.popularity)
        except BadInput as error:
            raise BadUsage(str(error)) from error
        if self != Aiming() and discipline.placement not in AIMING:
            raise BadUsage(
                f"found the target {self.target} of popularity {self.popularity:g} beside the placement "
                f"{discipline.placement}, which looks at none; expected one of {', '.join(sorted(AIMING))}"
            )

    def placement(self, discipline: Discipline, workload: Workload) -> str | Placement:
        """Return the discipline's placement, aiming at what jobs are first given where it looks at a target."""
        if discipline.placement not in AIMING or self == Aiming():
            return discipline.placement
        # Compiling costs seconds: only who places by devices pays for it.
        from scheduler_core.sharing_placements import DevicePlacement

        target: TargetWorkload | SlidingTarget = SlidingTarget(popularity=self.popularity)
        if self.target == "trace":
            typed = discipline.match_gpu_type
            target = workload_target(workload, workload.granted_units, self.popularity, typed=typed)
        return DevicePlacement(str(discipline.placement), target=target, seed=discipline.seed)

    def said(self, discipline: Discipline) -> dict[str, object]:
        """Return what a run's settings say of it; null where the placement looks at no target."""
        looks = discipline.placement in AIMING
        return {"target": self.target if looks else None, "popularity": self.popularity if looks else None}

    def notes(self, discipline: Discipline) -> list[str]:
        """Say what the placement aims at, if at anything."""
        if discipline.placement not in AIMING:
            return []
        what = {
            "online": f"the last {WINDOW} arrivals, learnt as they come",
            "trace": "all jobs of the run, known beforehand (an oracle)",
        }
        specs = "" if self.popularity == 1.0 else f"the most frequent specs of {100 * self.popularity:g} % of "
        return [f"{discipline.placement} aims at {specs}{what[self.target]}"]


def workload_target(
    workload: Workload, units: IntArray, popularity: float = 1.0, *, typed: bool = True
) -> TargetWorkload:
    """Make a target of all jobs of a workload at these units (n, 3), each instance a pod.

    GPU types count where they are matched (`typed`). Jobs that can never fit are among them.
    """
    asked = zip(units.tolist(), workload.instances.tolist(), workload.gpu_type.tolist(), strict=True)
    demands = (
        Demand(
            units=(cpu, mem, gpu),
            instances=instances,
            gpu_type=workload.gpu_types[code] if typed and code != ANY_GPU_TYPE else None,
        )
        for (cpu, mem, gpu), instances, code in asked
    )
    return target_of(demands, popularity)
