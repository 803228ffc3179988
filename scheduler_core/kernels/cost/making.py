"""A plan made job by job: the order shuffled a little, each job on the first of its configurations that fits.

With draws that change nothing it is the deterministic greedy, equal to `scheduler_core.planning.cost.greedy`.
Called by `search`.
"""

import math

from scheduler_core.kernels.cost.state import NONE, Data, Plans, assign, clear, first_completions
from scheduler_core.kernels.kernel import kernel
from scheduler_core.types import FloatArray


@kernel
def shuffle(data: Data, plan: Plans, draws: FloatArray, row: int, swapping: float) -> None:
    """Order the jobs: as they are, but each may change places with the next one, the more so the more that weighs."""
    jobs = len(data.weight)
    for job in range(jobs):
        plan.order[job] = job
    for place in range(jobs - 1):
        here, there = plan.order[place], plan.order[place + 1]
        both = data.weight[here] + data.weight[there]
        share = data.weight[there] / both if both > 0.0 else 0.5
        if draws[row, place] < swapping * share:
            plan.order[place], plan.order[place + 1] = there, here


@kernel
def fitting(data: Data, plan: Plans, p: int, job: int, kind: int, gpus: int) -> int:
    """Return the node for a configuration: where the job runs so now, else the best fit that is on, else one off."""
    stay: int = data.stay_node[job]
    if stay != NONE and data.kind[stay] == kind and data.stay_gpus[job] == gpus and plan.free[p, stay] >= gpus:
        return stay
    found, off = NONE, NONE
    for node in range(len(data.kind)):
        if data.kind[node] != kind or plan.free[p, node] < gpus:
            continue
        if plan.jobs[p, node] == 0:
            if off == NONE:
                off = node
        elif found == NONE or plan.free[p, node] < plan.free[p, found]:
            found = node
    return off if found == NONE else found


@kernel
def make(
    data: Data, plan: Plans, p: int, draws: FloatArray, row: int, way: int, swapping: float, wandering: float
) -> None:
    """Make a plan; a job's first try is its r-th configuration with probability falling as `wandering` ** r.

    `way` is the order of configurations: 0 the greedy's, 1 by energy alone (ours: on a crowded cluster the greedy
    gives few jobs many GPUs, from where no single move leads away).
    """
    clear(data, plan, p)
    shuffle(data, plan, draws, row, swapping)
    jobs = len(data.weight)
    for place in range(jobs):
        job = plan.order[place]
        count = data.options[job]
        if count == 0:
            continue
        first = 0
        if wandering > 0.0:
            first = min(int(math.log(1.0 - draws[row, jobs + place]) / math.log(wandering)), count - 1)
        for step in range(count):
            # The chosen one leads, the others follow in their order.
            option = first if step == 0 else (step - 1 if step <= first else step)
            kind, gpus = data.option_kind[way, job, option], data.option_gpus[way, job, option]
            node = fitting(data, plan, p, job, kind, gpus)
            if node != NONE:
                assign(data, plan, p, job, node, gpus)
                break
    first_completions(plan, p)
