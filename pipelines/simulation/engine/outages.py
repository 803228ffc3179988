"""Outages of machines drawn from a rate: up for a while, away for a while, each of exponential length.

`workload.Outages` is what they are; what they do to gangs is in `rounds`.
Called by `pipelines` and by tests.
"""

import math

import numpy as np

from pipelines.simulation.engine.workload import Outages
from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray


def draw_outages(
    machines: int, *, between_s: float, repair_s: float, horizon_s: float, rng: np.random.Generator
) -> Outages:
    """Draw when each of the machines is away, from its mean time between failures and mean time to repair.

    All machines are up at 0 s; an outage begins before the horizon and may end beyond it.

    Raises
    ------
    BadInput
        If there is no machine, or a time is not positive and finite.

    References
    ----------
    Kokolis et al.: Revisiting Reliability in Large-Scale Machine Learning Research Clusters, HPCA 2025, for rates.

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
    """Refuse outages of machines that the cluster lacks.

    Raises
    ------
    BadInput
        If an index is not below the number of machines.
    """
    beyond = outages.machine >= machines
    if beyond.any():
        raise BadInput(
            f"outages: found machine {outages.machine[beyond][0]} in row {int(beyond.argmax())}, "
            f"expected an index below {machines}, the number of machines"
        )


def _of_one_machine(
    between_s: float, repair_s: float, horizon_s: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw one machine's life: so long up, so long away, and so on."""
    down_s: list[float] = []
    up_s: list[float] = []
    now_s = float(rng.exponential(between_s))
    while now_s < horizon_s:
        down_s.append(now_s)
        # However short the repair, an outage ends after it began.
        up_s.append(max(now_s + float(rng.exponential(repair_s)), float(np.nextafter(now_s, math.inf))))
        now_s = up_s[-1] + float(rng.exponential(between_s))
    return np.array(down_s, dtype=np.float64), np.array(up_s, dtype=np.float64)
