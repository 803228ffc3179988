"""One decision on 450 jobs and 100 nodes timed, by every method, and a small one as a simulation takes thousands of.

Called by `tests.benchmarks.energy`.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from pipelines.studies.cost.gap import P100_NODE, V100_NODE, drawn
from scheduler_core.planning.cost.decision import ITERATIONS, METHODS, decide
from scheduler_core.planning.cost.lookahead import look_ahead
from scheduler_core.planning.cost.problem import Problem
from tests.benchmarks.serving.figures import Bar, Row, amount_row

ROUNDS: Final = 5
SIZES: Final = {(100, 450): Bar(side="under", value=7.0), (20, 60): None}
"""Nodes and jobs; the bar is what a follow-up of ANDREAS reports for the largest, on one core."""
LOOK_AHEAD: Final = {(100, 450): Bar(side="under", value=1.0), (20, 60): None}
"""The bars of the search that `taut plan cost` and `POST /v1/plan` run."""


def cost_rows() -> list[Row]:
    """Time decisions on problems drawn anew, in CPU seconds of the one thread, the compiled code loaded before."""
    rows: list[Row] = []
    for (nodes, jobs), bar in SIZES.items():
        rng = np.random.default_rng(1)
        problems = [drawn(rng, jobs, nodes, later=True, types=(P100_NODE, V100_NODE)) for _ in range(ROUNDS)]
        for method in METHODS:
            decide(problems[0], np.random.default_rng(0), 1, method)
            what = f"one decision, {nodes} nodes, {jobs} jobs, {ITERATIONS} plans: {method}"
            searched = partial(decide, iterations=ITERATIONS, method=method)
            rows.append(amount_row("cost", what, [_seconds(p, searched) for p in problems], unit="s", bar=bar))
        look_ahead(problems[0], np.random.default_rng(0))
        taken = [_seconds(p, look_ahead) for p in problems]
        what = f"one decision, {nodes} nodes, {jobs} jobs: look ahead"
        rows.append(amount_row("cost", what, taken, unit="s", bar=LOOK_AHEAD[nodes, jobs]))
    return rows


def _seconds(problem: Problem, search: Callable[[Problem, np.random.Generator], object]) -> float:
    begin = time.process_time()
    search(problem, np.random.default_rng(0))
    return time.process_time() - begin
