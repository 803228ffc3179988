"""The five shrinking studies: by load, mix, policy and part of the method, and the frontier of gain against harm.

Gain is how many more jobs finish; harm is jobs killed or slowed down. Joins designs, charts and options; simulation
runs and tables are in the other modules of this folder. Called by `taut study`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import polars as pl

from pipelines.simulation.job_pool import Pool
from pipelines.simulation.rows import trace_of
from pipelines.simulation.settings import SimulationSettings
from pipelines.studies.shrinking.charts_gains import gain_against_harm, gain_and_harm, gain_by_mix, gain_by_policy
from pipelines.studies.shrinking.charts_loads import (
    completion_over_load,
    cpu_over_time,
    deployed_over_load,
    jobs_over_time,
    use_over_load,
    use_over_time,
)
from pipelines.studies.shrinking.crossfit import PredictorConfig, predicted
from pipelines.studies.shrinking.designs import (
    ABLATION,
    LOADS,
    MIXTURES,
    ORDERS,
    Config,
    Design,
    Results,
    results_of,
    workload_of,
)
from pipelines.studies.shrinking.frontier import frontier, undominated
from pipelines.studies.shrinking.rendered import rendered
from pipelines.studies.shrinking.runs import course_of
from pipelines.studies.study import Context, Findings, Row, Study, cluster_option, seeds_option

if TYPE_CHECKING:
    import altair as alt

Drawing = Callable[[pl.DataFrame, Sequence[str]], "alt.TopLevelMixin"]

OVER_TIME: Final = "over_time"
CHARTS: Final[Mapping[str, Mapping[str, tuple[str, Drawing]]]] = {
    "1": {
        "figure2_deployed": ("load", deployed_over_load),
        "figure2_jobs_over_time": (OVER_TIME, jobs_over_time),
        "figure3_completion": ("load", completion_over_load),
        "figure4_use": ("load", use_over_load),
        "figure4_use_over_time": (OVER_TIME, use_over_time),
        "cpu_over_time": (OVER_TIME, cpu_over_time),
    },
    "2": {"figure5_mixes": ("gain", gain_by_mix)},
    "3": {"figure6_policies": ("gain", gain_by_policy)},
    "ablate": {"gain_and_harm": ("part", gain_and_harm)},
}
"""Charts of each experiment by file name: the table whose rows are drawn (or `over_time`), and the drawing function."""

CLUSTER: Final = "32 GPUs, 384 cores, 2 TiB, 12 h"
"""Cluster and duration of the experiments of Yang, Hong and Tang, used in all shrinking studies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierConfig(PredictorConfig):
    """Options of the frontier study; its load is always 70 jobs/h."""

    cluster: str | None = cluster_option()
    seeds: int = seeds_option(20)


def run_design(config: Config, context: Context, *, design: Design) -> Findings:
    """Run one design on jobs drawn from a trace."""
    return findings_of(results_of(design, config, predicted(config, context, config.cluster), context))


def findings_of(results: Results) -> Findings:
    """Return the tables, charts and frames of a design's results."""
    course = course_of(results.outcomes.over_time)
    charts = {
        name: partial(
            draw,
            course if about == OVER_TIME else pl.DataFrame(results.tables[about], infer_schema_length=None),
            subtitle_of(results, watched=about == OVER_TIME),
        )
        for name, (about, draw) in CHARTS[results.experiment].items()
    }
    of = f"({results.trace}: {results.workload})"
    return Findings(
        study="shrinking",
        trace=results.trace,
        tables={f"{title} {of}": rows for title, rows in rendered(results)},
        charts=charts,
        frames={"runs": results.outcomes.runs, **({} if course.is_empty() else {OVER_TIME: course})},
        notes=results.notes,
        flat=results.rows(),
    )


def subtitle_of(results: Results, *, watched: bool = False) -> list[str]:
    """Return the lines below a chart's title, which state jobs, load, cluster and seeds.

    With `watched` they are about the runs recorded over time only.
    """
    runs = results.outcomes.runs
    if watched:
        runs = runs.filter(pl.col("cpu_met_h").is_not_null())
    seeds, jobs = runs["seed"].n_unique(), runs["submitted"].to_numpy()
    varied = ("rate_per_h", "mix", "policy")
    loads, mixes, policies = (runs[name].unique(maintain_order=True).to_list() for name in varied)
    fixed = [f"{loads[0]:g} jobs/h"] if len(loads) == 1 else []
    fixed += [f"mix {mixes[0]} (cv:nlp:gnn:ctr)"] if len(mixes) == 1 else []
    fixed += [str(policies[0]).upper()] if len(policies) == 1 else []
    return [
        f"{results.trace}: {results.jobs} {results.workload}; {', '.join(fixed)}; {CLUSTER}",
        f"means and 95 % intervals of {seeds} seeds, {jobs.min():.0f} to {jobs.max():.0f} jobs a run",
    ]


def run_frontier(config: FrontierConfig, context: Context) -> Findings:
    """Run Algorithm 1 with every threshold, margin and lowered floor of the frontier on jobs drawn from a trace."""
    given = predicted(config, context, config.cluster)
    settings = SimulationSettings(engine="compiled")
    of: Row = {"experiment": "frontier", "workload": workload_of(given.pool), "trace": trace_of(given.pool.jobs)}
    seeds = range(config.seed, config.seed + config.seeds)
    rows = [{**of, **row} for row in frontier(given.pool, given.predictor, settings, seeds=seeds)]
    chart = partial(gain_against_harm, pl.DataFrame(rows, infer_schema_length=None), _frontier_of(given.pool, config))
    return Findings(
        study="shrinking-frontier",
        trace=trace_of(given.pool.jobs),
        tables={"": undominated(rows)},
        charts={"gain_against_harm": chart},
        notes=(*settings.notes(), *given.notes),
        flat=rows,
    )


def _frontier_of(pool: Pool, config: FrontierConfig) -> list[str]:
    return [
        f"{trace_of(pool.jobs)}: {len(pool.jobs)} {workload_of(pool)}; 70 jobs/h, mix 5:15:15:65, FIFO; {CLUSTER}",
        f"means of {config.seeds} seeds with the 95 % intervals of the gain; kills count each distinct job once",
    ]


def _study(name: str, design: Design) -> Study[Config]:
    arms = {arm: each.what for arm, each in design.arms.items()}
    return Study(name=name, config=Config, run=partial(run_design, design=design), arms=arms, takes=("lake", "threads"))


SHRINKING: Final = _study("shrinking", LOADS)
BY_MIX: Final = _study("shrinking-mixes", MIXTURES)
BY_POLICY: Final = _study("shrinking-policies", ORDERS)
BY_PART: Final = _study("shrinking-ablation", ABLATION)
FRONTIER: Final = Study(name="shrinking-frontier", config=FrontierConfig, run=run_frontier, takes=("lake", "threads"))
