"""What to simulate: arrivals, cluster, order, outages, and what a shrunk job's run becomes.

Values only; running them is `simulate`'s matter. Made by the commands, the demo and the experiments.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pipelines.errors import BadUsage
from pipelines.simulation.aiming import Aiming
from pipelines.simulation.cluster_file import ClusterSpec, paper_cluster
from pipelines.simulation.energy.site import Site
from pipelines.simulation.engine.arrivals import SECONDS_PER_HOUR
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S, Engine
from pipelines.simulation.engine.truth import TRUTHS
from pipelines.simulation.engine.workload import NO_OUTAGES, Outages
from scheduler_core.devices import Sharing
from scheduler_core.discipline import Discipline
from scheduler_core.placement import sharing_of
from scheduler_core.shrink import Guard, ShrinkPolicy

PAPER_RATE_PER_H: Final = 70.0
"""The paper's highest load."""

PAPER_MIX: Final[Mapping[str, float]] = {"cv": 5.0, "nlp": 15.0, "gnn": 15.0, "ctr": 65.0}
"""The paper's mix of experiment 1 (ResNet : NMT : GraphLearn : CTR), by task type."""

PREDICTED_POLICIES: Final = frozenset({"sjf", "srtf", "qssf"})
"""The policies that order by predicted run times."""

_SHARING_NOTES: Final[Mapping[Sharing, str]] = {
    "pooled": "GPUs are pooled: those of a machine are counted together, not device by device",
    "devices": "GPUs are shared device by device: an instance of up to one takes it from one device, one of more takes "
    "whole idle devices, its request rounded up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageRate:
    """Machines fail on their own: mean time between failures of one machine, and mean time to its repair."""

    mtbf_h: float
    mttr_h: float

    def __post_init__(self) -> None:
        if not (0.0 < self.mtbf_h < float("inf") and 0.0 < self.mttr_h < float("inf")):
            raise BadUsage(
                f"outages: found {self.mtbf_h} h between failures and {self.mttr_h} h to repair, expected more than 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """What to simulate.

    Attributes
    ----------
    rate_per_h, mix
        Of drawn arrivals; `mix` weighs task types, None draws from the pool as it is.
    horizon_s, warm_up_s
        Where the simulation ends (infinite: when nothing is left to happen), and from where on it is measured.
    seed, replications
        Replication i draws its arrivals, outages and placements from seed + i.
    cluster, discipline
        The machines, and how they are run; the discipline's own seed is not looked at.
    aiming
        What a placement against fragmentation aims at.
    outages
        When machines are away, or how often.
    truths, guards
        What a shrunk job's run becomes; one shrinking arm for each guard: `shrunk` with the peak-use guard, `unguarded`
        as in the paper.
    shrink_policy
        Parameters of Algorithm 1. Its own guard and device memory are not looked at: the guards come from here and the
        devices from the pool.
    engine
        Who runs small simulations of which there are many: `compiled`; otherwise `auto`.
    site
        What machines draw and the grid they hang on; None leaves energy out.
    """

    rate_per_h: float = PAPER_RATE_PER_H
    mix: Mapping[str, float] | None = None
    horizon_s: float = PAPER_HORIZON_S
    warm_up_s: float = 0.0
    seed: int = 0
    replications: int = 1
    cluster: ClusterSpec = field(default_factory=paper_cluster)
    discipline: Discipline = field(default_factory=Discipline)
    aiming: Aiming = field(default_factory=Aiming)
    outages: Outages | OutageRate = NO_OUTAGES
    truths: Sequence[str] = tuple(TRUTHS)
    guards: Sequence[Guard] = ("usage",)
    shrink_policy: ShrinkPolicy = field(default_factory=ShrinkPolicy)
    engine: Engine = "auto"
    site: Site | None = None

    def __post_init__(self) -> None:
        if not self.truths or self.replications < 1:
            raise BadUsage(
                f"simulate: found truths {list(self.truths)} and {self.replications} replications, "
                f"expected some of {', '.join(TRUTHS)} and at least one replication"
            )
        self.aiming.check(self.discipline)
        if not 0.0 <= self.warm_up_s < self.horizon_s:
            raise BadUsage(f"simulate: found a warm-up of {self.warm_up_s:g} s, expected below {self.horizon_s:g} s")
        if self.discipline.match_gpu_type and not any(machine.gpu_type for machine in self.cluster.machines):
            raise BadUsage(
                f"simulate: found GPU types to match on machines that name none ({self.cluster.source}); "
                "expected machines with types: --cluster-from machines, or a file with gpu_type"
            )

    @property
    def sharing(self) -> Sharing:
        """Return how instances share a machine's GPUs."""
        return sharing_of(self.discipline.placement, self.discipline.sharing)

    @property
    def needs_predictions(self) -> str | None:
        """Return what of the discipline looks at predicted run times, if anything does."""
        if self.discipline.policy in PREDICTED_POLICIES:
            return f"the policy {self.discipline.policy}"
        return "backfill" if self.discipline.backfill == "easy" else None

    def notes(self) -> list[str]:
        """State the assumptions every reader of a figure has to know."""
        return [
            self.cluster.note(),
            _SHARING_NOTES[self.sharing],
            *self.aiming.notes(self.discipline),
            *self._fragmentation_notes(),
            self._order_note(),
            *self._outage_notes(),
            *self._window_notes(),
            *(() if self.site is None else self.site.notes),
        ]

    def _order_note(self) -> str:
        discipline = self.discipline
        if discipline.backfill == "easy":
            passing = "blocked jobs are passed by those that do not delay the head, by what is predicted (EASY)"
        elif discipline.overtakes is None:
            passing = "blocked jobs are passed over without bound, so small jobs overtake large ones"
        else:
            passing = f"at most {discipline.overtakes} later jobs start before a blocked head of the queue"
        return f"{passing}; gangs whose request exceeds the whole cluster are counted as never_fits, outside the rates"

    def _fragmentation_notes(self) -> list[str]:
        if self.sharing == "pooled":
            return []
        until = "horizon" if math.isfinite(self.horizon_s) else "last submission"
        return [
            "fragmented_gpus: free without use to an average pod of all the run's jobs at their requests; mean until "
            f"the {until}"
        ]

    def _window_notes(self) -> list[str]:
        if not self.warm_up_s:
            return []
        hours = self.warm_up_s / SECONDS_PER_HOUR
        return [
            f"measured from {hours:g} h on: jobs that came and what was held since then; stranded_gpu_frac alone is "
            "over all the time from 0"
        ]

    def _outage_notes(self) -> list[str]:
        if isinstance(self.outages, OutageRate):
            said = f"machines fail every {self.outages.mtbf_h:g} h on average, and are away {self.outages.mttr_h:g} h"
            return [said if math.isfinite(self.horizon_s) else f"{said}, until the last submission"]
        count = len(self.outages.machine)
        return [f"{count} machine outages, as told"] if count else []
