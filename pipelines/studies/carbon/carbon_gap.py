"""How far a round's plan is from the best one: seeded small rounds, every plan tried, gaps in mean completion time.

Rounds are drawn in `carbon_rounds`, the best plan is found in `carbon_optimum`. Called by `taut experiment carbon-gap`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.studies.carbon.carbon_optimum import exhaustive
from pipelines.studies.carbon.carbon_rounds import INSTANCES, Round, drawn_round
from scheduler_core.planning.carbon.allocator import allocate
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, mean_completion_s
from scheduler_core.planning.carbon.exchange import exchange
from scheduler_core.types import FloatArray, IntArray

MOST_MEAN_GAP: Final = 0.05
"""The bar, on the mean."""

DRAWS: Final = 2000
NEAR: Final = 1e-3
"""A plan this close to the best one counts as one of the best."""

Planner = Callable[[Round], CountsAndFrequencies]
PLANNERS: Final[Mapping[str, Planner]] = {
    "source, stops at the budget": lambda drawn: allocate(drawn.jobs, **drawn.around(), past_budget="stop"),
    "source, next that fits": lambda drawn: allocate(drawn.jobs, **drawn.around()),
    "charged by the period": lambda drawn: allocate(drawn.jobs, **drawn.around(), charge="period"),
    "exchange": lambda drawn: exchange(drawn.jobs, **drawn.around()),
    "exchange, may put off": lambda drawn: exchange(drawn.jobs, **drawn.around(), put_off="chosen"),
}
"""What is held against the optimum; the first two are the source's procedure, the others ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """One planner's rounds (R,): mean completion over the best one's, less 1, and jobs postponed beyond the best's.

    `gap` is to the best of all plans, `gap_as_many` to the best of those that postpone no more jobs than the planner.
    """

    seed: IntArray
    gap: FloatArray
    gap_as_many: FloatArray
    more_postponed: IntArray


def gap_rows(rounds: int, seed: int) -> list[dict[str, object]]:
    """Return a row per kind of instance and planner over the seeds `seed` .. `seed + rounds - 1`.

    Jobs are new (an age would hide gaps), 2 to 4, on 4 to 8 GPUs at 5 frequencies. `lo` and `hi` hold 95 % of the means
    of resampled rounds. What postponing counts as is `emissions.completion_s`'s, for all plans alike.
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
