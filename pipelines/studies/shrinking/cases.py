"""The cases of a design: loads, mixes, populations and seeds, each case with its arrivals.

Arrivals are drawn here and run in `runs`. Called by `designs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.errors import BadUsage
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S
from pipelines.simulation.engine.workload import NO_OUTAGES, poisson_draws
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.paired_runs import Arrivals
from pipelines.simulation.settings import PAPER_MIX, PAPER_RATE_PER_H
from pipelines.simulation.simulate import ALL, KNOWN
from scheduler_core.types import IntArray

GNN: Final = "gnn"
TYPES: Final = ("cv", "nlp", "gnn", "ctr")
"""The kinds of the paper's mixes, in its order: ResNet, NMT, GraphLearn, CTR."""

PAPER: Final = "5:15:15:65"
MIXES: Final[Mapping[str, Mapping[str, float]]] = {
    PAPER: PAPER_MIX,
    "40:30:20:10": {"cv": 40.0, "nlp": 30.0, "gnn": 20.0, "ctr": 10.0},
    "25:25:25:25": dict.fromkeys(TYPES, 25.0),
}
"""The paper's mixes, cv:nlp:gnn:ctr; the last one is even."""

LOADS_PER_H: Final = (30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0)
WITH, WITHOUT = "with", "without"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load, mix and population under one seed; `gnn` is true if the mix's share of GNN is drawn."""

    rate_per_h: float
    mix: str
    gnn: str
    devices: str
    seed: int
    arrivals: Arrivals


def cases_of(
    pool: Pool,
    *,
    seeds: Sequence[int],
    mixes: Sequence[str] = (PAPER,),
    loads_per_h: Sequence[float] = (PAPER_RATE_PER_H,),
    horizon_s: float = PAPER_HORIZON_S,
) -> list[Case]:
    """Draw every case: with and without GNN over all devices, and over the jobs of known devices where some are not.

    Kinds that a population lacks are left out of its mix; a population that thereby equals another is not drawn twice.

    Raises
    ------
    BadUsage
        If the pool holds no job of a kind other than GNN.
    """
    kinds = [entry.job.task_type for entry in pool.jobs]
    if lacking := [kind for kind in TYPES if kind != GNN and kind not in kinds]:
        raise BadUsage(f"experiment: the pool holds no {', '.join(lacking)} job; the paper's mixes draw all of them")
    return [
        Case(
            rate_per_h=rate,
            mix=mix,
            gnn=gnn,
            devices=devices,
            seed=seed,
            arrivals=_drawn(kinds, members, _weights(mix, gnn), rate, horizon_s, devices, seed),
        )
        for (gnn, devices), members in populations(pool).items()
        for mix in mixes
        for rate in loads_per_h
        for seed in seeds
    ]


def populations(pool: Pool) -> dict[tuple[str, str], IntArray]:
    """Return the pool's rows to draw from, by whether GNN is among them and by devices."""
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


def _weights(mix: str, gnn: str) -> Mapping[str, float]:
    return {kind: weight for kind, weight in MIXES[mix].items() if gnn == WITH or kind != GNN}


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
