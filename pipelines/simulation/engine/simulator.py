"""Entry point of the simulator: check the input, run the rules of `scheduler_core`, and return a schedule.

The same input always gives the same schedule. Metrics are computed in `measures`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, get_args

import numpy as np

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Cluster, Machine
from scheduler_core.engine import begun, effort_s, goals_of, pays, run
from scheduler_core.errors import BadInput
from scheduler_core.gangs import rounded
from scheduler_core.kernels.state import State
from scheduler_core.placement import PLACEMENTS, sharing_of
from scheduler_core.queueing import Discipline
from scheduler_core.target import TargetWorkload

__all__ = ["PAPER_HORIZON_S", "simulate"]

PAPER_HORIZON_S: Final = 12 * 3600.0
"""Horizon of the experiments of Yang, Hong and Tang: 12 hours."""

Engine = Literal["auto", "compiled", "python"]


def simulate(
    workload: Workload,
    machines: Sequence[Machine],
    discipline: Discipline | None = None,
    *,
    horizon_s: float = math.inf,
    target: TargetWorkload | None = None,
    engine: Engine = "auto",
) -> Schedule:
    """Simulate the arrivals until the horizon; an infinite horizon ends at the last event.

    The rules run as `python` or `compiled`, with the same schedule; `auto` compiles if that is estimated to be faster.
    If GPUs are shared by devices, instances of more than one GPU are first rounded up to whole GPUs, and the schedule
    holds the rounded workload.
    `target` is what `fgd` keeps GPUs usable for; by default it is learnt from the arrivals.

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
    >>> simulate(empty, paper_machines(), horizon_s=60.0).end_s
    60.0
    """
    discipline = discipline or Discipline()
    if engine not in get_args(Engine):
        raise BadInput(f"engine: found {engine!r}, expected one of {', '.join(get_args(Engine))}")
    _check(workload, machines, discipline, horizon_s)
    sharing = sharing_of(discipline.placement, discipline.sharing)
    workload = in_devices(workload) if sharing == "devices" else workload
    cluster = Cluster(machines, sharing)
    learns = PLACEMENTS[discipline.placement].aims and target is None
    goals = goals_of(workload, cluster, discipline) if learns else []
    state = begun(workload, cluster, discipline, horizon_s=horizon_s, target=target)
    compiled = engine == "compiled" or (engine == "auto" and pays(effort_s(len(workload), len(machines), discipline)))
    return _schedule(
        run(state, goals, compiled=compiled), workload, machines, horizon_s, by_device=sharing == "devices"
    )


def _schedule(
    state: State, workload: Workload, machines: Sequence[Machine], horizon_s: float, *, by_device: bool
) -> Schedule:
    tally, jobs, log = state.queue.tally[0], state.queue.jobs, state.log
    runs, hosts = log.runs[: tally["runs"] + 1], int(tally["hosts"])
    return Schedule(
        workload=workload,
        machines=tuple(machines),
        end_s=float(horizon_s if math.isfinite(horizon_s) else tally["now_s"]),
        job=runs["job"][:-1].copy(),
        start_s=runs["start_s"][:-1].copy(),
        end_run_s=runs["end_s"][:-1].copy(),
        full=runs["full"][:-1].copy(),
        ending=runs["ending"][:-1].copy(),
        host_offsets=runs["first_host"].copy(),
        hosts=log.hosts[:hosts].copy(),
        host_counts=log.counts[:hosts].copy(),
        never_fits=jobs["never_fits"].copy(),
        finished_s=jobs["finished_s"].copy(),
        host_devices=log.devices[:hosts].copy() if by_device else None,
    )


def _check(workload: Workload, machines: Sequence[Machine], discipline: Discipline, horizon_s: float) -> None:
    if not horizon_s > 0.0:
        raise BadInput(f"simulation: found a horizon of {horizon_s} s, expected more than 0")
    if not machines:
        raise BadInput("cluster: found no machine, expected at least one")
    if discipline.preempts() and math.isinf(horizon_s):
        _check_that_it_ends(workload, discipline)


def in_devices(workload: Workload) -> Workload:
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
