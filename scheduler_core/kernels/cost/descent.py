"""Local search: change a plan until no move or exchange of two jobs lowers its cost, then empty nodes and refill them.

Moves of single jobs are in `moves`. Called by `search`.
"""

from typing import Final

from scheduler_core.kernels.cost.moves import best_place, empty_each, move_each
from scheduler_core.kernels.cost.state import (
    FIXED,
    NONE,
    RATE,
    Data,
    Plans,
    assign,
    first_completions,
    fixed_of,
    horizon,
    run_of,
    tolerance,
    total,
    touch,
)
from scheduler_core.kernels.kernel import kernel
from scheduler_core.types import FloatArray

__all__ = ["DRAWS"]


@kernel
def place_again(
    data: Data, job: int, node: int, room: int, opened: float, fixed: float, rate: float, until: float
) -> tuple[float, int]:
    """Return the least plan cost with a job on a node, and the job's GPUs there; inf if the job cannot run on the node.

    `room` is the number of free GPUs on the node, `opened` the USD per second if it must be switched on, else 0.
    `fixed`, `rate` and `until` are the fixed cost, rate and horizon of the plan without the job.
    """
    best, with_gpus, kind = float("inf"), 0, data.kind[node]
    for gpus in range(1, room + 1):
        run_s = run_of(data, job, node, gpus)
        usd = fixed + fixed_of(data, job, kind, gpus, run_s)
        usd += (rate + opened + gpus * data.gpu_rate[kind]) * min(until, run_s)
        if usd < best:
            best, with_gpus = usd, gpus
    return best, with_gpus


@kernel
def best_exchange(
    data: Data, plan: Plans, p: int, job: int, other: int, third: int, third_gpus: int
) -> tuple[float, int, int, int]:
    """Find the cheapest way to put `job` on the node of `other`.

    `other` then stays on its node with fewer GPUs, moves to the old node of `job`, moves to the node `third` with
    `third_gpus`, or is postponed. Return the plan cost, the GPUs of `job`, and the new node and GPUs of `other`.
    """
    node, old = plan.node[p, other], plan.node[p, job]
    kind = data.kind[node]
    fixed = plan.sums[p, FIXED] - plan.fixed[p, job] - plan.fixed[p, other]
    rate = plan.sums[p, RATE] - plan.gpus[p, other] * data.gpu_rate[kind]
    room, left, old_opened = plan.free[p, node] + plan.gpus[p, other], plan.jobs[p, node] - 1, 0.0
    if old != NONE:
        rate -= plan.gpus[p, job] * data.gpu_rate[data.kind[old]]
        if old == node:
            room += plan.gpus[p, job]
            left -= 1
        elif plan.jobs[p, old] == 1:
            old_opened = data.node_rate[data.kind[old]]
            rate -= old_opened
    if left == 0:
        rate -= data.node_rate[kind]
    without = horizon(data, plan, p, job, other)
    best, with_gpus, to, to_gpus = float("inf"), 0, NONE, 0
    for gpus in range(1, room + 1):
        run_s = run_of(data, job, node, gpus)
        until = min(without, run_s)
        if run_s == float("inf"):
            continue
        now = fixed + fixed_of(data, job, kind, gpus, run_s)
        then = rate + gpus * data.gpu_rate[kind] + (data.node_rate[kind] if left == 0 else 0.0)
        usd = now + data.postponed[other] + then * until
        if usd < best:
            best, with_gpus, to, to_gpus = usd, gpus, NONE, 0
        usd, fewer = place_again(data, other, node, room - gpus, 0.0, now, then, until)
        if usd < best:
            best, with_gpus, to, to_gpus = usd, gpus, node, fewer
        if old not in (NONE, node):
            within = plan.free[p, old] + plan.gpus[p, job]
            usd, fewer = place_again(data, other, old, within, old_opened, now, then, until)
            if usd < best:
                best, with_gpus, to, to_gpus = usd, gpus, old, fewer
        if third not in (NONE, node, old):
            run_s = run_of(data, other, third, third_gpus)
            opened = data.node_rate[data.kind[third]] if plan.jobs[p, third] == 0 else 0.0
            usd = now + fixed_of(data, other, data.kind[third], third_gpus, run_s)
            usd += (then + opened + third_gpus * data.gpu_rate[data.kind[third]]) * min(until, run_s)
            if usd < best:
                best, with_gpus, to, to_gpus = usd, gpus, third, third_gpus
    return best, with_gpus, to, to_gpus


@kernel
def changed(plan: Plans, p: int, job: int, since: int) -> bool:
    """Return whether a job or its node changed after the clock value `since`."""
    node = plan.node[p, job]
    return bool(plan.touched_job[job] > since or (node != NONE and plan.touched_node[node] > since))


@kernel
def any_changed(plan: Plans, p: int, other: int, since: int) -> bool:
    """Return whether any job, `other` first, or the node of any job changed after the clock value `since`."""
    found: bool = changed(plan, p, other, since)
    for job in range(plan.node.shape[1]):
        if not found:
            found = changed(plan, p, job, since)
    return found


@kernel
def displace_each(data: Data, plan: Plans, p: int) -> bool:
    """Exchange every placed job with its best partner if that lowers the cost; return whether any exchange was made.

    A pair is not tried again until one of the two jobs or one of their nodes has changed.
    """
    moved = False
    for other in range(len(data.weight)):
        node = plan.node[p, other]
        if node == NONE:
            continue
        gpus, since = plan.gpus[p, other], plan.looked[other]
        if not any_changed(plan, p, other, since):
            continue
        assign(data, plan, p, other, NONE, 0)
        first_completions(plan, p)
        _, third, third_gpus = best_place(data, plan, p, other, node)
        assign(data, plan, p, other, node, gpus)
        first_completions(plan, p)
        least, who = total(data, plan, p) - tolerance(data, plan, p), NONE
        there, to, to_gpus = 0, NONE, 0
        for job in range(len(data.weight)):
            if job == other or not (changed(plan, p, other, since) or changed(plan, p, job, since)):
                continue
            usd, with_gpus, other_to, other_gpus = best_exchange(data, plan, p, job, other, third, third_gpus)
            if usd < least:
                least, who, there, to, to_gpus = usd, job, with_gpus, other_to, other_gpus
        if who != NONE:
            left = plan.node[p, who]
            assign(data, plan, p, other, NONE, 0)
            assign(data, plan, p, who, node, there)
            if to != NONE:
                assign(data, plan, p, other, to, to_gpus)
            first_completions(plan, p)
            touch(plan, p, who, left)
            touch(plan, p, other, node)
            moved = True
        else:
            plan.looked[other] = plan.clock[0]
    return moved


ROUNDS: Final = 50
"""Maximum number of rounds of `settle`; more than ten are rarely needed."""

MOST_EMPTIED: Final = 3
DRAWS: Final = 1 + MOST_EMPTIED
"""Random numbers per call of `refill`: one for the number of nodes to empty, the others for which nodes."""


@kernel
def settle(data: Data, plan: Plans, p: int, spare: int, displacing: bool) -> None:
    """Improve plan `p` until no move (or exchange, if `displacing`) lowers its cost; plan `spare` is overwritten."""
    for _ in range(ROUNDS):
        moved = move_each(data, plan, p)
        if not moved:
            moved = empty_each(data, plan, p, spare)
        if not moved and displacing:
            moved = displace_each(data, plan, p)
        if not moved:
            break


@kernel
def refill(data: Data, plan: Plans, p: int, draws: FloatArray, row: int, column: int) -> None:
    """Empty 1 to `MOST_EMPTIED` random nodes of plan `p`, then place all unplaced jobs, starting from a random job."""
    nodes, jobs = len(data.kind), len(data.weight)
    many = draws[row, column] * MOST_EMPTIED
    for pick in range(1 + int(many)):
        node = int(draws[row, column + 1 + pick] * nodes)
        for job in range(jobs):
            if plan.node[p, job] == node:
                assign(data, plan, p, job, NONE, 0)
                touch(plan, p, job, node)
    first_completions(plan, p)
    begin = int((many - int(many)) * jobs)
    for step in range(jobs):
        job = (begin + step) % jobs
        if plan.node[p, job] != NONE:
            continue
        _, node, gpus = best_place(data, plan, p, job, NONE)
        if node != NONE:
            assign(data, plan, p, job, node, gpus)
            first_completions(plan, p)
            touch(plan, p, job, NONE)
