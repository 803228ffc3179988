"""Four shrinking studies: by load, mix, policy and part of the method. `paper` declares a fifth.

Gain is how many more jobs finish; harm is jobs killed or slowed down. Joins designs, charts and options; simulation
runs and tables are in the other modules of this folder. Called by `taut study`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import polars as pl

from pipelines.studies.shrinking.charts_gains import gain_and_harm, gain_by_mix, gain_by_policy
from pipelines.studies.shrinking.charts_loads import (
    completion_over_load,
    cpu_over_time,
    deployed_over_load,
    jobs_over_time,
    use_over_load,
    use_over_time,
)
from pipelines.studies.shrinking.crossfit import predicted
from pipelines.studies.shrinking.designs import (
    ABLATION,
    LOADS,
    MIXTURES,
    ORDERS,
    Config,
    Design,
    Results,
    results_of,
)
from pipelines.studies.shrinking.rendered import rendered
from pipelines.studies.shrinking.runs import course_of
from pipelines.studies.study import Context, Findings, Study

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


def _study(name: str, design: Design) -> Study[Config]:
    arms = {arm: each.what for arm, each in design.arms.items()}
    return Study(name=name, config=Config, run=partial(run_design, design=design), arms=arms, takes=("lake", "threads"))


SHRINKING: Final = _study("shrinking", LOADS)
BY_MIX: Final = _study("shrinking-mixes", MIXTURES)
BY_POLICY: Final = _study("shrinking-policies", ORDERS)
BY_PART: Final = _study("shrinking-ablation", ABLATION)
