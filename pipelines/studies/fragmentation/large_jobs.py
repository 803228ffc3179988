"""Room for jobs of whole machines: what ties have to do with it, and what keeps such machines whole on purpose.

Inflation as published, nodes in an order drawn for each seed, each rule under both ways to settle ties. Called by
`taut experiment fgd-large-jobs`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.studies.fragmentation.arms import PUBLISHED_POPULARITY
from pipelines.studies.fragmentation.charts_ties import unallocated_by_ties
from pipelines.studies.fragmentation.experiment import FIRST_SEED
from pipelines.studies.fragmentation.inflation import Inflation, binned, inflate, run_inflation
from pipelines.studies.fragmentation.pod_lists import PodList, chosen, pod_list
from pipelines.studies.fragmentation.tables import AT_PCT
from pipelines.studies.study import Findings, Row, dealt, summed_up
from scheduler_core.devices import WHOLE
from scheduler_core.sharing_placements import Ties
from scheduler_core.target import TargetWorkload, target_of
from scheduler_core.types import BoolArray

FIRST: Final = "first"
RANDOM: Final = "random"
TIES: Final[tuple[Ties, ...]] = (FIRST, RANDOM)
FLOOR: Final = 0.05
"""The least share of the target that goes to whole machines, where there is one."""

BAR_POINTS: Final = 0.5
"""How far random ties may be from the first machine's."""

CHOOSING, REPORTING = "choosing", "reporting"
"""The first half of the seeds, on which a rule is chosen; and the second, on which it is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A way to prefer machines, the share of pods whose specs it aims at, and the least share of whole machines."""

    what: str
    placement: str = "fgd"
    popularity: float = 1.0
    floor: float = 0.0


RULES: Final[Mapping[str, Rule]] = {
    "fgd": Rule(what="FGD as published, aiming at all specs"),
    "used_first": Rule(what="among equals machines in use before idle ones", placement="fgd_used_first"),
    "fullest_first": Rule(what="among equals the machine with least GPU left", placement="fgd_fullest_first"),
    "exact": Rule(what="scores that are not rounded", placement="fgd_exact"),
    "idle_last": Rule(what="idle largest machines only where nothing else is left", placement="fgd_idle_last"),
    "floor": Rule(what=f"{100 * FLOOR:g} % of the target to whole machines", floor=FLOOR),
    "fgd_95": Rule(what="FGD as published, aiming at 95 %", popularity=PUBLISHED_POPULARITY),
    "used_first_95": Rule(what="used_first at 95 %", placement="fgd_used_first", popularity=PUBLISHED_POPULARITY),
    "fullest_first_95": Rule(
        what="fullest_first at 95 %", placement="fgd_fullest_first", popularity=PUBLISHED_POPULARITY
    ),
    "floor_95": Rule(what="floor at 95 %", popularity=PUBLISHED_POPULARITY, floor=FLOOR),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which pod lists (None: those with published results), by which rules."""

    trace: str = "openb"
    workloads: Sequence[str] | None = None
    rules: Sequence[str] = tuple(RULES)
    seed: int = FIRST_SEED
    seeds: int = 10
    processes: int = 1


def ask(lake: Lake, question: Question, *, talk: Callable[[str], None] = lambda _: None) -> Findings:
    """Fill clusters up by every rule and way to settle ties.

    Raises
    ------
    BadUsage
        If a workload or a rule is unknown, or the trace does not tell what is needed.
    LakeError
        If the lake has no such trace.
    """
    if strange := [name for name in question.rules if name not in RULES]:
        raise BadUsage(f"no rule {strange[0]!r}; expected {', '.join(RULES)}")
    names = chosen(lake, question.trace, question.workloads)
    seeds = range(question.seed, question.seed + question.seeds)
    tasks = [(pod_list(lake, question.trace, name), tuple(question.rules), seed) for name in names for seed in seeds]
    frames: list[pl.DataFrame] = []
    for (pods, _, seed), frame in zip(tasks, dealt(run_task, tasks, question.processes), strict=True):
        frames.append(frame)
        if seed == seeds[-1]:
            talk(f"{pods.name}: {len(question.rules)} rules, {len(seeds)} seeds")
    half = question.seed + (question.seeds + 1) // 2
    runs = pl.concat(frames).with_columns(
        half=pl.when(pl.col("seed") < half).then(pl.lit(CHOOSING)).otherwise(pl.lit(REPORTING))
    )
    said = [
        f"{question.trace}: where as many GPUs were asked for as there are; means of {question.seeds} seeds, 95 %",
        "nodes in an order drawn for each seed; all rules have the same pods in the same order",
    ]
    return Findings(
        study="large jobs",
        trace=question.trace,
        tables={
            "rules, by half of the seeds": rule_rows(runs),
            "every workload, reporting seeds": summed_up(
                runs.filter(half=REPORTING), ("workload", "rule"), (*TIES, "gap", *(f"large_{ties}" for ties in TIES))
            ),
        },
        frames={"runs": runs},
        charts={"unallocated_by_ties": partial(unallocated_by_ties, runs, names, said)},
        notes=(
            "columns first and random: percent of GPUs unallocated, ties to the first machine or drawn; gap: random "
            "less first, in points; large: percent placed of the pods that ask for a whole machine of the largest",
            f"a rule is chosen on seeds {question.seed} to {half - 1} and reported on those from {half} on; within: "
            f"on how many workloads the gap of means is at most {BAR_POINTS:g} points",
            *(f"{name}: {RULES[name].what}" for name in question.rules),
        ),
    )


def run_task(task: tuple[PodList, tuple[str, ...], int]) -> pl.DataFrame:
    """Run every rule on a list with a seed, under both ways to settle ties: a row per rule."""
    pods, rules, seed = task
    for_pods, for_nodes, for_ties = np.random.SeedSequence(seed).spawn(3)
    order = inflate(pods.pods.milli_gpus, pods.capacity_milli, rng=np.random.default_rng(for_pods))
    machines = [pods.machines[at] for at in np.random.default_rng(for_nodes).permutation(len(pods.machines))]
    arriving, most = pods.pods.ordered(order), max(machine.gpus for machine in machines)
    large = arriving.milli_gpus >= WHOLE * most
    demands = pods.pods.demands()
    rows: list[Row] = []
    for name in rules:
        rule = RULES[name]
        target = with_floor(target_of(demands, rule.popularity), most, rule.floor)
        row: Row = {"workload": pods.name, "rule": name, "seed": seed}
        for ties in TIES:
            rng = np.random.default_rng(for_ties)
            filled = run_inflation(machines, arriving, rule.placement, target, ties=ties, rng=rng)
            row |= {ties: unallocated_pct(filled), f"large_{ties}": placed_pct(filled, large)}
        rows.append(row)
    found = pl.DataFrame(
        rows, infer_schema_length=None, schema_overrides={f"large_{ties}": pl.Float64 for ties in TIES}
    )
    return found.with_columns(gap=pl.col(RANDOM) - pl.col(FIRST))


def with_floor(target: TargetWorkload, gpus: int, share: float) -> TargetWorkload:
    """Return a target of which pods that ask for `gpus` whole GPUs (and no CPU) make `share`, if fewer did.

    >>> from scheduler_core.cluster import Demand
    >>> target = target_of([Demand(units=(1000, 0, 500), instances=19)])
    >>> with_floor(target, 8, 0.05).popularity.tolist()
    [0.95, 0.05]
    """
    there = int(target.pods[(target.count == gpus) & (target.milli == WHOLE)].sum())
    more = round((share * target.total - there) / (1.0 - share))
    if more <= 0:
        return target
    return replace(
        target,
        cpu_milli=np.append(target.cpu_milli, 0),
        count=np.append(target.count, gpus),
        milli=np.append(target.milli, WHOLE),
        gpu_type=(*target.gpu_type, None),
        pods=np.append(target.pods, more),
    )


def unallocated_pct(filled: Inflation) -> float:
    """Return the percent of GPUs that were not given where as many had been asked for as there are."""
    found = binned(filled)
    at = np.flatnonzero(found.percent == AT_PCT)
    return 100.0 - float(found.allocated_pct[at[0]]) if len(at) else float("nan")


def placed_pct(filled: Inflation, pods: BoolArray) -> float | None:
    """Return the percent placed of these pods (n,) until as many GPUs were asked for as there are; None of none."""
    asked = pods & (filled.arrived_milli <= filled.capacity_milli)
    return 100.0 * float((filled.node[asked] >= 0).mean()) if asked.any() else None


def rule_rows(runs: pl.DataFrame) -> list[Row]:
    """Return a row per half of the seeds and rule: means over workloads, the widest gap, and whether all are within."""
    by_workload = runs.group_by("half", "rule", "workload", maintain_order=True).agg(
        pl.col(FIRST, RANDOM, "gap", *(f"large_{ties}" for ties in TIES)).mean()
    )
    widest = pl.col("gap").abs().arg_max()
    found = by_workload.group_by("half", "rule", maintain_order=True).agg(
        pl.col(FIRST, RANDOM).mean(),
        widest_gap=pl.col("gap").get(widest),
        at=pl.col("workload").get(widest),
        within=(pl.col("gap").abs() <= BAR_POINTS).sum(),
        workloads=pl.len(),
        large_first=pl.col("large_first").mean(),
        large_random=pl.col("large_random").mean(),
    )
    return found.sort("half", maintain_order=True).to_dicts()
