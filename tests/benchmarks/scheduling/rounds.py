"""One round of a real scheduler timed: thousands of pending jobs predicted, shrunk and placed on a thousand machines.

The models are those of the serving benchmarks. Called by `tests.benchmarks.scheduling`.
"""

import gc
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from modelserve.champions import read_champions
from modelserve.predictor import InProcessPredictor
from modelserve.requests import job_of
from scheduler_core.cluster import Allocation, Cluster, Machine, demand_of
from scheduler_core.compiled.ordered import place_in_order
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import Job, Predictor
from tests.benchmarks.serving.figures import Bar, Row, amount_row
from tests.benchmarks.serving.models import TRACE, trained

PENDING: Final = 10_000
MACHINES: Final = 1_000
CANDIDATES: Final = 10
ROUNDS: Final = 5

POLICY: Final = ShrinkPolicy(alpha0=0.5, alpha_step=0.05)
"""Ten candidates, and the request itself."""


def round_rows(cache: Path) -> list[Row]:
    """Time the round as a whole and in its parts, prediction included."""
    if len(POLICY.alphas()) != CANDIDATES:
        raise SystemExit(f"found {len(POLICY.alphas())} candidates, expected {CANDIDATES}")
    models = trained(cache)
    predictor = InProcessPredictor(bundles=read_champions(models.bundles).bundles)
    now = datetime.now(UTC)
    jobs = [job_of(row, trace=TRACE, submitted=now) for row in models.jobs(PENDING)]
    machines = [Machine(name=f"m{n}", cpu_cores=96.0, mem_gib=512.0, gpus=8) for n in range(MACHINES)]
    _round(jobs[:100], predictor, Cluster(machines))
    # What else this process has imported is not looked through again: a worker of the service does the same.
    gc.collect()
    gc.freeze()
    timed = [_round(jobs, predictor, Cluster(machines)) for _ in range(ROUNDS)]
    shrunk, placed = [each[0] for each in timed], [each[1] for each in timed]
    whole = [a + b for a, b in zip(shrunk, placed, strict=True)]
    what = f"{PENDING} pending jobs, {CANDIDATES} candidates and the request, {MACHINES} machines"
    every = [_all_predicted(jobs, predictor) for _ in range(ROUNDS)]
    gc.unfreeze()
    started = median(each[2] for each in timed)
    return [
        amount_row("e", f"one round: {what}", whole, unit="s of a core", bar=Bar(side="under", value=1.0)),
        amount_row("e", f"of which predicted and shrunk ({models.shape})", shrunk, unit="s of a core"),
        amount_row("e", f"not part of it: all {PENDING * (CANDIDATES + 1)} rows predicted", every, unit="s of a core"),
        amount_row("e", f"of which placed (in order, {started:.0f} fit)", placed, unit="s of a core"),
    ]


def _all_predicted(jobs: list[Job], predictor: Predictor) -> float:
    """Return the seconds that every candidate of every job takes; a round leaves out those that floors make equal."""
    asked = np.array([job.request.row() for job in jobs])
    factors = np.append(POLICY.alphas(), 1.0)
    rows = np.repeat(np.arange(len(jobs)), len(factors))
    begin = time.process_time()
    predictor.run_times(jobs, rows, (asked[:, None, :] * factors[:, None]).reshape(-1, 3))
    return time.process_time() - begin


def _round(jobs: list[Job], predictor: Predictor, cluster: Cluster) -> tuple[float, float, int]:
    """Return the seconds that shrinking and placing take, and how many jobs found a place."""
    begin = time.process_time()
    answers = shrink(jobs, predictor, POLICY)
    between = time.process_time()
    demands = [demand_of(answer.target, job.instances) for answer, job in zip(answers, jobs, strict=True)]
    placed: list[Allocation | None] = place_in_order(demands, cluster)
    return between - begin, time.process_time() - between, sum(found is not None for found in placed)
