"""Simulate plans until all jobs end (numba): jobs are placed in a given order, and again at each completion.

The orders are chosen in `scheduler_core.planning.cost.lookahead`.
"""

import math
from typing import NamedTuple

import numpy as np

from scheduler_core.kernels.kernel import kernel
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Ahead", "Running", "room_for", "run_out"]

NONE = -1


class Ahead(NamedTuple):
    """Constants of one problem, for J jobs, M nodes, K node types and up to O configurations per job.

    A configuration is a node type and a GPU count. Each job's `options` (J,) possible ones are sorted by run time in
    `fast_kind` and `fast_gpus` (J, O), and by cost in `cheap_kind` and `cheap_gpus` (J, O). `least_gpus` (J,) is the
    fewest GPUs with which a job can run; a lower GPU limit is raised to it. `now_usd` and `later_usd` are the prices
    per joule until `period_s` and after it. The other fields are as in `problem.Problem`.
    """

    run_s: FloatArray
    slack_s: FloatArray
    weight: FloatArray
    fast_kind: IntArray
    fast_gpus: IntArray
    cheap_kind: IntArray
    cheap_gpus: IntArray
    options: IntArray
    least_gpus: IntArray
    stay_node: IntArray
    stay_gpus: IntArray
    restart_s: float
    kind: IntArray
    room: IntArray
    idle_w: FloatArray
    active_w: FloatArray
    now_usd: float
    later_usd: float
    period_s: float


class Running(NamedTuple):
    """State of a simulated plan.

    For each job: the fraction `left` of its work, the remaining restart time `owed_s`, its node and GPUs. For each
    node: its free GPUs. For each node type: `most`, the largest number of free GPUs on one node.
    """

    left: FloatArray
    owed_s: FloatArray
    node: IntArray
    gpus: IntArray
    free: IntArray
    most: IntArray


def room_for(jobs: int, nodes: int, kinds: int) -> "Running":
    """Allocate the state arrays for simulating plans; every plan reuses them."""
    return Running(
        left=np.zeros(jobs),
        owed_s=np.zeros(jobs),
        node=np.zeros(jobs, np.int64),
        gpus=np.zeros(jobs, np.int64),
        free=np.zeros(nodes, np.int64),
        most=np.zeros(kinds, np.int64),
    )


@kernel
def take(data: Ahead, now: Running, job: int, kind: int, gpus: int, was: int, had: int) -> None:
    """Place a job on a node of type `kind`: on its previous node if that saves a restart, else by best fit.

    `was` and `had` are its previous node and GPUs. The caller ensures that a node of the type has enough free GPUs.
    """
    found = NONE
    if was != NONE and had == gpus and data.kind[was] == kind and now.free[was] >= gpus:
        found = was
    else:
        for node in range(len(data.kind)):
            fits = data.kind[node] == kind and now.free[node] >= gpus
            if fits and (found == NONE or now.free[node] < now.free[found]):
                found = node
    now.free[found] -= gpus
    now.node[job], now.gpus[job] = found, gpus
    now.most[kind] = 0
    for node in range(len(data.kind)):
        if data.kind[node] == kind:
            now.most[kind] = max(now.most[kind], now.free[node])


@kernel
def place(data: Ahead, now: Running, order: IntArray, most_gpus: IntArray, thrifty: BoolArray, ts_s: float) -> None:
    """Place all unfinished jobs in order at the time `ts_s`.

    A thrifty job takes the cheapest configuration that meets its due date, any other job the fastest one.
    """
    now.most[:] = 0
    spare = 0
    for node in range(len(data.kind)):
        now.free[node] = data.room[node]
        now.most[data.kind[node]] = max(now.most[data.kind[node]], data.room[node])
        spare += data.room[node]
    for job in order:
        was, had = now.node[job], now.gpus[job]
        now.node[job], now.gpus[job] = NONE, 0
        if now.left[job] <= 0.0:
            continue
        options = data.options[job] if spare > 0 else 0  # without free GPUs, later jobs are still stopped
        bound = max(most_gpus[job], data.least_gpus[job])
        if thrifty[job]:
            for option in range(options):
                kind, gpus = data.cheap_kind[job, option], data.cheap_gpus[job, option]
                needs_s = now.left[job] * data.run_s[job, kind, gpus] + now.owed_s[job]
                if gpus <= min(bound, now.most[kind]) and ts_s + needs_s <= data.slack_s[job]:
                    take(data, now, job, kind, gpus, was, had)
                    break
        if now.node[job] == NONE:
            for option in range(options):
                kind, gpus = data.fast_kind[job, option], data.fast_gpus[job, option]
                if gpus <= min(bound, now.most[kind]):
                    take(data, now, job, kind, gpus, was, had)
                    break
        spare -= now.gpus[job]
        if was != NONE and (now.node[job] != was or now.gpus[job] != had):
            now.owed_s[job] = data.restart_s


@kernel
def watts_of(data: Ahead, now: Running) -> float:
    """Return the power in watts of all nodes that have jobs, including their busy GPUs."""
    watts = 0.0
    for node in range(len(data.kind)):
        if now.free[node] < data.room[node]:
            kind = data.kind[node]
            watts += data.idle_w[kind] + (data.room[node] - now.free[node]) * data.active_w[kind]
    return watts


@kernel
def run_out(
    data: Ahead, now: Running, order: IntArray, most_gpus: IntArray, thrifty: BoolArray, node: IntArray, gpus: IntArray
) -> float:
    """Simulate a plan until all jobs end; return the cost of tardiness and energy in USD.

    The first placement is written to `node` and `gpus`; `now` is overwritten. Jobs that no node can run cost nothing.
    """
    jobs = len(data.weight)
    for job in range(jobs):
        now.left[job], now.owed_s[job] = 1.0, 0.0
        now.node[job], now.gpus[job] = data.stay_node[job], data.stay_gpus[job]
    ts_s, usd, first = 0.0, 0.0, True
    while True:
        place(data, now, order, most_gpus, thrifty, ts_s)
        step_s = math.inf
        for job in range(jobs):
            if first:
                node[job], gpus[job] = now.node[job], now.gpus[job]
            if now.node[job] != NONE:
                run_s = data.run_s[job, data.kind[now.node[job]], now.gpus[job]]
                step_s = min(step_s, now.owed_s[job] + now.left[job] * run_s)
        first = False
        if step_s == math.inf:
            return usd
        soon_s = min(max(data.period_s - ts_s, 0.0), step_s)
        usd += watts_of(data, now) * (soon_s * data.now_usd + (step_s - soon_s) * data.later_usd)
        ts_s += step_s
        for job in range(jobs):
            if now.node[job] != NONE:
                run_s = data.run_s[job, data.kind[now.node[job]], now.gpus[job]]
                if now.owed_s[job] + now.left[job] * run_s <= step_s * (1.0 + 1e-12):
                    now.left[job] = 0.0
                    usd += data.weight[job] * max(ts_s - data.slack_s[job], 0.0)
                else:
                    paused_s = min(now.owed_s[job], step_s)
                    now.owed_s[job] -= paused_s
                    now.left[job] -= (step_s - paused_s) / run_s
                if now.left[job] <= 0.0:
                    now.node[job], now.gpus[job] = NONE, 0
