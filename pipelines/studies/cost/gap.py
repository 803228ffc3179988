"""Quality of single decisions on random problems: few jobs compared with the optimum, many with a greedy plan.

The ranges of the random values are ours, close to measured ones. Called by `taut study cost-gap` and by benchmarks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

import numpy as np

from pipelines.studies.cost.optimum import optimum
from pipelines.studies.study import Context, Findings, Row, Study, option, seed_option
from scheduler_core.planning.cost.decision import METHODS, Method, Search, decide, sought
from scheduler_core.planning.cost.objective import cost
from scheduler_core.planning.cost.problem import Decision, Nodes, NodeType, Problem, WaitingJobs
from scheduler_core.types import FloatArray

P100_NODE: Final = NodeType(name="p100", gpu_type="P100", gpus=4, idle_w=120.0, gpu_active_w=225.0)
V100_NODE: Final = NodeType(name="v100", gpu_type="V100", gpus=8, idle_w=260.0, gpu_active_w=270.0)
LITTLE_NODE: Final = NodeType(name="v100 of two", gpu_type="V100", gpus=2, idle_w=80.0, gpu_active_w=270.0)
"""Node types with published idle and full power of the GPUs (25 or 30 W idle), plus 20 W for an idle CPU."""

CENT_USD: Final = 0.01
"""Minimum denominator of relative gaps in USD, because the optimum may cost nothing."""

PRICINGS: Final = {"until the next decision": False, "with the rest at a later price": True}
"""Whether `later_usd_per_kwh` is given, by objective: the objective of ANDREAS, then ours."""


def _seeking(problem: Problem, rng: np.random.Generator, iterations: int, *, how: Search) -> Decision:
    return sought(problem, rng, iterations, how)[0]


STAGES: Final[dict[str, Method]] = {
    "random": METHODS["randomised"],
    "random, relinked": partial(_seeking, how=Search(moving=False, displacing=False, renewing=0)),
    "random, improved": partial(_seeking, how=Search(walking=False, renewing=0)),
    "random, improved, relinked": partial(_seeking, how=Search(renewing=0)),
    "random, improved, relinked, renewed": METHODS["relinked"],
}
"""Variants of the search, named by its parts; the second is the search of ANDREAS, the last is `decide`."""


def drawn(rng: np.random.Generator, jobs: int, nodes: int, later: bool, types: tuple[NodeType, ...]) -> Problem:
    """Draw the problem of one decision.

    Jobs run for 10 minutes to a day on one P100 (log-uniform). A V100 is 1.3 to 4 times as fast; n GPUs are n^0.5 to
    n^0.95 times as fast as one. A tenth of the configurations are impossible, but never one GPU of the first type. Due
    dates are from half a run time ago to three run times ahead; an hour of tardiness costs 0.2 to 2 USD. Prices are 50
    to 300 USD/MWh, every tenth negative. In half of the problems some jobs already run, and moving a job takes 60 s.
    """
    counts = np.arange(1, 1 + max(kind.gpus for kind in types))
    alone_s = np.exp(rng.uniform(np.log(600.0), np.log(86_400.0), jobs))
    faster = np.stack([np.ones(jobs) if t.gpu_type == "P100" else rng.uniform(1.3, 4.0, jobs) for t in types], axis=1)
    scaling = counts ** rng.uniform(0.5, 0.95, jobs)[:, None]
    run_s = np.full((jobs, len(types), len(counts) + 1), np.nan)
    run_s[:, :, 1:] = alone_s[:, None, None] / (faster[:, :, None] * scaling[:, None, :])
    alone = run_s[:, 0, 1].copy()
    run_s[rng.random(run_s.shape) < 0.1] = np.nan
    run_s[:, 0, 1] = alone
    price = float(rng.uniform(0.05, 0.3)) * (1.0 if rng.random() < 0.9 else -0.2)
    problem = Problem(
        jobs=WaitingJobs(
            due_s=rng.uniform(-0.5, 3.0, jobs) * np.nanmedian(run_s.reshape(jobs, -1), axis=1),
            weight_usd_per_s=rng.uniform(0.2, 2.0, jobs) / 3600.0,
            run_s=run_s,
        ),
        nodes=Nodes(types=types, type_of=rng.integers(0, len(types), nodes)),
        now_s=0.0,
        usd_per_kwh=price,
        pue=1.3,
        later_usd_per_kwh=float(rng.uniform(0.05, 0.3)) if later else None,
    )
    return _running(rng, problem) if rng.random() < 0.5 else problem


def _running(rng: np.random.Generator, problem: Problem) -> Problem:
    """Return the problem with about half of its jobs already running, placed by a random plan."""
    known = decide(problem, rng, 2, "randomised")
    stopped = rng.random(len(problem.jobs)) < 0.5
    current = Decision(node=np.where(stopped, -1, known.node), gpus=np.where(stopped, 0, known.gpus))
    return replace(problem, current=current, restart_s=60.0)


def gap_rows(instances: int = 300, seed: int = 7, iterations: int = 20) -> list[Row]:
    """Compare every method with the exact optimum on 2 to 5 jobs and 1 to 3 nodes, under both objectives.

    Return a row per objective and method: mean, median and worst gap in percent, how many decisions were optimal, and
    the gap between the sums of all costs.
    """
    rows: list[Row] = []
    for name, later in PRICINGS.items():
        rng = np.random.default_rng((seed, later))
        problems = [_little(rng, later) for _ in range(instances)]
        best = np.array([cost(problem, optimum(problem)).total for problem in problems])
        for method in METHODS:
            found = _costs(problems, method, seed, iterations)
            gap = 100.0 * (found - best) / np.maximum(np.abs(best), CENT_USD)
            rows.append(
                {
                    "objective": name,
                    "method": method,
                    "instances": instances,
                    "mean_gap_percent": float(gap.mean()),
                    "median_gap_percent": float(np.median(gap)),
                    "worst_gap_percent": float(gap.max()),
                    "optimal_percent": float(100.0 * (gap < 1e-6).mean()),
                    "gap_of_sums_percent": float(100.0 * (found.sum() - best.sum()) / abs(best.sum())),
                }
            )
    return rows


def _little(rng: np.random.Generator, later: bool) -> Problem:
    jobs, nodes = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    return drawn(rng, jobs, nodes, later, (replace(P100_NODE, gpus=int(rng.integers(2, 5))), LITTLE_NODE))


def improvement_rows(instances: int = 100, seed: int = 11, iterations: int = 10) -> list[Row]:
    """Compare the searches with the greedy algorithm on the same problems of 50 to 450 jobs, under both objectives.

    There are 4.5 to 9 jobs per node. Return a row per objective and method: by how many percent its cost is lower (mean
    with bootstrap interval, and minimum), and how often it is lower.
    """
    rows: list[Row] = []
    for name, later in PRICINGS.items():
        problems = list(_large(np.random.default_rng((seed, later)), instances, later))
        base = _costs(problems, "greedy", seed, iterations)
        for stage, method in STAGES.items():
            found = _costs(problems, method, seed, iterations)
            lower = 100.0 * (base - found) / np.maximum(np.abs(base), CENT_USD)
            low, high = _interval(lower, np.random.default_rng(seed))
            rows.append(
                {
                    "objective": name,
                    "method": stage,
                    "instances": instances,
                    "mean_lower_percent": float(lower.mean()),
                    "interval_low_percent": low,
                    "interval_high_percent": high,
                    "least_lower_percent": float(lower.min()),
                    "cheaper_percent": float(100.0 * (found < base).mean()),
                }
            )
    return rows


def _large(rng: np.random.Generator, instances: int, later: bool) -> Iterator[Problem]:
    for _ in range(instances):
        jobs = int(rng.integers(50, 451))
        yield drawn(rng, jobs, int(jobs / rng.uniform(4.5, 9.0)), later, (P100_NODE, V100_NODE))


def _costs(problems: list[Problem], method: str | Method, seed: int, iterations: int) -> FloatArray:
    """Decide every problem with its own random seed, and return the costs of the decisions."""
    decided = (
        decide(problem, np.random.default_rng((seed, number)), iterations, method)
        for number, problem in enumerate(problems)
    )
    return np.array([cost(problem, decision).total for problem, decision in zip(problems, decided, strict=True)])


def _interval(values: FloatArray, rng: np.random.Generator, samples: int = 2000) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean."""
    means = values[rng.integers(0, len(values), (samples, len(values)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


class Against(StrEnum):
    """Decision with which searches are compared: the exact optimum, or the decision of the greedy algorithm."""

    OPTIMUM = "optimum"
    GREEDY = "greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study of single decisions."""

    against: Against = option(
        Against.OPTIMUM, help="The exact optimum on 2 to 5 jobs, or the greedy on 50 to 450 jobs."
    )
    instances: int = option(100, help="Decisions of each kind.", minimum=1, maximum=10_000)
    seed: int = seed_option()


def run(config: Config, context: Context) -> Findings:
    """Compare single decisions on drawn jobs with the exact optimum (HiGHS), or with greedy decisions."""
    context.talk(f"deciding {config.instances} drawn problems of each kind by every method")
    rows_of = gap_rows if config.against is Against.OPTIMUM else improvement_rows
    rows = rows_of(config.instances, config.seed)
    return Findings(study="cost-gap", trace="drawn", tables={"": rows}, flat=rows)


COST_GAP: Final = Study(name="cost-gap", config=Config, run=run)
