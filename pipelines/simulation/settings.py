"""Settings of a simulation: arrivals, cluster, discipline, slowdown models; the target of fragmentation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pipelines.errors import BadUsage
from pipelines.simulation.cluster_file import ClusterSpec, paper_cluster
from pipelines.simulation.energy.site import Site
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S, Engine
from pipelines.simulation.engine.slowdown import SLOWDOWN_MODELS, USUAL_MODELS
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR, Workload
from pipelines.simulation.shared.inputs import SHARED, SharedSettings
from scheduler_core.cluster import Demand
from scheduler_core.gangs import ANY_GPU_TYPE, Sharing
from scheduler_core.placement import PLACEMENTS, sharing_of
from scheduler_core.queueing import Discipline, policy_of
from scheduler_core.shrink import Guard, ShrinkPolicy
from scheduler_core.target import WINDOW, TargetWorkload, target_of

__all__ = ["PAPER_MIX", "PAPER_RATE_PER_H", "SimulationSettings"]


def workload_target(workload: Workload, *, typed: bool) -> TargetWorkload:
    """Return the target workload of all jobs at their requests, with each instance as a pod.

    GPU types are part of the target if `typed`. Jobs that do not fit the empty cluster are included.
    """
    rows = zip(workload.request_units.tolist(), workload.instances.tolist(), workload.gpu_type.tolist(), strict=True)
    demands = (
        Demand(
            units=(cpu, mem, gpu),
            instances=instances,
            gpu_type=workload.gpu_types[code] if typed and code != ANY_GPU_TYPE else None,
        )
        for (cpu, mem, gpu), instances, code in rows
    )
    return target_of(demands)


PAPER_RATE_PER_H: Final = 70.0
"""Highest load in the experiments of Yang, Hong and Tang, in jobs per hour."""

PAPER_MIX: Final[Mapping[str, float]] = {"cv": 5.0, "nlp": 15.0, "gnn": 15.0, "ctr": 65.0}
"""Weights of task types in experiment 1 of Yang, Hong and Tang (ResNet : NMT : GraphLearn : CTR)."""

_SHARING_NOTES: Final[Mapping[Sharing, str]] = {
    "pooled": "GPUs are pooled: a machine counts its GPUs together, not device by device",
    "devices": "GPUs are shared device by device: up to one GPU per instance comes from a single device, more than one "
    "from whole idle devices, the request rounded up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """Settings of a simulation.

    - `rate_per_h`, `mix`: drawn arrivals per hour, and weights of task types; without weights all jobs of the pool are
      equally likely.
    - `horizon_s`, `warm_up_s`: end of the simulation, and the time from which metrics count. An infinite horizon ends
      after the last event.
    - `seed`, `replications`: replication i draws arrivals and placements from seed + i; the seed in
      `discipline` is ignored.
    - `guards`: each gives one arm: `shrunk` has the peak-use guard, `unguarded` has none (as in Yang, Hong and Tang).
    - `shrink_policy`: parameters of Algorithm 1. Its guard and GPU memory are replaced by `guards` and the pool.
    - `engine`: how the rules run; `auto` compiles if that is estimated to be faster for all runs together.
    - `site`: power of the machines, and their electricity grid; None leaves energy out of the results.
    """

    rate_per_h: float = PAPER_RATE_PER_H
    mix: Mapping[str, float] | None = None
    horizon_s: float = PAPER_HORIZON_S
    warm_up_s: float = 0.0
    seed: int = 0
    replications: int = 1
    cluster: ClusterSpec = field(default_factory=paper_cluster)
    discipline: Discipline = field(default_factory=Discipline)
    slowdown_models: Sequence[str] = USUAL_MODELS
    guards: Sequence[Guard] = ("usage",)
    shared: SharedSettings = field(default_factory=SharedSettings)
    shrink_policy: ShrinkPolicy = field(default_factory=ShrinkPolicy)
    engine: Engine = "auto"
    site: Site | None = None

    def __post_init__(self) -> None:
        if not self.slowdown_models or self.replications < 1:
            raise BadUsage(
                f"simulate: found slowdown models {list(self.slowdown_models)} and {self.replications} replications, "
                f"expected some of {', '.join((*SLOWDOWN_MODELS, SHARED))} and at least one replication"
            )
        if SHARED in self.slowdown_models:
            self.shared.check(self.discipline, energy=self.site is not None)
        if not 0.0 <= self.warm_up_s < self.horizon_s:
            raise BadUsage(f"simulate: found a warm-up of {self.warm_up_s:g} s, expected below {self.horizon_s:g} s")
        if self.discipline.match_gpu_type and not any(machine.gpu_type for machine in self.cluster.machines):
            raise BadUsage(
                f"simulate: found GPU types to match on machines that name none ({self.cluster.source}); "
                "expected machines with types: --cluster-from machines, or a file with gpu_type"
            )

    @property
    def sharing(self) -> Sharing:
        """Return how instances share a machine's GPUs: `pooled` or `devices`."""
        return sharing_of(self.discipline.placement, self.discipline.sharing)

    @property
    def needs_predictions(self) -> str | None:
        """Return a name for the rule of the discipline that uses predicted run times; None if no rule does."""
        if policy_of(self.discipline.policy).predicted:
            return f"the policy {self.discipline.policy}"
        return "backfill" if self.discipline.backfill == "easy" else None

    def notes(self) -> list[str]:
        """Return notes on the assumptions of the simulation, to print with its results."""
        notes = [self.cluster.note(), _SHARING_NOTES[self.sharing]]
        if PLACEMENTS[self.discipline.placement].aims:
            notes.append(f"{self.discipline.placement} aims at the last {WINDOW} arrivals, updated at every arrival")
        endless = not math.isfinite(self.horizon_s)
        if self.sharing == "devices":
            notes.append(
                "fragmented_gpus: free but unusable for an average pod of all the run's jobs at their requests; mean "
                f"until the {'last submission' if endless else 'horizon'}"
            )
        notes.append(self._order_note())
        if self.warm_up_s:
            notes.append(
                f"measured from {self.warm_up_s / SECONDS_PER_HOUR:g} h on: jobs that arrived and "
                "allocations since then"
            )
        notes += self.shared.notes() if SHARED in self.slowdown_models else []
        return [*notes, *(() if self.site is None else self.site.notes)]

    def _order_note(self) -> str:
        discipline = self.discipline
        if discipline.backfill == "easy":
            passing = "later jobs pass a blocked first job if, by prediction, they do not delay it (EASY)"
        elif discipline.overtakes is None:
            passing = "blocked jobs are passed without bound, so small jobs overtake large ones"
        else:
            passing = f"at most {discipline.overtakes} later jobs start before a blocked first job"
        return f"{passing}; gangs whose request exceeds the whole cluster are counted as never_fits, outside the rates"
