"""What an experiment leaves in a folder: every row with its notes, the runs behind them, and the charts.

Pages hold their charts and all that draws them: they open without a network. Called by `taut experiment --out`.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl
from scipy.stats import t

from pipelines.report.charts.saving import saved
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.simulation_rows import trace_of
from pipelines.studies.intervals import LEVEL
from pipelines.studies.shrinking.charts_course import cpu_over_time, jobs_over_time, use_over_time
from pipelines.studies.shrinking.charts_frontier import gain_against_harm
from pipelines.studies.shrinking.charts_gains import gain_and_harm, gain_by_mix, gain_by_policy
from pipelines.studies.shrinking.charts_loads import completion_over_load, deployed_over_load, use_over_load
from pipelines.studies.shrinking.claims import Row
from pipelines.studies.shrinking.experiment import Answer, workload_of

if TYPE_CHECKING:
    import altair as alt

Draw = Callable[[pl.DataFrame, Sequence[str]], "alt.TopLevelMixin"]

OVER_TIME: Final = "over_time"
CHARTS: Final[Mapping[str, Mapping[str, tuple[str, Draw]]]] = {
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
"""By experiment and file: which rows are drawn, and how."""

CLUSTER: Final = "32 GPUs, 384 cores, 2 TiB, 12 h"
"""The paper's, on which every experiment runs."""


def write(answer: Answer, folder: Path) -> list[Path]:
    """Write `rows.json`, `runs.parquet`, the course over time if any, and each chart as HTML, SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [_book(answer.rows(), answer.notes, folder), _parquet(answer.outcomes.runs, folder / "runs.parquet")]
    course = course_of(answer.outcomes.over_time)
    if not course.is_empty():
        written.append(_parquet(course, folder / f"{OVER_TIME}.parquet"))
    for name, (about, draw) in CHARTS[answer.experiment].items():
        frame = course if about == OVER_TIME else _frame(answer.tables[about])
        written += saved(draw(frame, subtitle_of(answer, watched=about == OVER_TIME)), folder, name)
    return written


def write_frontier(rows: Sequence[Row], pool: Pool, notes: Sequence[str], folder: Path, *, seeds: int) -> list[Path]:
    """Write the points of a frontier as `rows.json`, and their chart."""
    folder.mkdir(parents=True, exist_ok=True)
    of = [
        f"{trace_of(pool.jobs)}: {len(pool.jobs)} {workload_of(pool)}; 70 jobs/h, mix 5:15:15:65, FIFO; {CLUSTER}",
        f"means of {seeds} seeds with the 95 % intervals of the gain; kills count each distinct job once",
    ]
    return [_book(rows, notes, folder), *saved(gain_against_harm(_frame(rows), of), folder, "gain_against_harm")]


def subtitle_of(answer: Answer, *, watched: bool = False) -> list[str]:
    """Say of which and of how many jobs a chart is: of all runs, or of those that were watched over time."""
    runs = answer.outcomes.runs
    if watched:
        runs = runs.filter(pl.col("cpu_met_h").is_not_null())
    seeds, jobs = runs["seed"].n_unique(), runs["submitted"].to_numpy()
    varied = ("rate_per_h", "mix", "policy")
    loads, mixes, policies = (runs[name].unique(maintain_order=True).to_list() for name in varied)
    fixed = [f"{loads[0]:g} jobs/h"] if len(loads) == 1 else []
    fixed += [f"mix {mixes[0]} (cv:nlp:gnn:ctr)"] if len(mixes) == 1 else []
    fixed += [str(policies[0]).upper()] if len(policies) == 1 else []
    return [
        f"{answer.trace}: {answer.jobs} {answer.workload}; {', '.join(fixed)}; {CLUSTER}",
        f"means and 95 % intervals of {seeds} seeds, {jobs.min():.0f} to {jobs.max():.0f} jobs a run",
    ]


def course_of(over_time: pl.DataFrame) -> pl.DataFrame:
    """Return the mean course over seeds, with Student's interval of every column as `_lo` and `_hi`."""
    if over_time.is_empty():
        return over_time
    keys = ["mix", "gnn", "devices", "rate_per_h", "policy", "truth", "arm", "time_h"]
    seeds = over_time["seed"].n_unique()
    wide = float(t.ppf(0.5 + LEVEL / 2.0, seeds - 1)) / math.sqrt(seeds)
    columns = [name for name in over_time.columns if name not in (*keys, "seed")]
    return over_time.group_by(keys, maintain_order=True).agg(
        *(pl.col(name).mean() for name in columns),
        *((pl.col(name).mean() - wide * pl.col(name).std()).alias(f"{name}_lo") for name in columns),
        *((pl.col(name).mean() + wide * pl.col(name).std()).alias(f"{name}_hi") for name in columns),
    )


def _book(rows: Sequence[Row], notes: Sequence[str], folder: Path) -> Path:
    """Write rows and notes as JSON, which knows neither NaN nor infinity: what could not be measured is null."""
    known = [{name: _finite(value) for name, value in row.items()} for row in rows]
    text = json.dumps({"notes": list(notes), "rows": known}, indent=1, ensure_ascii=False, allow_nan=False)
    path = folder / "rows.json"
    path.write_text(text + "\n", encoding="utf-8", newline="\n")
    return path


def _frame(rows: Sequence[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, infer_schema_length=None)


def _parquet(frame: pl.DataFrame, path: Path) -> Path:
    frame.write_parquet(path)
    return path


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
