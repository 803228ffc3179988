"""One round under a carbon budget timed: 200 jobs of up to 64 GPUs at 13 frequencies, on small and large clusters.

Called by `tests.benchmarks.energy`.
"""

import time
from typing import Final

import numpy as np

from modelserve.calls.plans import plan_rows
from modelserve.contract.plans import PlanBody
from scheduler_core.planning.carbon.allocator import allocate
from scheduler_core.planning.carbon.jobs import ElasticJobs, Period
from tests.benchmarks.serving.figures import Bar, Row, amount_row

JOBS: Final = 200
MOST_GPUS: Final = 64
MHZ: Final = np.linspace(757.0, 1530.0, 13)
CLUSTERS: Final = (64, 256)
BUDGETS: Final = (0.3, 0.6, 1.0)
"""Of what all GPUs give off at the mean power of a middle frequency: from where it binds to where GPUs do."""

SEEDS: Final = 10
TAKES: Final = 20
BAR: Final = Bar(side="under", value=10.0)
"""A round in milliseconds."""


def carbon_rows() -> list[Row]:
    """Time rounds drawn anew, in CPU milliseconds of the one thread."""
    rows: list[Row] = []
    for gpus in CLUSTERS:
        rounds = [_round(gpus, budget, seed) for budget in BUDGETS for seed in range(SEEDS)]
        rows += _rows(f"{gpus} GPUs", gpus, rounds)
    body = _body()
    plan_rows(body, 0.0)
    taken_ms = []
    for _ in range(TAKES):
        begin = time.process_time()
        plan_rows(body, 0.0)
        taken_ms.append((time.process_time() - begin) * 1000.0)
    what = f"one call, {JOBS} jobs x {MOST_GPUS} GPUs x {len(MHZ)} frequencies, placed on 8 nodes, with reasons"
    return [*rows, amount_row("carbon", what, [float(np.median(taken_ms))], unit="ms", bar=BAR)]


def _body() -> PlanBody:
    node = {"name": "n", "gpu_type": "V100", "gpus": 8, "count": 8, "gpu_idle_w": 30.0, "gpu_full_w": 300.0}
    speedup = {str(count): count**0.8 for count in range(2, MOST_GPUS + 1)}
    jobs = [
        {"job_id": str(at), "request": {"gpus": 1}, "run_s": 3600.0 * (1 + at % 17), "speedup": speedup}
        for at in range(JOBS)
    ]
    share = MHZ / MHZ[-1]
    clocks = [{"mhz": mhz, "speed": part, "power": part**2} for mhz, part in zip(MHZ, share, strict=True)]
    return PlanBody.model_validate(
        {"objective": "carbon", "jobs": jobs, "nodes": [node], "clocks": clocks, "g_per_kwh": 300.0, "budget_g": 1000.0}
    )


def _rows(what: str, gpus: int, rounds: list[tuple[ElasticJobs, Period]]) -> list[Row]:
    allocate(rounds[0][0], gpus, rounds[0][1])
    taken_ms = []
    for jobs, period in rounds:
        begin = time.process_time()
        allocate(jobs, gpus, period)
        taken_ms.append((time.process_time() - begin) * 1000.0)
    what = f"one round, {JOBS} jobs x {MOST_GPUS} GPUs x {len(MHZ)} frequencies, {what}"
    figures = {"p50": (50, BAR), "p99": (99, None)}
    return [
        amount_row("carbon", f"{what}: {name}", [float(np.percentile(taken_ms, percent))], unit="ms", bar=each)
        for name, (percent, each) in figures.items()
    ]


def _round(gpus: int, budget: float, seed: int) -> tuple[ElasticJobs, Period]:
    """Draw jobs like those measured: step time a + b·1530/f, power p0 + c·f³, speed n / (1 + r^y)^(1/y)."""
    rng = np.random.default_rng(seed)
    a, p0_w, c_w = (rng.uniform(low, high, (JOBS, 1)) for low, high in ((0.3, 0.95), (36.0, 87.0), (3e-8, 1.3e-7)))
    ratio = rng.uniform(0.0, 1.0, (JOBS, 1)) * np.sqrt(np.arange(MOST_GPUS))
    jobs = ElasticJobs(
        steps_left=10.0 ** rng.uniform(2.0, 5.0, JOBS),
        steps_per_s=np.hstack([np.zeros((JOBS, 1)), np.arange(1, MOST_GPUS + 1) / (1.0 + ratio)]),
        perf=1.0 / (a + (1.0 - a) * MHZ[-1] / MHZ),
        watts=p0_w + c_w * MHZ**3 / 4.0,
        mhz=MHZ,
        age_s=rng.uniform(0.0, 3600.0, JOBS),
        rigid_gpus=np.zeros(JOBS, dtype=np.int64),
    )
    full_g = 300.0 * 1.2 * gpus * float(jobs.watts[:, 8].mean()) * 600.0 / 3.6e6
    return jobs, Period(intensity_g_per_kwh=300.0, budget_g=full_g * budget, period_s=600.0, pue=1.2)
