"""The study of placements while pods come and go: fragmentation and its reasons over time, waits, and allocation.

As recorded on all machines, and at offered loads on a thinned cluster (`churn`). Called by `taut study departures`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR, Workload
from pipelines.simulation.measures.job_metrics import job_metrics
from pipelines.simulation.measures.metrics import summarise
from pipelines.simulation.measures.series import fragmentation_series
from pipelines.studies.fragmentation.charts import fragmentation_over_time, reasons, waits_over_load
from pipelines.studies.fragmentation.churn import LONGEST_S, Churn, churn_of, loaded
from pipelines.studies.study import (
    Context,
    Findings,
    Row,
    Study,
    dealt,
    differences,
    option,
    seed_option,
    seeds_option,
    summed_up,
)
from scheduler_core.cluster import Machine
from scheduler_core.devices import WHOLE
from scheduler_core.discipline import Discipline
from scheduler_core.fragmentation import USES, Use
from scheduler_core.placement import Placement
from scheduler_core.sharing_placements import DevicePlacement
from scheduler_core.target import SlidingTarget, TargetWorkload
from scheduler_core.types import FloatArray

LOADS: Final = (0.7, 0.9, 1.0, 1.1)
HORIZON_S: Final = 12 * SECONDS_PER_HOUR
WARM_UP_S: Final = SECONDS_PER_HOUR
STEP_S: Final = 600.0
DAY_S: Final = 24 * SECONDS_PER_HOUR
WINDOWS: Final = (100, 1000)
"""How many last arrivals a learnt target counts."""

RECORDED: Final = "as recorded"
FGD: Final = "fgd"

Aim = Callable[[TargetWorkload], TargetWorkload | SlidingTarget]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A placement by name, and how its target is made; None leaves the target to the registry of placements."""

    placement: str
    aim: Aim | None = None

    def made(self, target: TargetWorkload, seed: int) -> str | Placement:
        """Return a new placement; `target` is that of all pods."""
        return self.placement if self.aim is None else DevicePlacement(self.placement, self.aim(target), seed=seed)


def _known(target: TargetWorkload) -> TargetWorkload:
    return target


def _learning(window: int) -> Aim:
    return lambda _: SlidingTarget(window)


ARMS: Final[Mapping[str, Arm]] = {
    **{name: Arm(placement=name) for name in ("random", "dot_product", "gpu_clustering", "gpu_packing")},
    **{name: Arm(placement=name) for name in ("best_fit_gpu", "best_fit")},
    **{name: Arm(placement=name, aim=_known) for name in (FGD, "fgd_used_first")},
    **{f"fgd, last {window}": Arm(placement=FGD, aim=_learning(window)) for window in WINDOWS},
}
"""Placements by name; those against fragmentation get the target of the whole list, or learn it from last arrivals."""

FIGURES: Final = ("allocated_pct", "fragmented_pct", "wait_mean_s", "wait_p99_s", "large_wait_mean_s", "never_started")
"""Means over the window: GPUs held, and free GPUs that an average pod cannot use, in percent of all; waits of pods
until their start or until the end (`large`: of those that ask for a whole machine); pods not started by the end."""

REASONS: Final = tuple(f"{use}_pct" for at, use in enumerate(USES) if at != Use.USABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Which pod list, on one machine in `every`, at which offered loads, besides its own arrivals on all machines."""

    trace: str = option("openb", help="Name of the trace in the lake.")
    workload: str = option("default", help="The pod list.")
    loads: tuple[float, ...] = option(
        LOADS,
        name="--load",
        help="GPUs asked for at every moment on average, as a share of all (may be repeated).",
        minimum=0.05,
        maximum=2.0,
        shown="0.7, 0.9, 1.0 and 1.1",
    )
    arms: tuple[str, ...] = option((), name="--arm", help="Only this arm (may be repeated).", shown="all")
    every: int = option(16, help="Loaded clusters have one in so many of the machines.", minimum=1, maximum=1000)
    seeds: int = seeds_option(5)
    seed: int = seed_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One set of arrivals that every arm is run under; without a load the recorded ones."""

    churn: Churn
    load: float | None
    seed: int
    arms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A row of figures per arm, and a row per arm and step."""

    runs: pl.DataFrame
    courses: pl.DataFrame


def run(config: Config, context: Context) -> Findings:
    """Run every arm under the same arrivals, load by load and seed by seed.

    Raises
    ------
    BadUsage
        If an arm is unknown, or the list lacks pods to draw from.
    LakeError
        If the lake has no such list, or it tells no times.
    """
    arms = tuple(config.arms or ARMS)
    if strange := [name for name in arms if name not in ARMS]:
        raise BadUsage(f"no arm {strange[0]!r}; expected {', '.join(ARMS)}")
    churn = churn_of(context.lake(), config.trace, config.workload, every=config.every)
    seeds = range(config.seed, config.seed + config.seeds)
    tasks = [Task(churn=churn, load=load, seed=seed, arms=arms) for load in config.loads for seed in seeds]
    tasks.insert(0, Task(churn=churn, load=None, seed=config.seed, arms=arms))
    done: list[Ran] = []
    for task, ran in zip(tasks, dealt(run_task, tasks, context.processes), strict=True):
        done.append(ran)
        context.talk(f"{_said(task.load)}, seed {task.seed}: {len(arms)} arms")
    runs, courses = pl.concat(each.runs for each in done), pl.concat(each.courses for each in done)
    base = "best_fit_gpu" if "best_fit_gpu" in arms else arms[0]
    tables = {
        "means over the window": summed_up(runs, ("load", "arm"), FIGURES),
        f"less {base}, paired": differences(runs, ("load",), "arm", base, FIGURES),
        "why GPUs are of no use, percent of all": summed_up(runs, ("load", "arm"), REASONS),
    }
    said = [
        f"{config.trace}, {config.workload}; {config.seeds} seeds; lines and dots: means, with 95 % intervals",
        f"one in {config.every} machines; pods and lifetimes drawn from the recorded ones of at most a day",
    ]
    return Findings(
        study="departures",
        trace=config.trace,
        tables=tables,
        frames={"runs": runs, "courses": courses},
        charts={
            "fragmentation_over_time": partial(fragmentation_over_time, courses, said),
            "reasons": partial(reasons, runs, said),
            "waits_over_load": partial(waits_over_load, tables["means over the window"], said),
        },
        notes=notes_of(config, churn),
    )


def run_task(task: Task) -> Ran:
    """Run all arms under one set of arrivals."""
    churn = task.churn
    if task.load is None:
        workload, machines, horizon_s, step_s = churn.recorded, churn.machines, np.inf, DAY_S
    else:
        rng = np.random.default_rng([task.seed, round(1000 * task.load)])
        workload, machines = loaded(churn, task.load, HORIZON_S, rng), churn.thinned
        horizon_s, step_s = HORIZON_S, STEP_S
    rows: list[Row] = []
    courses: list[pl.DataFrame] = []
    for arm in task.arms:
        discipline = Discipline(
            placement=ARMS[arm].made(churn.target, task.seed), sharing="devices", match_gpu_type=True, seed=task.seed
        )
        schedule = simulate(workload, machines, discipline, horizon_s=horizon_s, engine="plain")
        course = fragmentation_series(schedule, churn.target, step_s)
        key: Row = {"load": _said(task.load), "arm": arm, "seed": task.seed}
        warm_up_s = 0.0 if task.load is None else WARM_UP_S
        rows.append({**key, **figures(schedule, course, warm_up_s)})
        frame = pl.DataFrame(dict(course))
        courses.append(frame.select(*(pl.lit(value).alias(name) for name, value in key.items()), pl.all()))
    return Ran(runs=pl.DataFrame(rows, infer_schema_length=None), courses=pl.concat(courses))


def figures(schedule: Schedule, course: Mapping[str, FloatArray], warm_up_s: float) -> Row:
    """Return one run's figures from the end of the warm-up on; see `FIGURES`."""
    found = summarise(schedule, warm_up_s=warm_up_s)
    gpus = sum(machine.gpus for machine in schedule.machines)
    kept = course["time_s"] >= warm_up_s
    steps_s = (course["until_s"] - course["time_s"])[kept]
    to_pct = 100.0 / gpus / steps_s.sum()
    waits_s = waits(schedule)
    large = schedule.workload.request_units[:, 2] >= WHOLE * max(machine.gpus for machine in schedule.machines)
    of_large = waits_s[large & (schedule.workload.arrive_s >= warm_up_s) & ~np.isnan(waits_s)]
    return {
        "allocated_pct": 100.0 * found.gpu_allocated_frac,
        "fragmented_pct": float((course["fragmented_gpus"][kept] * steps_s).sum() * to_pct),
        "wait_mean_s": found.wait_at_least_mean_s,
        "wait_p99_s": found.wait_at_least_p99_s,
        "large_wait_mean_s": float(of_large.mean()) if len(of_large) else None,
        "never_started": float(found.submitted - found.deployed),
        "submitted": float(found.submitted),
        "never_fits": float(found.never_fits),
        **{f"{use}_pct": float((course[f"{use}_gpus"][kept] * steps_s).sum() * to_pct) for use in USES},
    }


def waits(schedule: Schedule) -> FloatArray:
    """Return each job's wait until its first start or the end (n,); NaN where it never came or can never fit."""
    became, workload = job_metrics(schedule), schedule.workload
    until_s = np.where(np.isnan(became.first_start_s), schedule.end_s, became.first_start_s)
    return np.where(became.arrived, until_s - workload.arrive_s, np.nan)


def notes_of(config: Config, churn: Churn) -> tuple[str, ...]:
    """Return the assumptions behind every figure."""
    gpus = sum(machine.gpus for machine in churn.thinned)
    work = churn.work_gpu_s
    return (
        f"loaded clusters: {len(churn.thinned)} machines with {gpus} GPUs, one in {config.every} of each GPU type "
        f"and size; Poisson arrivals for {HORIZON_S / SECONDS_PER_HOUR:g} h, the first "
        f"{WARM_UP_S / SECONDS_PER_HOUR:g} h not counted",
        f"pods are drawn with replacement from the {len(work)} recorded ones of at most {LONGEST_S / 3600:g} h, each "
        f"with its own lifetime (on average {work.mean():.0f} GPU-seconds); {churn.left_out} that ran longer are left "
        "out; at 0 s those arrive that would be running",
        "FIFO, and who does not fit is passed over; GPU types are matched; target: all pods of the list, or the last "
        "so many arrivals",
        _recorded_note(churn.recorded, churn.machines),
    )


def _recorded_note(workload: Workload, machines: Sequence[Machine]) -> str:
    gpus = sum(machine.gpus for machine in machines)
    span_s = float((workload.arrive_s + workload.run_s).max())
    work = float((workload.run_s * workload.request_units[:, 2]).sum()) / WHOLE
    return (
        f"as recorded: {len(workload)} pods on all {len(machines)} machines offer {work / gpus / span_s:.2%} of the "
        "GPUs over their time: no pod can wait there"
    )


def _said(load: float | None) -> str:
    return RECORDED if load is None else f"{load:g}"


DEPARTURES: Final = Study(name="departures", config=Config, run=run, takes=("lake", "processes"))
