"""The cases of a design: every combination of load, population and seed, with the arrivals drawn for it.

A population is a part of the pool: with or without GNN jobs, on all devices or on those of known memory. Cases are
simulated in `runs`. Called by `designs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from pipelines.errors import BadUsage
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S
from pipelines.simulation.engine.workload import NO_OUTAGES, poisson_draws
from pipelines.simulation.job_pool import Pool, one_instance_each
from pipelines.simulation.paired_runs import Arrivals
from pipelines.simulation.settings import PAPER_MIX, PAPER_RATE_PER_H
from pipelines.simulation.simulate import ALL, KNOWN
from scheduler_core.types import IntArray

GNN: Final = "gnn"
TYPES: Final = ("cv", "nlp", "gnn", "ctr")
"""Task types of the mix. Yang, Hong and Tang use ResNet, NMT, GraphLearn and CTR, in this order."""

PAPER: Final = "5:15:15:65"
"""The mix of experiment 1 of Yang, Hong and Tang, cv:nlp:gnn:ctr; its weights are `PAPER_MIX`."""

LOADS_PER_H: Final = (30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0)
WITH, WITHOUT = "with", "without"


class Draw(StrEnum):
    """What one arrival is: a task with all its instances, or one instance; Yang, Hong and Tang do not say."""

    GANG = "gang"
    INSTANCE = "instance"


def drawn_as(unit: Draw, pool: Pool) -> Pool:
    """Return the pool of which each drawn job is one arrival. Recommendations are per instance, so they stay valid."""
    return pool if unit is Draw.GANG else one_instance_each(pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load, population and seed, with its arrivals.

    `gnn` is `with` or `without` GNN jobs; `devices` is all devices, or only those of known memory.
    """

    rate_per_h: float
    gnn: str
    devices: str
    seed: int
    arrivals: Arrivals


def cases_of(
    pool: Pool,
    *,
    seeds: Sequence[int],
    loads_per_h: Sequence[float] = (PAPER_RATE_PER_H,),
    horizon_s: float = PAPER_HORIZON_S,
) -> list[Case]:
    """Draw the arrivals of every combination of population, load and seed, in the mix 5:15:15:65.

    Task types that a population lacks are left out of the mix.

    Raises
    ------
    BadUsage
        If the pool lacks jobs of a task type other than GNN.
    """
    kinds = [entry.job.task_type for entry in pool.jobs]
    if lacking := [kind for kind in TYPES if kind != GNN and kind not in kinds]:
        raise BadUsage(f"experiment: the pool holds no {', '.join(lacking)} job; the paper's mix draws all of them")
    return [
        Case(
            rate_per_h=rate,
            gnn=gnn,
            devices=devices,
            seed=seed,
            arrivals=_drawn(kinds, members, weights_of(gnn), rate, horizon_s, devices, seed),
        )
        for (gnn, devices), members in populations(pool).items()
        for rate in loads_per_h
        for seed in seeds
    ]


def populations(pool: Pool) -> dict[tuple[str, str], IntArray]:
    """Return the rows of the pool in each population, by `(with or without GNN, devices)`.

    Populations of known devices are left out if all devices are known, populations with GNN if there are no GNN jobs,
    and populations without GNN if they lack one of the other task types.
    """
    kinds = np.array([entry.job.task_type for entry in pool.jobs])
    of_types = np.isin(kinds, TYPES)
    gnn = kinds == GNN
    devices = {ALL: np.ones(len(kinds), dtype=np.bool_)}
    if not all(pool.known):
        devices[KNOWN] = np.array(pool.known)
    found: dict[tuple[str, str], IntArray] = {}
    for name, known in devices.items():
        if (known & gnn).any():
            found[WITH, name] = np.flatnonzero(of_types & known)
        if all((known & (kinds == kind)).any() for kind in TYPES if kind != GNN):
            found[WITHOUT, name] = np.flatnonzero(of_types & known & ~gnn)
    return found


def weights_of(gnn: str) -> Mapping[str, float]:
    """Return the weights of the task types in the mix of a population `with` or `without` GNN jobs."""
    return {kind: weight for kind, weight in PAPER_MIX.items() if gnn == WITH or kind != GNN}


def _drawn(
    kinds: Sequence[str],
    members: IntArray,
    mix: Mapping[str, float],
    rate_per_h: float,
    horizon_s: float,
    devices: str,
    seed: int,
) -> Arrivals:
    draws = poisson_draws(
        [kinds[row] for row in members.tolist()],
        rate_per_h=rate_per_h,
        horizon_s=horizon_s,
        rng=np.random.default_rng(seed),
        mix=mix,
    )
    return Arrivals(devices=devices, seed=seed, at_s=draws.at_s, picks=members[draws.picks], outages=NO_OUTAGES)
