"""Path relinking: change one plan into another, one job at a time, and keep the best plan on the way.

Called by `search`.
"""

from scheduler_core.kernels.cost.state import (
    FIXED,
    NONE,
    RATE,
    Data,
    Plans,
    assign,
    copy,
    first_completions,
    fixed_of,
    horizon,
    run_of,
    total,
)
from scheduler_core.kernels.kernel import kernel


@kernel
def aim(data: Data, plan: Plans, p: int, guide: int) -> None:
    """Set the plan `guide` as target of plan `p`.

    Nodes of one type are interchangeable, so each node of `guide` is matched with the unmatched node of `p` of the same
    type that has most jobs in common with it.
    """
    nodes, jobs = len(data.kind), len(data.weight)
    for node in range(nodes):
        plan.match[node], plan.matched[node], plan.common[node] = NONE, NONE, 0
    for theirs in range(nodes):
        for job in range(jobs):
            if plan.node[guide, job] == theirs and plan.node[p, job] != NONE:
                plan.common[plan.node[p, job]] += 1
        best = NONE
        for ours in range(nodes):
            free = plan.matched[ours] == NONE and data.kind[ours] == data.kind[theirs]
            if free and (best == NONE or plan.common[ours] > plan.common[best]):
                best = ours
        plan.match[theirs], plan.matched[best] = best, theirs
        for node in range(nodes):
            plan.common[node] = 0
    for job in range(jobs):
        theirs = plan.node[guide, job]
        plan.target_node[job] = NONE if theirs == NONE else plan.match[theirs]
        plan.target_gpus[job] = plan.gpus[guide, job]


@kernel
def differs(plan: Plans, p: int, job: int) -> bool:
    """Return whether a job is not yet on its target node with its target GPUs."""
    return bool(plan.node[p, job] != plan.target_node[job] or plan.gpus[p, job] != plan.target_gpus[job])


@kernel
def cost_there(data: Data, plan: Plans, p: int, job: int) -> float:
    """Return the plan's cost after moving a job to its target; inf if the target node has too few free GPUs."""
    old, to, gpus = plan.node[p, job], plan.target_node[job], plan.target_gpus[job]
    fixed: float = plan.sums[p, FIXED] - plan.fixed[p, job]
    rate: float = plan.sums[p, RATE]
    if old != NONE:
        rate -= plan.gpus[p, job] * data.gpu_rate[data.kind[old]]
        if plan.jobs[p, old] == 1 and old != to:
            rate -= data.node_rate[data.kind[old]]
    until = horizon(data, plan, p, job, NONE)
    if to == NONE:
        waiting: float = fixed + data.postponed[job] + rate * until
        return waiting
    if plan.free[p, to] + (plan.gpus[p, job] if old == to else 0) < gpus:
        return float("inf")
    run_s, kind = run_of(data, job, to, gpus), data.kind[to]
    rate += gpus * data.gpu_rate[kind]
    if plan.jobs[p, to] == 0:
        rate += data.node_rate[kind]
    there: float = fixed + fixed_of(data, job, kind, gpus, run_s) + rate * min(until, run_s)
    return there


@kernel
def make_room(data: Data, plan: Plans, p: int, job: int) -> None:
    """Postpone all other jobs on a job's target node that are not yet at their own targets."""
    for other in range(len(data.weight)):
        if other != job and plan.node[p, other] == plan.target_node[job] and differs(plan, p, other):
            assign(data, plan, p, other, NONE, 0)


@kernel
def walk(data: Data, plan: Plans, p: int, guide: int, best: int) -> None:
    """Change plan `p` into plan `guide`, each time by the cheapest move; copy the best plan on the way to `best`.

    Neither given plan counts as on the way, unless no other plan lies between them.
    """
    aim(data, plan, p, guide)
    copy(plan, p, best)
    least, ahead = float("inf"), 0
    for job in range(len(data.weight)):
        ahead += differs(plan, p, job)
    for _ in range(2 * ahead):  # at most two moves per job: postponed for another job, then to its target
        step, cheapest, stuck, left = NONE, float("inf"), NONE, 0
        for job in range(len(data.weight)):
            if not differs(plan, p, job):
                continue
            left += 1
            usd = cost_there(data, plan, p, job)
            if usd < cheapest:
                step, cheapest = job, usd
            elif usd == float("inf") and stuck == NONE:
                stuck = job
        if left <= 1:
            break
        if step == NONE:
            step = stuck
            make_room(data, plan, p, step)
        assign(data, plan, p, step, plan.target_node[step], plan.target_gpus[step])
        first_completions(plan, p)
        usd = total(data, plan, p)
        if usd < least:
            least = usd
            copy(plan, p, best)
