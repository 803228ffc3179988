"""Constants of a problem, the plans of a search, and each plan's cost, which is updated when one job changes.

A plan's cost is fixed + rate · horizon. The horizon is the time until the next decision: the first completion, at most
a period. `rate` is in USD per second until then; `fixed` does not depend on the horizon. Called by `moves`, `descent`,
`search`.
"""

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from scheduler_core.kernels.kernel import digest, kernel
from scheduler_core.types import FloatArray, IntArray

__all__ = ["Data", "plans"]

SOURCES: Final = digest(Path(__file__).parent)
"""Digest of this folder's files, part of the cache key: a change of any of them recompiles the code."""

NONE: Final = -1
FIXED: Final = 0
RATE: Final = 1


class Data(NamedTuple):
    """Constants of a problem with J jobs, M nodes and K node types, as in `objective.Terms`.

    `later` (K,) is the cost of a busy GPU in USD per second after the next decision, and `gpu_rate` (K,) its cost
    before the decision minus `later`. `postponed` (J,) is the cost in USD of postponing a job. Each job has `options`
    (J,) possible configurations: node types `option_kind` and GPU counts `option_gpus`, both (2, J, C), in the order of
    the greedy algorithm (index 0) and by energy cost (index 1).
    """

    run_s: FloatArray
    slack_s: FloatArray
    weight: FloatArray
    stay_node: IntArray
    stay_gpus: IntArray
    restart_s: float
    period_s: float
    kind: IntArray
    room: IntArray
    node_rate: FloatArray
    gpu_rate: FloatArray
    later: FloatArray
    postponed: FloatArray
    option_kind: IntArray
    option_gpus: IntArray
    options: IntArray


class Plans(NamedTuple):
    """P plans, one per row.

    By job (P, J): `node`, `gpus`, `run_s`, and the job's part `fixed` of the cost. By node (P, M): `free` GPUs and
    number of `jobs`. `sums` (P, 2) holds the fixed cost and the rate. `low_run` and `low_job` (P, 3) are the run times
    and jobs of the first three completions.

    All other arrays are shared work arrays. `clock` (1,) counts changes. `touched_job` (J,) and `touched_node` (M,)
    hold its value at the last change, `looked` (J,) its value when exchanges with the job were last tried.
    """

    node: IntArray
    gpus: IntArray
    run_s: FloatArray
    fixed: FloatArray
    free: IntArray
    jobs: IntArray
    sums: FloatArray
    low_run: FloatArray
    low_job: IntArray
    order: IntArray
    target_node: IntArray
    target_gpus: IntArray
    match: IntArray
    matched: IntArray
    common: IntArray
    touched_job: IntArray
    touched_node: IntArray
    looked: IntArray
    clock: IntArray


def plans(count: int, data: Data) -> Plans:
    """Return arrays for `count` plans in which every job is unplaced."""
    jobs, nodes = len(data.weight), len(data.kind)
    return Plans(
        node=np.full((count, jobs), NONE, np.int64),
        gpus=np.zeros((count, jobs), np.int64),
        run_s=np.full((count, jobs), np.inf),
        fixed=np.zeros((count, jobs)),
        free=np.zeros((count, nodes), np.int64),
        jobs=np.zeros((count, nodes), np.int64),
        sums=np.zeros((count, 2)),
        low_run=np.full((count, 3), np.inf),
        low_job=np.full((count, 3), NONE, np.int64),
        order=np.zeros(jobs, np.int64),
        target_node=np.zeros(jobs, np.int64),
        target_gpus=np.zeros(jobs, np.int64),
        match=np.zeros(nodes, np.int64),
        matched=np.zeros(nodes, np.int64),
        common=np.zeros(nodes, np.int64),
        touched_job=np.zeros(jobs, np.int64),
        touched_node=np.zeros(nodes, np.int64),
        looked=np.zeros(jobs, np.int64),
        clock=np.zeros(1, np.int64),
    )


@kernel
def run_of(data: Data, job: int, node: int, gpus: int) -> float:
    """Return a job's run time on a node, including a restart if needed; inf if impossible."""
    run_s: float = data.run_s[job, data.kind[node], gpus]
    if data.stay_node[job] != NONE and not (data.stay_node[job] == node and data.stay_gpus[job] == gpus):
        run_s += data.restart_s
    return run_s


@kernel
def fixed_of(data: Data, job: int, kind: int, gpus: int, run_s: float) -> float:
    """Return a job's part of the fixed cost in USD: its tardiness, and its whole run at the later price."""
    usd: float = data.weight[job] * max(0.0, run_s - data.slack_s[job]) + gpus * run_s * data.later[kind]
    return usd


@kernel
def horizon(data: Data, plan: Plans, p: int, without: int, nor: int) -> float:
    """Return the time to the next decision if the jobs `without` and `nor` (each may be NONE) are left out."""
    for place in range(3):
        job = plan.low_job[p, place]
        if job == NONE:
            break
        if job not in (without, nor):
            first_s: float = plan.low_run[p, place]
            return min(data.period_s, first_s)
    return data.period_s


@kernel
def total(data: Data, plan: Plans, p: int) -> float:
    """Return a plan's cost in USD."""
    usd: float = plan.sums[p, FIXED] + plan.sums[p, RATE] * horizon(data, plan, p, NONE, NONE)
    return usd


@kernel
def tolerance(data: Data, plan: Plans, p: int) -> float:
    """Return the minimum decrease of cost that counts as an improvement; it exceeds the rounding errors of `sums`."""
    size: float = abs(plan.sums[p, FIXED]) + abs(plan.sums[p, RATE]) * data.period_s
    return 1e-11 * size + 1e-15


@kernel
def first_completions(plan: Plans, p: int) -> None:
    """Update the three first completions of a plan."""
    for place in range(3):
        plan.low_run[p, place], plan.low_job[p, place] = np.inf, NONE
    for job in range(plan.node.shape[1]):
        run_s = plan.run_s[p, job]
        if run_s >= plan.low_run[p, 2]:
            continue
        place = 2
        while place > 0 and run_s < plan.low_run[p, place - 1]:
            plan.low_run[p, place], plan.low_job[p, place] = plan.low_run[p, place - 1], plan.low_job[p, place - 1]
            place -= 1
        plan.low_run[p, place], plan.low_job[p, place] = run_s, job


@kernel
def assign(data: Data, plan: Plans, p: int, job: int, node: int, gpus: int) -> None:
    """Move a job to a node, or unplace it (NONE), and update the cost; the caller must call `first_completions`."""
    old = plan.node[p, job]
    plan.sums[p, FIXED] -= plan.fixed[p, job]
    if old != NONE:
        plan.sums[p, RATE] -= plan.gpus[p, job] * data.gpu_rate[data.kind[old]]
        plan.free[p, old] += plan.gpus[p, job]
        plan.jobs[p, old] -= 1
        if plan.jobs[p, old] == 0:
            plan.sums[p, RATE] -= data.node_rate[data.kind[old]]
    plan.node[p, job], plan.gpus[p, job] = node, gpus
    if node == NONE:
        plan.run_s[p, job], plan.fixed[p, job] = np.inf, data.postponed[job]
    else:
        kind = data.kind[node]
        plan.run_s[p, job] = run_of(data, job, node, gpus)
        plan.fixed[p, job] = fixed_of(data, job, kind, gpus, plan.run_s[p, job])
        plan.sums[p, RATE] += gpus * data.gpu_rate[kind]
        plan.free[p, node] -= gpus
        if plan.jobs[p, node] == 0:
            plan.sums[p, RATE] += data.node_rate[kind]
        plan.jobs[p, node] += 1
    plan.sums[p, FIXED] += plan.fixed[p, job]


@kernel
def touch(plan: Plans, p: int, job: int, old: int) -> None:
    """Record that a job has just moved from node `old` (or NONE) to its current node."""
    plan.clock[0] += 1
    plan.touched_job[job] = plan.clock[0]
    if old != NONE:
        plan.touched_node[old] = plan.clock[0]
    if plan.node[p, job] != NONE:
        plan.touched_node[plan.node[p, job]] = plan.clock[0]


@kernel
def touch_all(plan: Plans) -> None:
    """Reset the clock, with every job and node marked as changed."""
    plan.clock[0] = 1
    for job in range(len(plan.touched_job)):
        plan.touched_job[job], plan.looked[job] = 1, 0
    for node in range(len(plan.touched_node)):
        plan.touched_node[node] = 1


@kernel
def touch_none(plan: Plans) -> None:
    """Reset the clock, with no job or node marked as changed."""
    plan.clock[0] = 1
    for job in range(len(plan.touched_job)):
        plan.touched_job[job], plan.looked[job] = 0, 1
    for node in range(len(plan.touched_node)):
        plan.touched_node[node] = 0


@kernel
def clear(data: Data, plan: Plans, p: int) -> None:
    """Reset plan `p` to one in which every job is postponed."""
    plan.sums[p, FIXED], plan.sums[p, RATE] = 0.0, 0.0
    for node in range(len(data.kind)):
        plan.free[p, node], plan.jobs[p, node] = data.room[node], 0
    for job in range(len(data.weight)):
        plan.node[p, job], plan.gpus[p, job] = NONE, 0
        plan.run_s[p, job], plan.fixed[p, job] = np.inf, data.postponed[job]
        plan.sums[p, FIXED] += data.postponed[job]
    first_completions(plan, p)


@kernel
def copy(plan: Plans, p: int, q: int) -> None:
    """Copy plan `p` to plan `q`."""
    for job in range(plan.node.shape[1]):
        plan.node[q, job], plan.gpus[q, job] = plan.node[p, job], plan.gpus[p, job]
        plan.run_s[q, job], plan.fixed[q, job] = plan.run_s[p, job], plan.fixed[p, job]
    for node in range(plan.free.shape[1]):
        plan.free[q, node], plan.jobs[q, node] = plan.free[p, node], plan.jobs[p, node]
    for at in range(2):
        plan.sums[q, at] = plan.sums[p, at]
    for place in range(3):
        plan.low_run[q, place], plan.low_job[q, place] = plan.low_run[p, place], plan.low_job[p, place]
