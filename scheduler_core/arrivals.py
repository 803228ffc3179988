"""Arrivals: which jobs of a pool reach the cluster when.

Randomness comes in as `rng`; nothing is scheduled here.
Called by `pipelines.simulate` and by tests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.truth import Measured
from scheduler_core.types import FloatArray, Job

SECONDS_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolJob:
    """A job that may arrive, and what its recorded run was (hidden from every policy)."""

    job: Job
    measured: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One arrival: a job of the pool at a moment of the simulation, which starts at 0 s.

    The job keeps its own `submit_ts`: that is the moment its predictions are made for.
    """

    at_s: float
    drawn: PoolJob


def poisson_arrivals(
    pool: Sequence[PoolJob],
    *,
    rate_per_h: float,
    horizon_s: float,
    rng: np.random.Generator,
    mix: Mapping[str, float] | None = None,
) -> list[Arrival]:
    """Draw a Poisson process of jobs over [0, horizon_s), each a uniform draw from the pool (with replacement).

    `mix` weighs the task types (relative weights); within a type the draw is uniform.

    Raises
    ------
    BadInput
        If the pool is empty, the rate or horizon is not positive and finite, or `mix` names a type it lacks.
    """
    if not pool:
        raise BadInput("arrivals: found an empty job pool, expected at least one job")
    if not (0.0 < rate_per_h < np.inf and 0.0 < horizon_s < np.inf):
        raise BadInput(f"arrivals: found rate {rate_per_h}/h over {horizon_s} s, expected positive finite numbers")
    count = int(rng.poisson(rate_per_h * horizon_s / SECONDS_PER_HOUR))
    times = np.sort(rng.uniform(0.0, horizon_s, count))
    picks = rng.choice(len(pool), size=count, p=_weights(pool, mix))
    return [Arrival(at_s=at_s, drawn=pool[pick]) for at_s, pick in zip(times.tolist(), picks.tolist(), strict=True)]


def _weights(pool: Sequence[PoolJob], mix: Mapping[str, float] | None) -> FloatArray:
    if mix is None:
        return np.full(len(pool), 1.0 / len(pool))
    kinds = [entry.job.task_type for entry in pool]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    lacking = sorted(kind for kind, weight in mix.items() if weight > 0 and kind not in counts)
    total = sum(mix.values())
    if lacking or total <= 0 or min(mix.values()) < 0:
        raise BadInput(f"arrivals: found the mix {dict(mix)}, expected weights over types of the pool {sorted(counts)}")
    return np.array([mix.get(kind, 0.0) / counts[kind] / total for kind in kinds])
