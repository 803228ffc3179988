"""Write a synthetic trace in the published format of all seven PAI tables, in chunks."""

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

PUBLISHED_TASKS: Final = 1_261_050
PUBLISHED_INSTANCES: Final = 7_520_000
"""Number of rows of the published tables of tasks and (rounded) instances; with these, the number of rows of each other
table differs from the published one by less than 2 %."""

CHUNK_JOBS: Final = 20_000
"""Number of jobs per chunk, which have about 140 000 instances in 60 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthReport:
    """The result of `synthesise`: the number of tasks, and rows by table."""

    tasks: int
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
    tagged_share: float | None = None,
    chunk_jobs: int = CHUNK_JOBS,
    instances: int | None = None,
) -> SynthReport:
    """Write a synthetic trace of `tasks` tasks (at least 1000) to `out_dir`: seven CSV and `.header` files.

    The same seed, tasks and tagged share give the same bytes for any chunk size. All published machines are present;
    the number of users grows with the square root of `tasks`, group sizes with `tasks`. `tagged_share` is the share of
    jobs with a workload tag, by default the published 0.097. The largest gangs are enlarged to reach `instances`.
    """
    trace = draw_trace(load_calibration(), seed=seed, tasks=tasks, tagged_share=tagged_share, instances=instances)
    _claim(out_dir)
    counts = dict.fromkeys(COLUMNS, 0)
    with ExitStack() as stack:
        files = {name: stack.enter_context((out_dir / f"{name}.csv").open("wb")) for name in COLUMNS}
        machines = machine_table(trace.park)
        machines.write_csv(files["pai_machine_spec"], include_header=False)
        counts["pai_machine_spec"] = machines.height
        jobs = len(trace.jobs.group)
        for first in range(0, jobs, chunk_jobs):
            for table, frame in chunk_tables(trace, first, min(first + chunk_jobs, jobs)):
                frame.write_csv(files[table], include_header=False)
                counts[table] += frame.height
    for name, columns in COLUMNS.items():
        (out_dir / f"{name}.header").write_text(",".join(columns) + "\n", encoding="utf-8")
    return SynthReport(tasks=len(trace.tasks.job), row_counts=counts)


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
    tagged_share: float | None,
    instances: int | None = None,
) -> Trace:
    """Draw all quantities of jobs and tasks."""
    noise = Noise(seed=seed)
    groups = draw_groups(calibration, noise, tasks, tagged_share)
    jobs = draw_jobs(calibration, noise, groups)
    lasting = group_scores(calibration, noise, groups)
    runs = draw_runs(calibration, noise, groups, jobs, group_need(calibration, groups, lasting))
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
