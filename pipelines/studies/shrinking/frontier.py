"""The frontier of gain against harm of Algorithm 1, over its thresholds, margins and lowered floors.

Gain is the share of the oracle's gain in finished jobs; harm is kills and stretch (run time divided by recorded run
time). All parameter sets share one predictor and are simulated with the same arrivals. Called by `study`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pipelines.simulation.advice import ORACLE
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.settings import SimulationSettings
from pipelines.studies.intervals import mean
from pipelines.studies.shrinking.arms import Arm, Asked, advice_of, asked_of, guarded, oracle
from pipelines.studies.shrinking.cases import cases_of
from pipelines.studies.shrinking.claims import PLACE, paired, share_of_oracle
from pipelines.studies.shrinking.goal import TRUTH, row_harm_rows
from pipelines.studies.shrinking.runs import run_cases
from pipelines.studies.study import Row
from scheduler_core.shrink import PAPER_ALPHA0, ShrinkPolicy
from scheduler_core.types import FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, Recommendation, RunTimes

THETAS: Final = (0.01, 0.02, 0.1, 0.25, 1e9)
"""Thresholds on the relative change of the predicted run time; the last one accepts any change."""
MARGINS: Final = (0.1, 0.25, 0.5, 1.0)
"""Relative margins added to the floors of all resources."""
EASED: Final = (0.9, 0.8, 0.65, 0.5)
"""Factors that floors are multiplied by, to measure gain and harm of lower floors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One parameter set: a policy, and factors on predicted use of CPU and GPU (`soft`) and of memories (`hard`)."""

    policy: ShrinkPolicy = field(default_factory=ShrinkPolicy)
    soft: float = 1.0
    hard: float = 1.0


def points() -> list[Point]:
    """Return the parameter sets: the default policy first, then variations of it.

    They vary the threshold, the margins, the floors, the candidate shares (`alpha0`), and whether important resources
    are never shrunk (`sure_runs`).
    """
    policy = ShrinkPolicy()
    held = replace(policy, sure_runs=math.inf)
    return [
        Point(policy=policy),
        *(Point(policy=replace(policy, theta=theta)) for theta in THETAS),
        *(Point(policy=_with_margin(policy, margin)) for margin in MARGINS),
        *(Point(policy=policy, soft=factor) for factor in EASED),
        *(Point(policy=policy, hard=factor) for factor in EASED),
        Point(policy=replace(policy, alpha0=PAPER_ALPHA0)),
        Point(policy=held),
        *(Point(policy=replace(held, theta=theta)) for theta in THETAS),
        Point(policy=replace(held, alpha0=PAPER_ALPHA0)),
    ]


def _with_margin(policy: ShrinkPolicy, margin: float) -> ShrinkPolicy:
    return replace(policy, cpu_margin=margin, mem_margin=margin, gpu_margin=margin, gpu_mem_margin=margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eased:
    """A predictor that multiplies another predictor's peak use: CPU and GPU by `soft`, memories by `hard`."""

    inner: Predictor
    soft: float
    hard: float

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Return the run times that the inner predictor predicts."""
        return self.inner.run_times(jobs, rows, requests)

    def knowledge(self, jobs: Sequence[Job]) -> Sequence[Knowledge]:
        """Return the knowledge of the inner predictor."""
        return self.inner.knowledge(jobs)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Return the peak use that the inner predictor predicts, multiplied by the factors."""
        use = self.inner.peak_use(jobs)
        return PeakUse(
            cpu_cores=use.cpu_cores * self.soft,
            mem_gib=use.mem_gib * self.hard,
            gpus=use.gpus * self.soft,
            gpu_mem_gib=use.gpu_mem_gib * self.hard,
            runs=use.runs,
        )


def frontier(
    pool: Pool,
    predictor: Predictor,
    settings: SimulationSettings,
    *,
    seeds: Sequence[int],
    grid: Sequence[Point] | None = None,
) -> list[Row]:
    """Return one row per parameter set and population: the parameters, the gain and the harm.

    Columns: `share` is the share of the oracle's gain in finished jobs, with its interval over seeds. `killed` and
    `stretched_share` count every distinct job of the pool once. `stretch_p99` is the p99 over started jobs, averaged
    over seeds. `completed_beside` is how many more jobs finish than with the first parameter set, with an interval
    paired by seed.

    Raises
    ------
    BadUsage
        If the pool lacks jobs of a task type of the mix other than GNN.
    """
    varied = points() if grid is None else grid
    arms = {f"point {number}": _arm(each) for number, each in enumerate(varied)}
    asked = asked_of(pool, predictor, ShrinkPolicy())
    advice = advice_of(asked, {**arms, ORACLE: Arm(what="what each job truly needed", give=oracle)})
    found = run_cases(pool, advice, cases_of(pool, seeds=seeds), replace(settings, slowdown_models=(TRUTH,))).runs
    harm = {(row["gnn"], row["devices"], row["arm"]): row for row in row_harm_rows(pool, advice)}
    rows: list[Row] = []
    for place in found.select(PLACE).unique(maintain_order=True).rows(named=True):
        figures = paired(found, **place)
        as_set = figures[next(iter(arms))]["completed"]
        for arm, each in zip(arms, varied, strict=True):
            share, stretch = share_of_oracle(figures, arm, "completed"), mean(figures[arm]["stretch_p99"])
            beside = mean(figures[arm]["completed"] - as_set)
            once = harm[place["gnn"], place["devices"], arm]
            told = replace(each.policy, alpha0=each.policy.first_alpha)
            said = {name: _finite(getattr(told, name)) for name in _SAID}
            rows.append(
                {**place, **said, "soft": each.soft, "hard": each.hard}
                | {"share": share.value, "share_lo": share.low, "share_hi": share.high}
                | {
                    name: once[name]
                    for name in ("killed", "killed_hi", "groups_killed_hi", "stretched_share", "stretch_max")
                }
                | {"stretch_p99": stretch.value, "completed": float(figures[arm]["completed"].mean())}
                | {"completed_beside": beside.value}
                | {"completed_beside_lo": beside.low, "completed_beside_hi": beside.high}
            )
    return rows


def undominated(rows: Sequence[Row]) -> list[Row]:
    """Return the Pareto-optimal rows, most gain first within each set of paired runs.

    A row is left out if another row has more gain, no more kills, and no higher p99 of stretch.

    >>> found = undominated([dict(share=s, killed=k, stretch_p99=1.0) for s, k in ((0.4, 0), (0.3, 0), (0.5, 2))])
    >>> [row["share"] for row in found]
    [0.5, 0.4]
    """
    kept = [row for row in rows if not any(_better(rival, row) for rival in rows)]
    return sorted(kept, key=lambda row: (_place(row), -_number(row, "share")))


_SAID: Final = ("theta", "sure_runs", "alpha0", "cpu_margin", "mem_margin", "gpu_margin", "gpu_mem_margin")


def _arm(point: Point) -> Arm:
    def give(asked: Asked) -> list[Recommendation]:
        eased = Eased(inner=asked.predictor, soft=point.soft, hard=point.hard)
        return guarded(asked_of(asked.pool, eased, point.policy))

    return Arm(what="Algorithm 1 above floors of peak use", give=give)


def _better(rival: Row, row: Row) -> bool:
    harms = ("killed", "stretch_p99")
    return (
        _place(rival) == _place(row)
        and _number(rival, "share") > _number(row, "share")
        and all(_number(rival, harm) <= _number(row, harm) for harm in harms)
    )


def _place(row: Row) -> tuple[str, ...]:
    return tuple(str(row.get(name)) for name in PLACE)


def _number(row: Row, name: str) -> float:
    value = row[name]
    return float(value) if isinstance(value, int | float) else math.nan


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
