"""Gaps in mean completion time between planners and the best plan, found by trying all plans of small random rounds.

The best plan is found in `optimum`. Called by `taut study carbon-gap`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypedDict

import numpy as np

from pipelines.studies.carbon.optimum import exhaustive
from pipelines.studies.study import Context, Findings, Study, option, seed_option
from scheduler_core.planning.carbon.allocator import allocate
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs, mean_completion_s
from scheduler_core.planning.carbon.exchange import exchange
from scheduler_core.types import FloatArray, IntArray

NODE_GPUS: Final = 4
MHZ: Final = np.array([885.0, 1012.0, 1140.0, 1335.0, 1530.0])
REFERENCE_MHZ: Final = 1530.0


class Around(TypedDict):
    """Keyword arguments that the allocators take besides the jobs."""

    gpus: int
    intensity_g_per_kwh: float
    budget_g: float
    period_s: float
    pue: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round: its jobs, and what else the allocators are given."""

    jobs: ElasticJobs
    gpus: int
    intensity_g_per_kwh: float
    budget_g: float
    period_s: float
    pue: float

    def around(self) -> Around:
        """Return the keyword arguments of the allocators besides the jobs."""
        return {
            "gpus": self.gpus,
            "intensity_g_per_kwh": self.intensity_g_per_kwh,
            "budget_g": self.budget_g,
            "period_s": self.period_s,
            "pue": self.pue,
        }


def measured_like(rng: np.random.Generator, jobs: int, gpus: int, mhz: FloatArray = MHZ) -> ElasticJobs:
    """Draw jobs with parameters in the ranges of measured models.

    Step time by frequency is a + b·1530/f, power is p0 + c·f³, with parameters between the 10th and 90th percentile of
    33 workloads fitted on a V100. Speed on n GPUs is n / (1 + r^y)^(1/y), where r is synchronising time divided by
    computing time; r is up to three times as large across nodes of 4 GPUs as on one node. Speed per GPU on one node is
    0.4 to 1 times a single GPU's, as on six measured clusters. Jobs have 10 minutes to 20 hours of work on one GPU.
    """
    b = rng.uniform(0.02, 0.61, jobs)[:, None]
    perf = 1.0 / ((1.0 - b) + b * REFERENCE_MHZ / mhz)
    p0_w, c_w = rng.uniform(37.0, 87.0, jobs)[:, None], rng.uniform(30.0, 127.0, jobs)[:, None]
    watts = p0_w + c_w * (mhz / REFERENCE_MHZ) ** 3
    gamma = rng.uniform(1.0, 3.0, jobs)[:, None]
    local = np.exp(rng.uniform(np.log(0.02), np.log(1.2), jobs))[:, None]
    counts = np.arange(1, gpus + 1)
    sync = local * np.where(counts > NODE_GPUS, rng.uniform(1.0, 3.0, jobs)[:, None], 1.0) * (counts > 1)
    speeds = counts / (1.0 + sync**gamma) ** (1.0 / gamma)
    return _jobs(rng, np.exp(rng.uniform(np.log(600.0), np.log(72_000.0), jobs)), speeds, perf, watts, mhz)


def anything(rng: np.random.Generator, jobs: int, gpus: int, mhz: FloatArray = MHZ) -> ElasticJobs:
    """Draw jobs with arbitrary speeds by GPU count, and arbitrary speed and power by frequency."""
    speeds = np.cumsum(rng.uniform(0.01, 1.0, (jobs, gpus)), axis=1)
    perf = np.sort(rng.uniform(0.3, 1.0, (jobs, len(mhz))), axis=1)
    watts = np.sort(rng.uniform(40.0, 300.0, (jobs, len(mhz))), axis=1)
    return _jobs(rng, np.exp(rng.uniform(np.log(60.0), np.log(36_000.0), jobs)), speeds, perf, watts, mhz)


def _jobs(
    rng: np.random.Generator,
    work_s: FloatArray,
    speeds: FloatArray,
    perf: FloatArray,
    watts: FloatArray,
    mhz: FloatArray,
) -> ElasticJobs:
    jobs, gpus = speeds.shape
    rigid = np.where(rng.random(jobs) < 0.1, np.minimum(2 ** rng.integers(0, 4, jobs), gpus // 2), 0)
    return ElasticJobs(
        steps_left=work_s,
        steps_per_s=np.hstack([np.zeros((jobs, 1)), speeds]),
        perf=perf,
        watts=watts,
        mhz=mhz,
        # Ages are 0, because an age adds the same time to every plan and so makes relative gaps smaller.
        age_s=np.zeros(jobs),
        rigid_gpus=rigid.astype(np.int64),
    )


Draw = Callable[[np.random.Generator, int, int], ElasticJobs]
INSTANCES: Final[Mapping[str, Draw]] = {"measured": measured_like, "anything": anything}


def drawn_round(instances: str, seed: int) -> Round:
    """Draw one round of 2 to 4 jobs, 4 to 8 GPUs and 5 frequencies, with a small to ample budget.

    The budget is 0.05 to 1.2 times the emissions of all GPUs within the period, at the mean power at the middle
    frequency.
    """
    rng = np.random.default_rng([seed, sorted(INSTANCES).index(instances)])
    gpus = int(rng.integers(4, 9))
    jobs = INSTANCES[instances](rng, int(rng.integers(2, 5)), gpus)
    period_s, intensity = float(rng.choice([300.0, 600.0, 900.0])), float(rng.uniform(20.0, 800.0))
    full_g = intensity * 1.2 * gpus * float(jobs.watts[:, len(MHZ) // 2].mean()) * period_s / 3.6e6
    return Round(
        jobs=jobs,
        gpus=gpus,
        intensity_g_per_kwh=intensity,
        budget_g=full_g * float(rng.uniform(0.05, 1.2)),
        period_s=period_s,
        pue=1.2,
    )


MOST_MEAN_GAP: Final = 0.05
"""Maximum mean gap that meets the target."""

DRAWS: Final = 2000
NEAR: Final = 1e-3
"""Maximum gap of a plan that counts as optimal."""

Planner = Callable[[Round], CountsAndFrequencies]
PLANNERS: Final[Mapping[str, Planner]] = {
    "source, stops at the budget": lambda drawn: allocate(drawn.jobs, **drawn.around(), past_budget="stop"),
    "source, next that fits": lambda drawn: allocate(drawn.jobs, **drawn.around()),
    "charged by the period": lambda drawn: allocate(drawn.jobs, **drawn.around(), charge="period"),
    "exchange": lambda drawn: exchange(drawn.jobs, **drawn.around()),
    "exchange, may put off": lambda drawn: exchange(drawn.jobs, **drawn.around(), put_off="chosen"),
}
"""Planners compared with the optimum; the first two follow the patent, the others are ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Gaps of one planner in R rounds, as columns (R,).

    A gap is the planner's mean completion time divided by the best plan's, minus 1. For `gap` it is the best of all
    plans, for `gap_as_many` the best plan that postpones no more jobs than the planner. `more_postponed` is how many
    more jobs the planner postpones than the best of all plans.
    """

    seed: IntArray
    gap: FloatArray
    gap_as_many: FloatArray
    more_postponed: IntArray


def gap_rows(rounds: int, seed: int) -> list[dict[str, object]]:
    """Return a row per kind of instance and planner, for rounds with the seeds `seed` to `seed + rounds - 1`.

    Each round has 2 to 4 jobs of age 0 on 4 to 8 GPUs at 5 frequencies. `lo` and `hi` are the 95 % bootstrap interval
    of the mean. Postponed jobs end as `elastic.completion_s` estimates.
    """
    return [
        _row(instances, name, gaps)
        for instances in INSTANCES
        for name, gaps in _measured(instances, rounds, seed).items()
    ]


def _measured(instances: str, rounds: int, seed: int) -> dict[str, Gaps]:
    found: dict[str, list[tuple[int, float, float, int]]] = {name: [] for name in PLANNERS}
    for number in range(seed, seed + rounds):
        for name, gap in _round_gaps(drawn_round(instances, number)):
            found[name].append((number, *gap))
    return {
        name: Gaps(
            seed=np.array([each[0] for each in listed], dtype=np.int64),
            gap=np.array([each[1] for each in listed]),
            gap_as_many=np.array([each[2] for each in listed]),
            more_postponed=np.array([each[3] for each in listed], dtype=np.int64),
        )
        for name, listed in found.items()
    }


def _round_gaps(drawn: Round) -> Iterator[tuple[str, tuple[float, float, int]]]:
    best = exhaustive(drawn.jobs, **drawn.around())
    best_s = mean_completion_s(drawn.jobs, best, period_s=drawn.period_s)
    as_many_s: dict[int, float] = {}
    for name, planner in PLANNERS.items():
        plan = planner(drawn)
        plan_s, postponed = mean_completion_s(drawn.jobs, plan, period_s=drawn.period_s), int(plan.postponed.sum())
        if postponed not in as_many_s:
            among = exhaustive(drawn.jobs, **drawn.around(), most_postponed=postponed)
            as_many_s[postponed] = mean_completion_s(drawn.jobs, among, period_s=drawn.period_s)
        more = postponed - int(best.postponed.sum())
        yield name, (plan_s / best_s - 1.0, plan_s / as_many_s[postponed] - 1.0, more)


def _row(instances: str, name: str, gaps: Gaps) -> dict[str, object]:
    rng = np.random.default_rng(0)
    rounds = len(gaps.gap)
    means = gaps.gap[rng.integers(rounds, size=(DRAWS, rounds))].mean(axis=1)
    mean = float(gaps.gap.mean())
    return {
        "instances": instances,
        "plan": name,
        "rounds": rounds,
        "mean_gap": mean,
        "lo": float(np.percentile(means, 2.5)),
        "hi": float(np.percentile(means, 97.5)),
        "bar": f"at most {MOST_MEAN_GAP:g}",
        "met": mean <= MOST_MEAN_GAP,
        "median_gap": float(np.median(gaps.gap)),
        "p95_gap": float(np.percentile(gaps.gap, 95.0)),
        "worst_gap": float(gaps.gap.max()),
        "worst_seed": int(gaps.seed[gaps.gap.argmax()]),
        "best_frac": float((gaps.gap <= NEAR).mean()),
        "mean_gap_as_many": float(gaps.gap_as_many.mean()),
        "worst_gap_as_many": float(gaps.gap_as_many.max()),
        "postpones_fewer_frac": float((gaps.more_postponed < 0).mean()),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study of gaps between planners and the best plan."""

    rounds: int = option(300, help="Rounds of each kind.", minimum=1, maximum=10_000)
    seed: int = seed_option()


def run(config: Config, context: Context) -> Findings:
    """Compare the plans of all planners within a carbon budget with the best plan, found by trying all."""
    context.talk(f"trying every plan of {config.rounds} rounds of each kind")
    rows = gap_rows(config.rounds, config.seed)
    return Findings(study="carbon-gap", trace="drawn", tables={"": rows}, flat=rows)


CARBON_GAP: Final = Study(name="carbon-gap", config=Config, run=run)
