"""`taut experiment 1|2|3|ablate|frontier`: the paper's experiments, net of harm, on real or synthetic jobs.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the commands.
"""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Offline, Seed, Threads, Trace, emit, say

if TYPE_CHECKING:
    from pipelines.simulation.job_pool import Pool
    from scheduler_core.types import Predictor

ABOUT: Final = {
    "1": "Experiment 1: jobs deployed and finished and use of every resource over load; the goal under contention.",
    "2": "Experiment 2: the gain in three mixes of task types.",
    "3": "Experiment 3: the gain under FIFO, SRTF and DRF.",
    "ablate": "What each part of the method buys, beside fixed shares, percentile rules and the oracle.",
}
"""By subcommand: what its help says."""


class PredictorOption(StrEnum):
    """Who predicts run times and peak use."""

    OUT_OF_FOLD = "out-of-fold"
    CHAMPION = "champion"
    ORACLE = "oracle"


Loads = Annotated[
    list[float] | None,
    typer.Option(
        "--load", help="Jobs per hour (may be repeated).", min=0.1, max=10_000.0, show_default="70; in 1: 30 to 100"
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", help="Replications, each with arrivals of its own.", min=2, max=1000)]
Theta = Annotated[float, typer.Option(help="Largest relative change of the predicted run time.", min=1e-6, max=10.0)]
Who = Annotated[
    PredictorOption,
    typer.Option(
        "--predictor",
        help="Models trained here on other groups than each job's, the registry's champions (on the jobs submitted "
        "after their cut), or who knows.",
    ),
]
Folds = Annotated[int, typer.Option("--folds", help="Parts that groups are dealt to, for out-of-fold.", min=2, max=100)]
Out = Annotated[Path | None, typer.Option(help="New folder for rows, runs and charts.", show_default="none is written")]


def command(experiment: str) -> Callable[..., None]:
    """Return the subcommand of one experiment; all take the same options."""

    def run(
        lake: Lake = None,
        trace: Trace = None,
        cluster: Cluster = None,
        loads: Loads = None,
        seeds: Seeds = 20,
        theta: Theta = 0.05,
        predictor: Who = PredictorOption.OUT_OF_FOLD,
        folds: Folds = 10,
        offline: Offline = False,
        out: Out = None,
        seed: Seed = 0,
        threads: Threads = None,
        form: FormatOption = Format.TABLE,
    ) -> None:
        from pipelines.cli.opening import threads_of
        from pipelines.cli.progress import compiling
        from pipelines.simulation.results_folder import fresh_folder
        from pipelines.studies.shrinking.experiment import Question, ask
        from pipelines.studies.shrinking.shown import shown
        from scheduler_core.shrink import ShrinkPolicy

        folder = None if out is None else fresh_folder(out)
        with compiling():
            pool, who, notes = advised(
                lake, trace, cluster, predictor, folds=folds, offline=offline, seed=seed, threads=threads_of(threads)
            )
            question = Question(
                experiment=experiment,
                pool=pool,
                predictor=who,
                policy=ShrinkPolicy(theta=theta),
                seed=seed,
                seeds=seeds,
                loads_per_h=loads,
                notes=notes,
            )
            answer = ask(question, talk=say)
        for note in answer.notes:
            say(f"note: {note}")
        if folder is not None:
            from pipelines.studies.shrinking.folder import write

            say(f"written: {', '.join(str(path) for path in write(answer, folder))}")
        if form is not Format.TABLE:
            emit(answer.rows(), form, kinds=True)
            return
        for title, rows in shown(answer):
            say(f"\n{title} ({answer.trace}: {answer.workload})")
            emit(rows, form)

    run.__doc__ = ABOUT[experiment]
    return run


def frontier(
    lake: Lake = None,
    trace: Trace = None,
    cluster: Cluster = None,
    seeds: Seeds = 20,
    predictor: Who = PredictorOption.OUT_OF_FOLD,
    folds: Folds = 10,
    offline: Offline = False,
    out: Out = None,
    seed: Seed = 0,
    threads: Threads = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Gain against harm over thresholds, margins and eased floors, under contention at 70 jobs/h."""
    from pipelines.cli.opening import threads_of
    from pipelines.cli.progress import compiling
    from pipelines.simulation.results_folder import fresh_folder
    from pipelines.simulation.simulation_rows import trace_of
    from pipelines.simulation.simulation_settings import SimulationSettings
    from pipelines.studies.shrinking.experiment import workload_of
    from pipelines.studies.shrinking.folder import write_frontier
    from pipelines.studies.shrinking.frontier import frontier as points_of
    from pipelines.studies.shrinking.frontier import undominated

    folder = None if out is None else fresh_folder(out)
    settings = SimulationSettings(engine="compiled")
    with compiling():
        pool, who, notes = advised(
            lake, trace, cluster, predictor, folds=folds, offline=offline, seed=seed, threads=threads_of(threads)
        )
        said = {"experiment": "frontier", "workload": workload_of(pool), "trace": trace_of(pool.jobs)}
        found = points_of(pool, who, settings, seeds=range(seed, seed + seeds))
    rows = [{**said, **row} for row in found]
    notes = (*settings.notes(), *notes)
    for note in notes:
        say(f"note: {note}")
    if folder is not None:
        say(f"written: {', '.join(str(path) for path in write_frontier(rows, pool, notes, folder, seeds=seeds))}")
    emit(undominated(rows) if form is Format.TABLE else rows, form)


def advised(
    lake: Path | None,
    trace: str | None,
    cluster: str | None,
    predictor: PredictorOption,
    *,
    folds: int,
    offline: bool,
    seed: int,
    threads: int,
) -> "tuple[Pool, Predictor, tuple[str, ...]]":
    """Return the jobs to draw from, who predicts for them, and what has to be said of who does."""
    import polars as pl

    from pipelines.cli.opening import champions, opened, place_of
    from pipelines.simulation.advice import oracle_of
    from pipelines.simulation.job_pool import job_pool
    from pipelines.studies.shrinking.cases import TYPES
    from pipelines.studies.shrinking.crossfit import crossfit
    from pipelines.studies.shrinking.folded import FoldedPredictor, looking_back

    with opened(lake, trace) as (source, name):
        jobs, usage = (source.table(table, name, cluster).collect() for table in ("jobs", "usage"))
    jobs = jobs.filter(pl.col("task_type").is_in(TYPES))
    match predictor:
        case PredictorOption.OUT_OF_FOLD:
            pool = job_pool(jobs, usage)
            fitted = crossfit(pool, jobs, usage, folds=folds, seed=seed, nthread=threads, talk=say)
            said = (
                f"predictions out of fold: {folds} times models of other groups than the ones they answer for; of "
                "users they may know. Histories are whole, as when served: "
                f"{looking_back(pool, jobs)} of {len(pool.jobs)} jobs look back on earlier runs of their own group"
            )
            return pool, FoldedPredictor.of(fitted, pool), (said,)
        case PredictorOption.CHAMPION:
            who = champions(place_of(lake), offline=offline)
            until = max(bundle.card.until for bundle in who.bundles.values())
            said = f"predictions of the champions, for jobs submitted after their cut ({until:%Y-%m-%d %H:%M} UTC)"
            return job_pool(jobs.filter(pl.col("submit_ts") >= until), usage), who, (said,)
        case PredictorOption.ORACLE:
            pool = job_pool(jobs, usage)
            return pool, oracle_of(pool), ("predictor oracle: run times and peak use are those that were recorded",)


EXPERIMENTS: Final[dict[str, Callable[..., None]]] = {**{name: command(name) for name in ABOUT}, "frontier": frontier}
"""By the name of the subcommand."""
