"""One decision on 450 jobs and 100 nodes timed, and a small one as a simulation takes thousands of."""

import time
from typing import Final

import numpy as np

from pipelines.studies.cost.workload import POWERS, node_type
from scheduler_core.planning.cost.lookahead import look_ahead
from scheduler_core.planning.cost.problem import Nodes, Problem, WaitingJobs
from tests.benchmarks.serving.figures import Bar, Row, amount_row

ROUNDS: Final = 5
SIZES: Final = {(100, 450): Bar(side="under", value=1.0), (20, 60): None}
"""Nodes and jobs; a follow-up of ANDREAS reports 7 s for the largest, on one core."""


def cost_rows() -> list[Row]:
    """Time decisions on problems drawn anew, in CPU seconds of the one thread, the compiled code loaded before."""
    rows: list[Row] = []
    for (nodes, jobs), bar in SIZES.items():
        rng = np.random.default_rng(1)
        problems = [_drawn(rng, jobs, nodes) for _ in range(ROUNDS)]
        look_ahead(problems[0], np.random.default_rng(0))
        what = f"one decision, {nodes} nodes, {jobs} jobs: look ahead"
        rows.append(amount_row("cost", what, [_seconds(each) for each in problems], unit="s", bar=bar))
    return rows


def _drawn(rng: np.random.Generator, jobs: int, nodes: int) -> Problem:
    types = tuple(node_type(power) for power in POWERS.values())
    counts = np.arange(9.0)
    run_s = 10.0 ** rng.uniform(2.0, 4.5, (jobs, 1, 1)) / counts ** rng.uniform(0.5, 1.0, (jobs, 1, 1))
    run_s = run_s / np.array([1.0, 1.7])[:, None]
    run_s[:, :, 0] = np.nan
    fastest = np.nanmin(run_s, axis=(1, 2))
    return Problem(
        jobs=WaitingJobs(
            due_s=fastest * rng.uniform(1.0, 3.0, jobs), weight_usd_per_s=rng.uniform(2.5e-4, 4.4e-4, jobs), run_s=run_s
        ),
        nodes=Nodes(types=types, type_of=np.arange(nodes) % len(types)),
        now_s=0.0,
        usd_per_kwh=0.1,
        later_usd_per_kwh=0.15,
    )


def _seconds(problem: Problem) -> float:
    begin = time.process_time()
    look_ahead(problem, np.random.default_rng(0))
    return time.process_time() - begin
