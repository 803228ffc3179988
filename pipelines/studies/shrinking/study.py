"""Two shrinking studies: by load, and by part of the method. `paper` declares a third.

Gain is how many more jobs finish; harm is jobs killed or slowed down. Joins designs, charts and options, and selects
the columns that the screen shows; claims then have one column per arm. Called by `taut study`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import polars as pl

from pipelines.simulation.advice import ORACLE
from pipelines.simulation.simulate import ALL
from pipelines.studies.shrinking.cases import PAPER
from pipelines.studies.shrinking.charts import completion_over_load, deployed_over_load, use_over_load
from pipelines.studies.shrinking.claims import FIGURES
from pipelines.studies.shrinking.crossfit import predicted
from pipelines.studies.shrinking.designs import ABLATION, LOADS, Config, Design, Results, results_of
from pipelines.studies.study import Context, Findings, Row, Study

if TYPE_CHECKING:
    import altair as alt
TITLES: Final = {
    "claim": "The paper's claims, and the gains found over the jobs' own requests, with 95 % intervals (devices=all)",
    "part": "What each way of sizing gains, and the harm it does (contention, devices=all)",
    "bottleneck": "When the CPU was first held but for a twentieth, in hours (devices=all)",
    "goal": "The goal, under contention",
    "harm": "Harm, and the resources that at least half of the waiting jobs lacked (devices=all)",
    "binding": "Which resources waiting jobs lack, and what keeps their slack in place (contention, devices=all)",
    "jobs_harmed": "Harm under contention, each distinct job counted once: exact 95 % bounds of jobs and of groups",
}
"""Titles of the tables shown on screen, in this order; other tables are only in the JSON and CSV output."""

BINDING_TITLE: Final = (
    "The slowdown model that leaves least of each of the paper's figures (devices=all; none: no difference)"
)

_FIGURES: Final = tuple(
    name for name, each in FIGURES.items() if each.paper_gain_pct is not None or name == "completed"
)
_PLACE: Final = ("gnn", "truth", "figure")
_COLUMNS: Final[Mapping[str, str]] = {
    "goal": "gnn devices arm demand asked found found_lo found_hi met",
    "harm": "gnn truth arm killed_sum stretched_share stretch_p99 bottleneck "
    "cpu_lacked_share mem_lacked_share gpu_lacked_share",
    "binding": "gnn arm resource lacked_share binds left_share floor_share left_by left_by_share left_by_type",
    "jobs_harmed": "gnn devices arm jobs killed killed_hi groups groups_killed_hi stretched_share stretch_max",
    "bottleneck": "gnn truth arm paper_h cpu_met_h cpu_met_h_lo cpu_met_h_hi",
}
_PART: Final[Mapping[str, int]] = {
    "completed_gain_pct": 1,
    "completed_of_oracle": 2,
    "completed_beside_shrunk": 1,
    "killed": 1,
    "stretch_p99": 3,
}
"""Columns of the ablation table that are shown with their interval, and their number of decimals."""


def rendered(results: Results) -> list[tuple[str, list[Row]]]:
    """Return the title and rows of each table for the screen, in the order of `TITLES`."""
    found = []
    for about, title in TITLES.items():
        if rows := results.tables.get(about):
            known = [row for row in rows if about in ("goal", "jobs_harmed") or row.get("devices") == ALL]
            found.append((title, _rendered(about, known)))
            if "binding_truth" in rows[0]:
                found.append((BINDING_TITLE, _binding(known)))
    return found


def _rendered(about: str, rows: Sequence[Row]) -> list[Row]:
    if about == "claim":
        return _by_arm(rows)
    if about == "part":
        return [_part(row) for row in rows if row["truth"] == "contention"]
    return [{name: row.get(name) for name in _COLUMNS[about].split()} for row in rows]


def _binding(rows: Sequence[Row]) -> list[Row]:
    """Return one row per metric, with a column for each arm: the slowdown model under which the arm gains least."""
    lines: dict[tuple[object, ...], Row] = {}
    for row in rows:
        if row["paper_gain_pct"] is not None:
            names = {name: row[name] for name in ("gnn", "figure", "paper_gain_pct")}
            lines.setdefault(tuple(names.values()), names)[str(row["arm"])] = row["binding_truth"]
    return list(lines.values())


def _part(row: Row) -> Row:
    named = {name: row[name] for name in ("gnn", "arm", "what", "completed")}
    return named | {name: _within(row, name, decimals) for name, decimals in _PART.items()}


def _by_arm(rows: Sequence[Row]) -> list[Row]:
    """Return one row per metric and unit (relative gain in %, or gain in points), with a column for each arm."""
    lines: dict[tuple[object, ...], Row] = {}
    for row in rows:
        if row["figure"] not in _FIGURES:
            continue
        key = tuple(row[name] for name in _PLACE)
        for unit, column in (("%", "gain_pct"), ("points", "gain_points")):
            if not _known(row[column]):
                continue
            line = lines.setdefault(
                (*key, unit),
                {**dict(zip(_PLACE, key, strict=True)), "unit": unit, "paper": row["paper_gain_pct"]},
            )
            line[str(row["arm"])] = _within(row, column, 1, sign="+")
            if unit == "%" and row["arm"] != ORACLE:
                line[f"{row['arm']}_of_oracle"] = row["of_oracle"]
    return list(lines.values())


def _within(row: Row, column: str, decimals: int, *, sign: str = "") -> str:
    """Return the value of a column with its interval, as text."""
    ends = (row[f"{column}{end}"] for end in ("", "_lo", "_hi"))
    told, least, most = (f"{float(str(each)):{sign}.{decimals}f}" for each in ends)
    return f"{told} [{least}, {most}]"


def _known(value: object) -> bool:
    return isinstance(value, float) and not math.isnan(value)


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
