"""The input of a simulation: arriving jobs as columns, outages of machines, and random draws of both.

Recommendations and slowdown models have already been applied: the allocation and the run time of each job's first start
are columns.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.queueing import Jobs
from scheduler_core.types import RESOURCES, FloatArray, IntArray

__all__ = ["NO_OUTAGES", "SECONDS_PER_HOUR", "Outages", "Workload", "poisson_draws"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """Outages of machines, sorted by their start `down_s`: `machine` is an index, and the end `up_s` may be infinite.

    A job with an instance on a failing machine loses its work, and waits again with its original arrival time.
    """

    machine: IntArray
    down_s: FloatArray
    up_s: FloatArray

    def __post_init__(self) -> None:
        holds = (self.machine >= 0) & (self.up_s > self.down_s) & (np.diff(self.down_s, prepend=0.0) >= 0.0)
        if not holds.all():
            row = int(np.argmin(holds))
            raise BadInput(
                f"outages: found machine {self.machine[row]} down at {self.down_s[row]} s, up at {self.up_s[row]} s in "
                f"row {row}; expected an index, an end after the start, and ascending starts"
            )


NO_OUTAGES = Outages(
    machine=np.empty(0, dtype=np.int64), down_s=np.empty(0, dtype=np.float64), up_s=np.empty(0, dtype=np.float64)
)


def draw_outages(
    machines: int, *, between_s: float, repair_s: float, horizon_s: float, rng: np.random.Generator
) -> Outages:
    """Draw outages of each machine from its mean time between failures and mean time to repair.

    Times to failure and times to repair are exponential. All machines are up at 0 s. An outage begins before the
    horizon and may end after it.


    References
    ----------
    Kokolis et al.: Revisiting Reliability in Large-Scale Machine Learning Research Clusters, HPCA 2025: failure rates.

    Examples
    --------
    >>> drawn = draw_outages(2, between_s=3600, repair_s=600, horizon_s=7200, rng=np.random.default_rng(7))
    >>> drawn.machine.tolist(), drawn.down_s.round().tolist(), drawn.up_s.round().tolist()
    ([0, 0, 0], [2547.0, 5209.0, 6490.0], [3162.0, 5746.0, 8520.0])
    """
    for name, value in (("between_s", between_s), ("repair_s", repair_s), ("horizon_s", horizon_s)):
        if not 0.0 < value < math.inf:
            raise BadInput(f"outages: found {name}={value}, expected a positive finite number of seconds")
    if machines < 1:
        raise BadInput(f"outages: found {machines} machines, expected at least one")
    drawn = [_of_one_machine(between_s, repair_s, horizon_s, rng) for _ in range(machines)]
    machine = np.repeat(np.arange(machines, dtype=np.int64), [len(down_s) for down_s, _ in drawn])
    down_s = np.concatenate([down_s for down_s, _ in drawn])
    up_s = np.concatenate([up_s for _, up_s in drawn])
    order = np.lexsort((machine, down_s))
    return Outages(machine=machine[order], down_s=down_s[order], up_s=up_s[order])


def check_outages(outages: Outages, machines: int) -> None:
    """Raise BadInput if an outage names a machine that the cluster lacks."""
    beyond = outages.machine >= machines
    if beyond.any():
        raise BadInput(
            f"outages: found machine {outages.machine[beyond][0]} in row {int(beyond.argmax())}, "
            f"expected an index below {machines}, the number of machines"
        )


def _of_one_machine(
    between_s: float, repair_s: float, horizon_s: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw the outages of one machine; return their starts and their ends."""
    down_s: list[float] = []
    up_s: list[float] = []
    now_s = float(rng.exponential(between_s))
    while now_s < horizon_s:
        down_s.append(now_s)
        # A repair time may be too short to change the float: take the next larger float as the end.
        up_s.append(max(now_s + float(rng.exponential(repair_s)), float(np.nextafter(now_s, math.inf))))
        now_s = up_s[-1] + float(rng.exponential(between_s))
    return np.array(down_s, dtype=np.float64), np.array(up_s, dtype=np.float64)


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
