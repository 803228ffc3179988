"""Write a synthetic trace in the published format of all seven PAI tables, in chunks.

Arrays with one entry per task are kept in memory (a few hundred MB for the full trace); larger tables are not.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines.errors import SynthesisError
from pipelines.synth.calibration import Calibration, load_calibration
from pipelines.synth.machines import build_park, machine_table
from pipelines.synth.population import draw_groups, draw_jobs
from pipelines.synth.published import COLUMNS, SYNTHETIC_MARK
from pipelines.synth.random_numbers import Noise
from pipelines.synth.runtime import draw_runs, draw_tasks
from pipelines.synth.tables import Trace, chunk_tables
from pipelines.synth.use import draw_scores, group_need, group_scores

__all__ = ["PUBLISHED_INSTANCES", "PUBLISHED_TASKS", "synthesise"]

_LEAST_TASKS: Final = 1000
PUBLISHED_TASKS: Final = 1_261_050
PUBLISHED_INSTANCES: Final = 7_520_000
"""Number of rows of the published tables of tasks and (rounded) instances; with these, the number of rows of each other
table differs from the published one by less than 2 %."""

CHUNK_JOBS: Final = 20_000
"""Number of jobs per chunk, which have about 140 000 instances in 60 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthReport:
    """The result of `synthesise`: folder, parameters, and rows by table."""

    folder: Path
    tasks: int
    seed: int
    days: int
    tagged_share: float
    row_counts: dict[str, int]

    def rows(self) -> list[dict[str, object]]:
        """Return one flat row per table."""
        return [
            {"table": table, "rows": count, "file": f"{table}.csv", "origin": "synthetic"}
            for table, count in self.row_counts.items()
        ]


def synthesise(
    out_dir: Path,
    *,
    tasks: int,
    seed: int,
    days: int | None = None,
    tagged_share: float | None = None,
    chunk_jobs: int = CHUNK_JOBS,
    calibration: Calibration | None = None,
    instances: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SynthReport:
    """Write a synthetic trace of `tasks` tasks to `out_dir`: seven headerless CSV files and their `.header` files.

    The same seed, tasks, days and tagged share give the same bytes for any chunk size. All published machines are
    present for any `tasks`; the number of users grows with the square root of `tasks`, group sizes grow with `tasks`.

    Parameters
    ----------
    days
        Length of the trace; by default the published 64.
    tagged_share
        Share of jobs with a workload tag; by default the published 0.097. State another value with any results.
    instances
        Minimum number of instances; the largest gangs are enlarged to reach it. By default the drawn number.
    progress
        Function called after every chunk with the number of jobs written and the total number of jobs.
    """
    known = calibration or load_calibration()
    _check(tasks, days, tagged_share)
    length = days or known.trace.days
    trace = draw_trace(known, seed=seed, tasks=tasks, days=length, tagged_share=tagged_share, instances=instances)
    _claim(out_dir)
    counts = dict.fromkeys(COLUMNS, 0)
    with ExitStack() as stack:
        files = {name: stack.enter_context((out_dir / f"{name}.csv").open("wb")) for name in COLUMNS}
        machines = machine_table(trace.park)
        machines.write_csv(files["pai_machine_spec"], include_header=False)
        counts["pai_machine_spec"] = machines.height
        jobs = len(trace.jobs.group)
        for first in range(0, jobs, chunk_jobs):
            last = min(first + chunk_jobs, jobs)
            for table, frame in chunk_tables(trace, first, last):
                frame.write_csv(files[table], include_header=False)
                counts[table] += frame.height
            if progress is not None:
                progress(last, jobs)
    for name, columns in COLUMNS.items():
        (out_dir / f"{name}.header").write_text(",".join(columns) + "\n", encoding="utf-8")
    return SynthReport(
        folder=out_dir,
        tasks=len(trace.tasks.job),
        seed=seed,
        days=length,
        tagged_share=known.published_tagged_share if tagged_share is None else tagged_share,
        row_counts=counts,
    )


def _claim(out_dir: Path) -> None:
    """Mark the folder as synthetic; raise SynthesisError if it holds tables that are not synthetic."""
    out_dir.mkdir(parents=True, exist_ok=True)
    mark = out_dir / SYNTHETIC_MARK
    if not mark.exists() and any(out_dir.glob("pai_*")):
        raise SynthesisError(f"{out_dir} holds PAI tables that are not synthetic; name another folder")
    mark.touch()


def draw_trace(
    calibration: Calibration,
    *,
    seed: int,
    tasks: int,
    days: int,
    tagged_share: float | None,
    instances: int | None = None,
) -> Trace:
    """Draw all quantities of jobs and tasks."""
    noise = Noise(seed=seed)
    groups = draw_groups(calibration, noise, tasks, tagged_share)
    jobs = draw_jobs(calibration, noise, groups, days)
    lasting = group_scores(calibration, noise, groups)
    runs = draw_runs(calibration, noise, groups, jobs, group_need(calibration, groups, lasting), days)
    laid_out = draw_tasks(calibration, noise, groups, jobs, runs, instances)
    return Trace(
        calibration=calibration,
        noise=noise,
        park=build_park(calibration, noise),
        groups=groups,
        jobs=jobs,
        runs=runs,
        tasks=laid_out,
        scores=draw_scores(calibration, noise, groups, jobs, runs, laid_out, lasting),
    )


def _check(tasks: int, days: int | None, tagged_share: float | None) -> None:
    if tasks < _LEAST_TASKS:
        raise SynthesisError(f"{tasks} tasks: too few for the mix of workloads; expected at least {_LEAST_TASKS}")
    if days is not None and days < 1:
        raise SynthesisError(f"{days} days: expected at least one")
    if tagged_share is not None and not 0.0 <= tagged_share <= 1.0:
        raise SynthesisError(f"tagged share {tagged_share}: expected a share from 0 to 1")
