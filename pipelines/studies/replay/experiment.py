"""The replay experiment from a lake to rows: which jobs, which sizes, which readings, and every assumption said.

Puts the parts together. Called by `taut experiment replay`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.studies.replay.capacity import Reading, evidence_of, readings_of
from pipelines.studies.replay.orders import AGING, AGING_GPU_S, orders_for
from pipelines.studies.replay.replay import Outcome, planned, replay, replayed
from pipelines.studies.replay.rows import Row, rows_of
from pipelines.studies.replay.sizes import ORACLE, sizes_of
from pipelines.studies.resamples import BLOCK_DAYS, DRAWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is replayed; None takes everything that applies. `loads` are those of the reading `load`."""

    trace: str
    cluster: str | None = None
    readings: list[str] | None = None
    orders: list[str] | None = None
    sizes: list[str] | None = None
    loads: tuple[float, ...] = (0.7, 0.9)
    checkpoint_s: float = 60.0
    seed: int = 0
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcomes of all runs, and the notes that belong to every figure of theirs."""

    trace: str
    cluster: str
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]
    seed: int

    def rows(self, *, detail: bool = False) -> list[Row]:
        """Return the outcomes as flat rows, as `replay.rows` measures them."""
        rows = rows_of(self.outcomes, detail=detail, seed=self.seed)
        return [{"trace": self.trace, "cluster": self.cluster, **row} for row in rows]


def ask(lake: Lake, question: Question, *, talk: Callable[[str], None] = lambda _: None) -> Answer:
    """Replay the jobs of one cluster of a trace under every reading, order and source of sizes that was asked.

    Raises
    ------
    BadUsage
        If a name is unknown, or the trace has several clusters and none is named.
    LakeError
        If the lake lacks what is needed.
    """
    every = lake.table("jobs", question.trace, question.cluster).collect()
    clusters = every["cluster"].unique().sort().to_list()
    if len(clusters) != 1:
        raise BadUsage(f"{question.trace} has the clusters {', '.join(clusters) or 'none'}: say which with --cluster")
    taken = replayed(every)
    jobs = taken.jobs
    orders = orders_for(jobs, question.orders)
    began = time.perf_counter()
    learnt_from = lake.table("jobs", question.trace).filter(pl.col("req_gpus") > 0.0).collect()
    asked = list(dict.fromkeys([*question.sizes, ORACLE])) if question.sizes else None
    sizes = sizes_of(jobs, learnt_from, asked, seed=question.seed, nthread=question.threads, talk=talk)
    talk(f"sizes took {time.perf_counter() - began:.1f} s")
    found = evidence_of(lake, jobs, since=sizes.since, loads=question.loads)
    readings = readings_of(found, question.readings)
    notes = (*taken.notes, *assumptions(question, jobs, readings, sizes.since), *sizes.notes)
    for note in notes:
        talk(f"note: {note}")
    plan = planned(orders, list(sizes.predicted_s), everywhere=bool(question.sizes))
    outcomes: list[Outcome] = []
    for reading in readings:
        began = time.perf_counter()
        runs = replay(jobs, sizes.predicted_s, reading, plan, since=sizes.since, checkpoint_s=question.checkpoint_s)
        own = list(runs)
        talk(f"{reading.name}: {len(own)} outcomes took {time.perf_counter() - began:.1f} s")
        outcomes.extend(own)
    return Answer(trace=question.trace, cluster=clusters[0], outcomes=tuple(outcomes), notes=notes, seed=question.seed)


def assumptions(question: Question, jobs: pl.DataFrame, readings: list[Reading], since: datetime) -> list[str]:
    """Say what every figure of an answer rests on and the trace does not tell."""
    said = [f"capacity {reading.name}: {reading.note}" for reading in readings]
    if jobs["queue_s"].null_count() == jobs.height:
        said.append(
            "the trace does not tell when jobs started: arrivals and run times are real, recorded ends assume no wait"
        )
    else:
        said.append("arrivals and run times are real; recorded starts are not used")
    said.append(
        "only GPUs bind; a gang larger than a machine is divided into equal instances, fewer GPUs are never split"
    )
    said.append("history knows a job's run time from its recorded end on, though in the replay it may end later")
    said.append(f"figures are of jobs submitted from {since:%Y-%m-%d %H:%M} UTC on; earlier ones warm the cluster up")
    said.append(
        f"intervals are 95 %, of {DRAWS} draws of blocks of {BLOCK_DAYS} days of submission, the same for all orders: "
        "what single weeks weigh, not what other arrivals would come to"
    )
    said.append(
        f"preempting orders pay {question.checkpoint_s:g} s for every restart; aging is {AGING:g} s a second waited, "
        f"for qssf {AGING_GPU_S:g} GPU-seconds"
    )
    return said
