"""Folders for results: check a folder before the work begins, and write each run of a simulation into a subfolder."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.simulation.advice import REQUESTED
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.event_log import EVENTS, events
from pipelines.simulation.measures.series import series
from pipelines.simulation.paired_runs import Keep, Run
from pipelines.simulation.rows import trace_of
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.shared.inputs import SHARED

__all__ = ["fresh_folder", "keeping", "open_folder", "write_rows"]


def fresh_folder(folder: Path) -> Path:
    """Return the folder if it is new or empty, and writable."""
    if any(open_folder(folder).glob("*")):
        raise BadUsage(f"--out {folder}: found files in it, expected a new or empty folder; name another")
    return folder


def open_folder(folder: Path) -> Path:
    """Return the folder if it is writable; a missing folder is created for the check and removed again."""
    made: list[Path] = []
    try:
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        wrong = "" if os.access(folder, os.W_OK | os.X_OK) else "found it read-only"
    except (OSError, ValueError) as error:  # a name with a null byte raises ValueError
        # NotADirectoryError: a parent of the path is a file, so report that file.
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        wrong = "found a file there" if is_file else (getattr(error, "strerror", None) or str(error)).lower()
    finally:
        for each in made:
            if each.is_dir():
                each.rmdir()
    if wrong:
        raise BadUsage(f"--out {folder}: {wrong}, expected a writable folder; name another")
    return folder


ROWS: Final = "simulations.json"
SUMMARY: Final = "simulation.json"
LOG: Final = "events.parquet"
SERIES: Final = "series.parquet"

ANY_MODEL: Final = "any"
"""Stands for the slowdown model in the folder name of the arm `requested`, the same under all but `shared`."""

STEPS: Final = 1000
"""Approximate number of steps of a time series; the step is rounded to whole minutes."""


def keeping(folder: Path, pool: Pool, settings: SimulationSettings, notes: Sequence[str]) -> Keep:
    """Return a callback that writes every run into its own subfolder.

    The run of the arm `requested`, which is passed once per slowdown model, is written once, and once for `shared`.
    """
    written: set[str] = set()

    def keep(run: Run) -> None:
        model = ANY_MODEL if run.arm == REQUESTED and run.slowdown_model != SHARED else run.slowdown_model
        name = f"{run.arm}-{model}-{run.arrivals.devices}-{run.arrivals.seed}"
        if name not in written:
            written.add(name)
            described = {"arm": run.arm, "truth": model, **_settings_of(pool, run, settings)}
            write_run(folder / name, run, _names(pool, run), settings, described, notes)

    return keep


def write_run(
    folder: Path,
    run: Run,
    names: Mapping[str, Sequence[str | None]],
    settings: SimulationSettings,
    described: Mapping[str, object],
    notes: Sequence[str],
) -> None:
    """Write one run: event log and time series as Parquet, and last a summary as JSON.

    `names` are columns with one value per job (such as `job_id`).
    """
    schedule, step_s = run.schedule, 60.0 * max(1, math.ceil(run.schedule.end_s / STEPS / 60.0))
    tables = {
        LOG: event_table(schedule, names),
        SERIES: pl.DataFrame(series(schedule, step_s, uses=run.uses)),
    }
    folder.mkdir(parents=True)
    for name, table in tables.items():
        table.write_parquet(folder / name)
    summary = {
        "settings": described,
        "capacity": settings.cluster.note(),
        "notes": notes,
        "end_s": schedule.end_s,
        "metrics": asdict(run.metrics)
        | ({} if run.fragmented_gpus is None else {"fragmented_gpus": run.fragmented_gpus}),
        "files": {name: {"rows": table.height} for name, table in tables.items()},
    }
    _write_json(folder / SUMMARY, _plain(summary))


def write_rows(folder: Path, rows: Sequence[Mapping[str, object]], notes: Sequence[str]) -> Path:
    """Write all rows and notes of a simulation into one file of its folder; return the file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    return _write_json(folder / ROWS, {"notes": list(notes), "rows": list(rows)})


def event_table(schedule: Schedule, names: Mapping[str, Sequence[str | None]]) -> pl.DataFrame:
    """Return the event log as a frame, with the columns of `names` (one value per job) after the job's serial."""
    columns = events(schedule)
    frame = pl.DataFrame(
        {
            name: pl.Series(name, column.tolist(), dtype=pl.String) if column.dtype == np.object_ else column
            for name, column in columns.items()
        },
        schema_overrides={"event": pl.Enum(EVENTS)},
    )
    joined = [pl.Series(name, values, dtype=pl.String)[columns["serial"]] for name, values in names.items()]
    first = ("time_s", "event", "serial")
    return frame.select(*first, *joined, pl.exclude(*first))


def _settings_of(pool: Pool, run: Run, settings: SimulationSettings) -> dict[str, object]:
    discipline = {**asdict(settings.discipline), "sharing": settings.sharing}
    return {
        **{
            name: value if value is None or isinstance(value, int | float) else str(value)
            for name, value in discipline.items()
        },
        "trace": trace_of(pool.jobs),
        "devices": run.arrivals.devices,
        "seed": run.arrivals.seed,
        "jobs": len(run.arrivals.at_s),
        "warm_up_s": settings.warm_up_s,
        "horizon_s": settings.horizon_s,
        "assumed_device_mem_gib": pool.assumed_device_mem_gib,
        "cluster": settings.cluster.source,
        "theta": settings.shrink_policy.theta,
        **(
            {}
            if run.slowdown_model != SHARED
            else {"variation": settings.shared.variation, **asdict(settings.shared.policy)}
        ),
    }


def _names(pool: Pool, run: Run) -> dict[str, list[str | None]]:
    jobs = [pool.jobs[row].job for row in run.arrivals.picks.tolist()]
    return {name: [getattr(job, name) for job in jobs] for name in ("job_id", "role", "user", "vc")}


def _write_json(path: Path, value: object) -> Path:
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")
    return path


def _plain(value: object) -> object:
    """Convert a value for JSON: a number that is not finite to null, numpy numbers to numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
