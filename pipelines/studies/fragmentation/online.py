"""A target learnt from the pods that arrive, against the one that knows all of them beforehand.

Inflation as published, nodes in an order drawn for each seed; with departures this is compared in `departures`.
Called by `taut experiment fgd-online`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from pipelines.lake.lake import Lake
from pipelines.studies.fragmentation.arms import PUBLISHED_POPULARITY
from pipelines.studies.fragmentation.charts_ties import unallocated_by_window
from pipelines.studies.fragmentation.experiment import FIRST_SEED
from pipelines.studies.fragmentation.inflation import inflate, run_inflation
from pipelines.studies.fragmentation.large_jobs import unallocated_pct
from pipelines.studies.fragmentation.pod_lists import PodList, chosen, pod_list
from pipelines.studies.study import Findings, Row, dealt, differences, summed_up
from scheduler_core.target import SlidingTarget, TargetWorkload, target_of

WINDOWS: Final = (30, 100, 300, 1000, 10_000)
PLACEMENTS: Final[Mapping[str, str]] = {"FGD": "fgd", "FGD, machines in use first": "fgd_used_first"}
"""By name in tables and legends."""

ORACLE: Final = "all pods known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which pod lists (None: those with published results), and how many last arrivals are remembered."""

    trace: str = "openb"
    workloads: Sequence[str] | None = None
    windows: Sequence[int] = WINDOWS
    seed: int = FIRST_SEED
    seeds: int = 10
    processes: int = 1


def ask(lake: Lake, question: Question, *, talk: Callable[[str], None] = lambda _: None) -> Findings:
    """Fill clusters up with the target known, as the paper has it, and learnt.

    Raises
    ------
    BadUsage
        If a workload is unknown, or the trace does not tell what is needed.
    LakeError
        If the lake has no such trace.
    """
    names = chosen(lake, question.trace, question.workloads)
    seeds = range(question.seed, question.seed + question.seeds)
    tasks = [(pod_list(lake, question.trace, name), tuple(question.windows), seed) for name in names for seed in seeds]
    frames: list[pl.DataFrame] = []
    for (pods, _, seed), frame in zip(tasks, dealt(run_task, tasks, question.processes), strict=True):
        frames.append(frame)
        if seed == seeds[-1]:
            talk(f"{pods.name}: {len(question.windows)} windows, {len(seeds)} seeds")
    runs = pl.concat(frames)
    keys, figures = ("workload", "placement"), ("unallocated_pct",)
    said = [
        f"{question.trace}: where as many GPUs were asked for as there are; means of {question.seeds} seeds, 95 %",
        "nodes in an order drawn for each seed; all arms have the same pods in the same order",
    ]
    return Findings(
        study="online",
        trace=question.trace,
        tables={
            "GPUs unallocated, percent of all": summed_up(runs, (*keys, "target"), figures),
            f"less {ORACLE}, points, paired": differences(runs, keys, "target", ORACLE, figures),
        },
        frames={"runs": runs},
        charts={"unallocated_by_window": partial(unallocated_by_window, runs, names, said)},
        notes=(
            "a target that is learnt knows nothing at first, and counts every pod before it is placed; it is made anew "
            "at each doubling of what it knows, then at every tenth of its window",
            "ties go to the first machine; a pod list inflated to 130 % of the GPUs holds about ten thousand pods, so "
            "that the widest window forgets next to nothing",
        ),
    )


def run_task(task: tuple[PodList, tuple[int, ...], int]) -> pl.DataFrame:
    """Run every target under both placements on a list with a seed: a row each."""
    pods, windows, seed = task
    for_pods, for_nodes, for_ties = np.random.SeedSequence(seed).spawn(3)
    order = inflate(pods.pods.milli_gpus, pods.capacity_milli, rng=np.random.default_rng(for_pods))
    machines = [pods.machines[at] for at in np.random.default_rng(for_nodes).permutation(len(pods.machines))]
    arriving = pods.pods.ordered(order)
    rows: list[Row] = []
    for name, placement in PLACEMENTS.items():
        for about, target in _targets(pods, windows).items():
            filled = run_inflation(machines, arriving, placement, target, rng=np.random.default_rng(for_ties))
            row: Row = {"workload": pods.name, "placement": name, "target": about, "seed": seed}
            rows.append({**row, "unallocated_pct": unallocated_pct(filled)})
    return pl.DataFrame(rows)


def _targets(pods: PodList, windows: Sequence[int]) -> dict[str, TargetWorkload | SlidingTarget]:
    """Return by what is known: all pods, the most frequent specs of them, or the last arrivals."""
    demands = pods.pods.demands()
    return {
        ORACLE: target_of(demands),
        f"{100 * PUBLISHED_POPULARITY:g} % of pods known": target_of(demands, PUBLISHED_POPULARITY),
        **{f"last {window}": SlidingTarget(window) for window in windows},
    }
