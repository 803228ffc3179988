"""The experiment from a lake to tables: which pod lists, which arms, what was published, and what has to be said.

Puts the parts together. Called by `taut experiment fgd`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.studies.fragmentation.arms import FGD, ORDERS, POPULARITIES, TIES, WORKLOADS, arms_of
from pipelines.studies.fragmentation.bars import bars
from pipelines.studies.fragmentation.pod_lists import chosen, pod_list
from pipelines.studies.fragmentation.published import FOLDER, no_results, read_published
from pipelines.studies.fragmentation.runs import Curves, filled_up
from pipelines.studies.fragmentation.tables import Row, unallocated_rows

FIRST_SEED: Final = 42
"""Of the published ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is compared; None takes everything that applies.

    The first of the popularities is what all placements are measured against; the firsts of popularities, tie rules
    and orders are what the charts show. `published` is the folder of the published results; None is without them.
    """

    trace: str = "openb"
    workloads: Sequence[str] | None = None
    policies: Sequence[str] | None = None
    popularities: Sequence[float] = POPULARITIES
    ties: Sequence[str] = TIES
    orders: Sequence[str] = ORDERS
    seed: int = FIRST_SEED
    seeds: int = 10
    processes: int = 1
    published: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The curves of all runs, the published ones of the same workloads, what they come to, and what has to be said."""

    question: Question
    workloads: tuple[str, ...]
    curves: pl.DataFrame
    published: pl.DataFrame
    unallocated: tuple[Row, ...]
    bars: tuple[Row, ...]
    notes: tuple[str, ...]

    def rows(self) -> list[Row]:
        """Return both tables as flat rows."""
        said = {"trace": self.question.trace}
        tables = (("unallocated", self.unallocated), ("bar", self.bars))
        return [{**said, "table": name, **row} for name, rows in tables for row in rows]


def ask(lake: Lake, question: Question, *, talk: Callable[[str], None] = lambda _: None) -> Answer:
    """Run the experiment.

    Raises
    ------
    BadUsage
        If a workload, a placement or a tie rule is unknown, a popularity is not a share, or the trace does not tell
        what is needed.
    LakeError
        If the lake has no such trace.
    SourceError
        If the published results are absent or not in their format.
    """
    arms = arms_of(question.policies, question.popularities, question.ties, question.orders)
    names = chosen(lake, question.trace, question.workloads)
    published, about = _published(question.published)
    lists = [pod_list(lake, question.trace, name) for name in names]
    began = time.perf_counter()
    seeds = range(question.seed, question.seed + question.seeds)
    curves = filled_up(lists, arms, seeds, processes=question.processes, talk=talk)
    talk(_took(curves, time.perf_counter() - began, question.processes))
    rows = unallocated_rows(curves.frame, published)
    return Answer(
        question=question,
        workloads=tuple(names),
        curves=curves.frame,
        published=published.filter(pl.col("workload").is_in(names)),
        unallocated=tuple(rows),
        bars=tuple(bars(rows)),
        notes=(*_assumptions(question, names), *about),
    )


def _published(folder: Path | None) -> tuple[pl.DataFrame, list[str]]:
    """Return the published results, if there are any, and else what to do about it."""
    if folder is not None:
        return read_published(folder), []
    said = (
        "no published results: their columns are empty, and what is held to them is not judged; --published names "
        f"their folder, or TAUT_TRACES the one that holds {FOLDER}"
    )
    return no_results(), [said]


def _assumptions(question: Question, names: Sequence[str]) -> list[str]:
    aims = " and ".join(f"{100 * share:g} %" for share in question.popularities)
    said = [
        "inflation as published: pods shuffled, then drawn anew until they ask for 130 % of the GPUs; one by one, none "
        "departs, what does not fit is dropped; other random streams than the published ones, so compare means",
        "nodes permuted: in an order drawn for each seed, the published protocol (its simulator puts numbers so drawn "
        "before the names, and gives ties to the smallest); nodes name: in the order of their own names for every "
        "seed, the literal reading of ties that go to the smallest name; both are held to the published figures",
        f"seeds {question.seed} to {question.seed + question.seeds - 1}; all arms have the same pods in the same order",
        f"{FGD} aims at the most frequent specs that make {aims} of the pods; the others are measured "
        f"against {100 * question.popularities[0]:g} %",
    ]
    if question.workloads is None and (absent := [name for name in WORKLOADS if name not in names]):
        said.append(f"the lake lacks {', '.join(absent)}: left out")
    return said


def _took(curves: Curves, all_s: float, processes: int) -> str:
    runs = sum(map(len, curves.seconds.values()))
    slowest = max(curves.seconds, key=lambda policy: median(curves.seconds[policy]))
    each = f"one of {slowest} {median(curves.seconds[slowest]):.2f} s, at most {max(curves.seconds[slowest]):.2f} s"
    return f"{runs} runs took {all_s:.0f} s with processes: {processes} ({each})"
