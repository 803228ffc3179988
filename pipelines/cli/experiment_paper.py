"""`taut experiment 1|2|3|ablate|frontier`: the paper's experiments, net of harm, on real or synthetic jobs.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the commands.
"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.options import say

if TYPE_CHECKING:
    from pipelines.simulation.job_pool import Pool
    from scheduler_core.types import Predictor


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
    from pipelines.studies.shrinking.crossfit import FoldedPredictor, crossfit, looking_back

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
