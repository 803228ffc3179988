"""Entry point of the simulator: check the input, choose an engine, and return a schedule.

The readable engine is `plain`, the fast one `compiled`. The same input always gives the same schedule. Metrics are
computed in `measures`.
Called by `pipelines.simulation`, the studies and tests.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, get_args

import numpy as np

from pipelines.simulation.engine.plain import run_plain
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import NO_OUTAGES, Outages, Workload, check_outages
from scheduler_core.cluster import Machine
from scheduler_core.devices import rounded
from scheduler_core.errors import BadInput
from scheduler_core.placement import sharing_of
from scheduler_core.queueing import Discipline

__all__ = ["PAPER_HORIZON_S", "simulate"]

PAPER_HORIZON_S: Final = 12 * 3600.0
"""Horizon of the experiments of Yang, Hong and Tang: 12 hours."""

Engine = Literal["auto", "compiled", "plain"]

COMPILED_FROM: Final = 2000
"""Minimum number of arrivals from which `auto` uses the compiled engine.

The first use on a computer compiles for half a minute; `plain` simulates fewer arrivals in seconds.
"""


def simulate(
    workload: Workload,
    machines: Sequence[Machine],
    discipline: Discipline | None = None,
    *,
    horizon_s: float = math.inf,
    outages: Outages = NO_OUTAGES,
    engine: Engine = "auto",
) -> Schedule:
    """Simulate the arrivals until the horizon; an infinite horizon ends at the last event.

    The engine `plain` accepts any policy and placement. The engine `compiled` accepts only named policies and
    placements, and pooled GPUs. `auto` uses `compiled` if it can and if that is faster. Both give the same schedule.
    If GPUs are shared by devices, instances of more than one GPU are first rounded up to whole GPUs, and the schedule
    holds the rounded workload.

    Raises
    ------
    BadInput
        If a name is unknown, there is no machine, a number is out of range, rules of the discipline contradict each
        other, or a simulation without a horizon might never end.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2 (rounds) and their experiments (Poisson arrivals, 12 hours).

    Examples
    --------
    >>> from scheduler_core.cluster import paper_machines
    >>> none = np.empty(0)
    >>> empty = Workload(
    ...     arrive_s=none, request_units=np.empty((0, 3)), granted_units=np.empty((0, 3)), instances=none,
    ...     gpu_type=none, user=none, priority=none, run_s=none, granted_run_s=none, dies=none,
    ...     fails=none, predicted_s=none)
    >>> simulate(empty, paper_machines(), horizon_s=60.0, engine="plain").end_s
    60.0
    """
    discipline = discipline or Discipline()
    if engine not in get_args(Engine):
        raise BadInput(f"engine: found {engine!r}, expected one of {', '.join(get_args(Engine))}")
    _check(workload, machines, discipline, horizon_s, outages)
    if sharing_of(discipline.placement, discipline.sharing) == "devices":
        if engine == "compiled":
            raise BadInput("engine: found compiled with GPUs shared by devices, expected plain or auto")
        return run_plain(_in_devices(workload), machines, discipline, horizon_s, outages)
    named = isinstance(discipline.policy, str) and isinstance(discipline.placement, str)
    if engine == "compiled" and not named:
        raise BadInput("engine: found compiled with a policy or placement that is not a name; pass plain")
    if engine == "plain" or not named or (engine == "auto" and len(workload) < COMPILED_FROM):
        return run_plain(workload, machines, discipline, horizon_s, outages)
    # Imported only here, because importing numba and the compiled code takes seconds.
    from pipelines.simulation.engine.compiled import run_compiled

    return run_compiled(workload, machines, discipline, horizon_s, outages)


def _check(
    workload: Workload, machines: Sequence[Machine], discipline: Discipline, horizon_s: float, outages: Outages
) -> None:
    if not horizon_s > 0.0:
        raise BadInput(f"simulation: found a horizon of {horizon_s} s, expected more than 0")
    if not machines:
        raise BadInput("cluster: found no machine, expected at least one")
    check_outages(outages, len(machines))
    if discipline.preempts() and math.isinf(horizon_s):
        _check_that_it_ends(workload, discipline)


def _in_devices(workload: Workload) -> Workload:
    """Return the workload with every instance of more than one GPU rounded up to whole GPUs."""
    request_units, granted_units = workload.request_units.copy(), workload.granted_units.copy()
    for units in (request_units, granted_units):
        units[:, 2] = rounded(units[:, 2])
    return replace(workload, request_units=request_units, granted_units=granted_units)


def _check_that_it_ends(workload: Workload, discipline: Discipline) -> None:
    """Raise BadInput if preemption could go on forever.

    A run makes progress only if its quantum is longer than the restart that a preemption adds.
    """
    if discipline.restart_cost_s >= discipline.quantum_s:
        raise BadInput(
            f"discipline: found restart_cost_s={discipline.restart_cost_s} and quantum_s={discipline.quantum_s}, no "
            "horizon, expected a restart that costs less than the quantum; or pass horizon_s"
        )
    endless = ~(np.isfinite(workload.run_s) & np.isfinite(workload.granted_run_s))
    if endless.any():
        raise BadInput(
            f"workload: found an infinite run time in row {int(endless.argmax())} under preemption without a horizon, "
            "expected finite ones; or pass horizon_s"
        )
