"""The input of a simulation: arriving jobs as columns, and random draws of them.

Recommendations and slowdown models have already been applied: the allocation and the run time of each job's first start
are columns.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.queueing import Jobs
from scheduler_core.types import RESOURCES, FloatArray, IntArray

__all__ = ["SECONDS_PER_HOUR", "Workload", "poisson_draws"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(Jobs):
    """Arriving jobs (n) in the order of arrival; the row number is the job's serial, which breaks ties.

    Attributes
    ----------
    arrive_s
        Seconds since the start of the simulation, ascending.
    request_units, granted_units
        Resources of one instance in the units of `cluster.UNITS`; shape (n, 3), int64. `granted_units` is allocated at
        the first start and is at most the full request `request_units`. After a kill a job gets its full request.
    instances
        Number of instances of the job (its gang), at least 1; all start and end together.
    gpu_type
        Index into `gpu_types`, or `ANY_GPU_TYPE`. A name may list alternatives ("V100M16|V100M32").
    user
        Code of the user, 0 or more; DRF sorts jobs by the dominant share of their user.
    priority
        Priority of the job: under the policy `priority` the largest goes first.
    run_s
        Run time at the full request.
    granted_run_s
        How long the first start runs, slowdown included, until it ends or (if `dies`) is killed.
    dies
        Whether the first start is killed for lack of memory; the job then runs again at its full request.
    fails
        Whether the job failed in the trace: it then leaves the cluster but does not count as completed.
    predicted_s
        Predicted run time (p50), which queue policies and backfill use; NaN if unknown.
    """

    gpu_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.arrive_s)
        for each in fields(self):
            column = getattr(self, each.name)
            shape = (count, len(RESOURCES)) if each.name.endswith("_units") else (count,)
            if each.name != "gpu_types" and np.shape(column) != shape:
                raise BadInput(f"workload: found {each.name} of shape {np.shape(column)}, expected {shape}")
        rules = {
            "arrive_s": np.isfinite(self.arrive_s) & (np.diff(self.arrive_s, prepend=-np.inf) >= 0.0),
            "request_units": (self.request_units >= 0).all(axis=1),
            "granted_units": ((self.granted_units >= 0) & (self.granted_units <= self.request_units)).all(axis=1),
            "instances": self.instances >= 1,
            "gpu_type": (self.gpu_type >= ANY_GPU_TYPE) & (self.gpu_type < len(self.gpu_types)),
            "user": self.user >= 0,
            "priority": np.isfinite(self.priority),
            "run_s": self.run_s > 0.0,
            "granted_run_s": self.granted_run_s > 0.0,
            "predicted_s": np.isnan(self.predicted_s) | (self.predicted_s >= 0.0),
        }
        for name, holds in rules.items():
            if not holds.all():
                row = int(np.argmin(holds))
                found = np.asarray(getattr(self, name))[row]
                raise BadInput(f"workload: found {name} = {found} in row {row}, expected a value as Workload documents")

    def __len__(self) -> int:
        return len(self.arrive_s)


SECONDS_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Drawn arrivals (n): job `picks[i]` of a pool arrives at `at_s[i]`; `at_s` ascends."""

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
    """Draw Poisson arrivals in [0, horizon_s), and for each arrival a job of a pool, with replacement.

    `kinds` holds the task type of each job of the pool, and `mix` the relative weights of task types. Within a type,
    and without a `mix`, all jobs are equally likely.


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
