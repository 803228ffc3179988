"""Moves of single jobs to other nodes, and of all jobs away from a node, where they lower the cost of a plan.

Exchanges of two jobs are in `descent`, which calls this module.
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
    tolerance,
    total,
    touch,
)
from scheduler_core.kernels.kernel import kernel


@kernel
def best_place(data: Data, plan: Plans, p: int, job: int, banned: int) -> tuple[float, int, int]:
    """Find the cheapest node and number of GPUs for an unplaced job; return the plan cost, node and GPUs.

    The node is NONE if postponing the job is cheapest. Of the switched-off nodes only the first of each type and the
    node that the job now runs on are tried. The node `banned` (or NONE) is not used.
    """
    fixed = plan.sums[p, FIXED] - plan.fixed[p, job]
    rate, until = plan.sums[p, RATE], horizon(data, plan, p, job, NONE)
    best, at, with_gpus = fixed + data.postponed[job] + rate * until, NONE, 0
    seen = 0  # bit k is set once a switched-off node of type k has been tried
    for node in range(len(data.kind)):
        free, kind = plan.free[p, node], data.kind[node]
        if free == 0 or node == banned:
            continue
        opened = 0.0
        if plan.jobs[p, node] == 0:
            if seen & (1 << kind) and node != data.stay_node[job]:
                continue
            seen |= 1 << kind
            opened = data.node_rate[kind]
        for gpus in range(1, free + 1):
            run_s = run_of(data, job, node, gpus)
            usd = fixed + fixed_of(data, job, kind, gpus, run_s)
            usd += (rate + opened + gpus * data.gpu_rate[kind]) * min(until, run_s)
            if usd < best:  # never true for an impossible configuration: its usd is inf
                best, at, with_gpus = usd, node, gpus
    return best, at, with_gpus


@kernel
def move_each(data: Data, plan: Plans, p: int) -> bool:
    """Move every job in turn to the node and GPUs with the lowest plan cost; return whether any job moved."""
    moved = False
    for job in range(len(data.weight)):
        before, old, gpus = total(data, plan, p), plan.node[p, job], plan.gpus[p, job]
        node, better = old, False
        if node != NONE:
            assign(data, plan, p, job, NONE, 0)
            first_completions(plan, p)
        after, to, with_gpus = best_place(data, plan, p, job, NONE)
        if after < before - tolerance(data, plan, p):
            node, gpus, better = to, with_gpus, True
        if node != NONE:
            assign(data, plan, p, job, node, gpus)
            first_completions(plan, p)
        if better:
            touch(plan, p, job, old)
            moved = True
    return moved


@kernel
def empty_each(data: Data, plan: Plans, p: int, spare: int) -> bool:
    """Move all jobs off each node in turn if that lowers the cost; return whether any did; overwrite plan `spare`."""
    paid = False
    for node in range(len(data.kind)):
        if plan.jobs[p, node] == 0:
            continue
        before = total(data, plan, p)
        copy(plan, p, spare)
        for job in range(len(data.weight)):
            if plan.node[spare, job] == node:
                assign(data, plan, p, job, NONE, 0)
        first_completions(plan, p)
        for job in range(len(data.weight)):
            if plan.node[spare, job] == node:
                _, to, gpus = best_place(data, plan, p, job, node)
                if to != NONE:
                    assign(data, plan, p, job, to, gpus)
                    first_completions(plan, p)
        if total(data, plan, p) < before - tolerance(data, plan, p):
            paid = True
            for job in range(len(data.weight)):
                if plan.node[spare, job] == node:
                    touch(plan, p, job, node)
        else:
            copy(plan, spare, p)
    return paid
