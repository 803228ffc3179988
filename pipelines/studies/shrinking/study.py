"""Two shrinking studies: by load, and by part of the method. `paper` declares a third.

Gain is how many more jobs finish; harm is jobs killed or slowed down. Joins designs, charts and options; simulation
runs and tables are in the other modules of this folder. Called by `taut study`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import polars as pl

from pipelines.studies.shrinking.cases import PAPER
from pipelines.studies.shrinking.charts import completion_over_load, deployed_over_load, use_over_load
from pipelines.studies.shrinking.crossfit import predicted
from pipelines.studies.shrinking.designs import ABLATION, LOADS, Config, Design, Results, results_of
from pipelines.studies.shrinking.rendered import rendered
from pipelines.studies.study import Context, Findings, Study

if TYPE_CHECKING:
    import altair as alt

CHARTS: Final[Mapping[str, Callable[[pl.DataFrame, Sequence[str]], "alt.TopLevelMixin"]]] = {
    "figure2_deployed": deployed_over_load,
    "figure3_completion": completion_over_load,
    "figure4_use": use_over_load,
}
"""Functions that draw the charts from the rows of the table `load`, by file name."""

CLUSTER: Final = "32 GPUs, 384 cores, 2 TiB, 12 h"
"""Cluster and duration of the experiments of Yang, Hong and Tang, used in all shrinking studies."""


def run_design(config: Config, context: Context, *, design: Design) -> Findings:
    """Run one design on jobs drawn from a trace."""
    return findings_of(results_of(design, config, predicted(config, context, config.cluster), context))


def findings_of(results: Results) -> Findings:
    """Return the tables, charts and frames of a design's results."""
    load = pl.DataFrame(results.tables.get("load", []), infer_schema_length=None)
    of, about = subtitle_of(results), f"({results.trace}: {results.workload})"
    return Findings(
        study=results.study,
        trace=results.trace,
        tables={f"{title} {about}": rows for title, rows in rendered(results)},
        charts={} if load.is_empty() else {name: partial(draw, load, of) for name, draw in CHARTS.items()},
        frames={"runs": results.runs},
        notes=results.notes,
        flat=results.rows(),
    )


def subtitle_of(results: Results) -> list[str]:
    """Return the lines below a chart's title, which state jobs, mix, cluster and seeds."""
    seeds, jobs = results.runs["seed"].n_unique(), results.runs["submitted"].to_numpy()
    return [
        f"{results.trace}: {results.jobs} {results.workload}; mix {PAPER} (cv:nlp:gnn:ctr), FIFO; {CLUSTER}",
        f"means and 95 % intervals of {seeds} seeds, {jobs.min():.0f} to {jobs.max():.0f} jobs a run",
    ]


def _study(design: Design) -> Study[Config]:
    arms = {arm: each.what for arm, each in design.arms.items()}
    run = partial(run_design, design=design)
    return Study(name=design.name, config=Config, run=run, arms=arms, takes=("lake", "threads"))


SHRINKING: Final = _study(LOADS)
BY_PART: Final = _study(ABLATION)
