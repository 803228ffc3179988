"""Arrivals: which jobs of a pool reach the cluster when.

Randomness comes in as `rng`; nothing is scheduled here.
Called by `pipelines.simulation.simulate` and by tests.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.truth import Measured
from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray, IntArray, Job

SECONDS_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolJob:
    """A job that may arrive, and what its recorded run was (hidden from every policy)."""

    job: Job
    measured: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Arrivals as columns (n): job `picks[i]` of a pool arrives at `at_s[i]`, ascending."""

    at_s: FloatArray
    picks: IntArray


def poisson_draws(
    kinds: Sequence[str],
    *,
    rate_per_h: float,
    horizon_s: float,
    rng: np.random.Generator,
    mix: Mapping[str, float] | None = None,
) -> Draws:
    """Draw a Poisson process of jobs over [0, horizon_s), each a uniform draw from a pool (with replacement).

    `kinds` are the task types of the pool's jobs; `mix` weighs them (relative weights); within a type the draw is
    uniform.

    Raises
    ------
    BadInput
        If the pool is empty, the rate or horizon is not positive and finite, or `mix` names a type it lacks.

    Examples
    --------
    >>> poisson_draws(["ctr", "cv"], rate_per_h=1e6, horizon_s=3600.0, rng=np.random.default_rng(1)).picks[:5].tolist()
    [0, 1, 1, 0, 1]
    """
    if not kinds:
        raise BadInput("arrivals: found an empty job pool, expected at least one job")
    if not (0.0 < rate_per_h < np.inf and 0.0 < horizon_s < np.inf):
        raise BadInput(f"arrivals: found rate {rate_per_h}/h over {horizon_s} s, expected positive finite numbers")
    count = int(rng.poisson(rate_per_h * horizon_s / SECONDS_PER_HOUR))
    at_s = np.sort(rng.uniform(0.0, horizon_s, count))
    return Draws(at_s=at_s, picks=rng.choice(len(kinds), size=count, p=_weights(kinds, mix)))


def _weights(kinds: Sequence[str], mix: Mapping[str, float] | None) -> FloatArray:
    if mix is None:
        return np.full(len(kinds), 1.0 / len(kinds))
    counts = Counter(kinds)
    lacking = sorted(kind for kind, weight in mix.items() if weight > 0 and kind not in counts)
    total = sum(mix.values())
    if lacking or total <= 0 or min(mix.values()) < 0:
        raise BadInput(f"arrivals: found the mix {dict(mix)}, expected weights over types of the pool {sorted(counts)}")
    return np.array([mix.get(kind, 0.0) / counts[kind] / total for kind in kinds])
