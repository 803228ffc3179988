"""Smaller requests and placement against fragmentation, each alone and both: what they give, and what harm is done.

Two by two under contention, arms paired by seed, with oracle sizes beside. Called by `taut experiment fgd-shrinking`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, Advice
from pipelines.simulation.cluster_file import ClusterSpec, paper_cluster
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.paired_runs import Arrivals, paired_runs
from pipelines.simulation.simulate import ALL
from pipelines.simulation.simulation_rows import trace_of
from pipelines.simulation.simulation_settings import PAPER_RATE_PER_H, SimulationSettings
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.fragmentation.charts_interplay import finished_by_arm
from pipelines.studies.intervals import Interval, mean
from pipelines.studies.shrinking.arms import EXPERIMENT_ARMS, advice_of, asked_of
from pipelines.studies.shrinking.cases import PAPER, WITH, cases_of
from pipelines.studies.shrinking.experiment import workload_of
from pipelines.studies.study import Findings, Row, dealt, summed_up
from scheduler_core.discipline import Discipline
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import FloatArray, Predictor

TRUTH: Final = "contention"
BEST_FIT: Final = "best_fit"
FGD: Final = "fgd"
PLACEMENTS: Final = (BEST_FIT, FGD, "fgd_used_first")
SIZES: Final = (SHRUNK, ORACLE)
"""Arms of experiment 1 that are run beside what was requested."""

CPU_TIMES: Final = (1.0, 3.0)
"""Times the CPU of the paper's machines. With their own CPU is short and GPUs are left; with three times, GPUs are."""

FIGURES: Final = ("completed", "deployed", "gpu_allocated_pct", "stranded_gpu_pct", "cpu_allocated_pct")
HARM: Final = ("killed", "stretch_p99", "stretched_pct", "wait_mean_s")
KEYS: Final = ("cpu_times", "placement", "sizes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whose jobs, advised by whom, at which load; `notes` say what has to be said of who predicts."""

    pool: Pool
    predictor: Predictor
    rate_per_h: float = PAPER_RATE_PER_H
    cpu_times: Sequence[float] = CPU_TIMES
    seed: int = 0
    seeds: int = 20
    processes: int = 1
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One set of arrivals, run with all sizes under all placements on the machines of one kind."""

    pool: Pool
    advice: Advice
    arrivals: Arrivals
    cpu_times: float


def ask(question: Question, *, talk: Callable[[str], None] = lambda _: None) -> Findings:
    """Run every size under every placement, paired by seed."""
    pool = question.pool
    arms = {name: EXPERIMENT_ARMS[name] for name in SIZES}
    advice = advice_of(asked_of(pool, question.predictor, ShrinkPolicy()), arms)
    tasks = [
        Task(pool=pool, advice=advice, arrivals=arrivals, cpu_times=times)
        for times in question.cpu_times
        for arrivals in _arrivals(question)
    ]
    runs = pl.concat(dealt(run_task, tasks, question.processes))
    talk(f"{runs.height} runs")
    said = [
        f"{workload_of(pool)}: {question.rate_per_h:g} jobs/h for 12 h under contention; means of {question.seeds} "
        "seeds, 95 %",
        "GPUs shared device by device; machines of the paper, with their own CPU and with more",
    ]
    return Findings(
        study="shrinking",
        trace=trace_of(pool.jobs),
        tables={
            "means": summed_up(runs, KEYS, FIGURES),
            "effects on jobs finished": effect_rows(runs),
            "harm": summed_up(runs, KEYS, HARM),
        },
        frames={"runs": runs},
        charts={"finished_by_arm": partial(finished_by_arm, runs, said)},
        notes=(
            f"{workload_of(pool)}, {len(pool.jobs)} measured jobs; mix {PAPER}; truth {TRUTH}; FIFO, who does not fit "
            "is passed over",
            "effects, paired by seed: shrinking and placement are means over the other's two levels; interaction is "
            f"what {FGD} adds to shrunk jobs less what it adds to requested ones; placements against {BEST_FIT}",
            "a gang's use of a GPU is rounded up to whole GPUs beyond one; fgd learns its target from the last 10 000 "
            "arrivals, at the size they are queued with",
            *question.notes,
        ),
    )


def run_task(task: Task) -> pl.DataFrame:
    """Run all sizes under all placements for one set of arrivals: a row each."""
    working = gangs_of(task.pool.frame)
    # A drawn job is work to be done: it completes, however the recorded one ended.
    gangs = replace(working, fails=np.zeros_like(working.fails))
    rows: list[Row] = []
    for placement in PLACEMENTS:
        settings = SimulationSettings(
            truths=(TRUTH,),
            cluster=enlarged(paper_cluster(), task.cpu_times),
            discipline=Discipline(placement=placement, sharing="devices"),
            engine="plain",
        )
        for run in paired_runs(task.pool, gangs, task.advice, (TRUTH,), [task.arrivals], settings):
            found = asdict(run.metrics)
            key: Row = {"cpu_times": task.cpu_times, "placement": placement, "sizes": run.arm}
            shares = {"gpu_allocated": "gpu_allocated_frac", "stranded_gpu": "stranded_gpu_frac"}
            shares |= {"cpu_allocated": "cpu_allocated_frac", "stretched": "stretched_share"}
            percent: Row = {f"{name}_pct": 100.0 * found[column] for name, column in shares.items()}
            plain: Row = {name: float(found[name]) for name in (*FIGURES, *HARM) if name in found}
            rows.append({**key, "seed": task.arrivals.seed, **plain, **percent})
    return pl.DataFrame(rows, infer_schema_length=None)


def enlarged(cluster: ClusterSpec, cpu_times: float) -> ClusterSpec:
    """Return machines with so many times the CPU."""
    return replace(
        cluster,
        machines=tuple(replace(machine, cpu_cores=cpu_times * machine.cpu_cores) for machine in cluster.machines),
    )


def effect_rows(runs: pl.DataFrame) -> list[Row]:
    """Return main effects and interaction on jobs finished, by cluster, sizes and placement; see the notes."""
    rows: list[Row] = []
    for (times,), own in runs.group_by("cpu_times", maintain_order=True):
        cells = {
            (str(placement), str(sizes)): cell.sort("seed")["completed"].to_numpy()
            for (placement, sizes), cell in own.group_by("placement", "sizes", maintain_order=True)
        }
        for sizes in SIZES:
            for placement in (name for name in PLACEMENTS[1:] if (name, sizes) in cells):
                for effect, found in _effects(cells, sizes, placement):
                    key: Row = {"cpu_times": times, "sizes": sizes, "placement": placement, "effect": effect}
                    rows.append({**key, "jobs": found.value, "jobs_lo": found.low, "jobs_hi": found.high})
    return rows


def _effects(cells: Mapping[tuple[str, str], FloatArray], sizes: str, placement: str) -> Iterator[tuple[str, Interval]]:
    plain, placed = cells[BEST_FIT, REQUESTED], cells[placement, REQUESTED]
    shrunk, both = cells[BEST_FIT, sizes], cells[placement, sizes]
    yield "sizes", mean((shrunk - plain + both - placed) / 2.0)
    yield "placement", mean((placed - plain + both - shrunk) / 2.0)
    yield "interaction", mean(both - shrunk - (placed - plain))
    yield "both together", mean(both - plain)


def _arrivals(question: Question) -> list[Arrivals]:
    cases = cases_of(
        question.pool,
        seeds=range(question.seed, question.seed + question.seeds),
        mixes=(PAPER,),
        loads_per_h=(question.rate_per_h,),
        horizon_s=SimulationSettings().horizon_s,
    )
    gnn = WITH if any(case.gnn == WITH for case in cases) else cases[0].gnn
    return [case.arrivals for case in cases if case.gnn == gnn and case.devices == ALL]
