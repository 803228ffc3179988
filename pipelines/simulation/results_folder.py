"""Folders for results: check them before the work begins, and write a simulation's runs into one subfolder each.

The files of one run are written by `files`.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.errors import BadUsage
from pipelines.simulation.advice import REQUESTED
from pipelines.simulation.energy.site import AT_ONCE
from pipelines.simulation.energy.tables import energy_tables
from pipelines.simulation.files import write_simulation
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.paired_runs import Keep, Run
from pipelines.simulation.rows import trace_of
from pipelines.simulation.settings import SimulationSettings

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
        found = "" if os.access(folder, os.W_OK | os.X_OK) else "found it read-only"
    except (OSError, ValueError) as error:  # a name with a null byte raises ValueError
        # NotADirectoryError: a parent of the path is a file, so report that file.
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        found = "found a file there" if is_file else (getattr(error, "strerror", None) or str(error)).lower()
    finally:
        for each in made:
            if each.is_dir():
                each.rmdir()
    if found:
        raise BadUsage(f"--out {folder}: {found}, expected a writable folder; name another")
    return folder


ROWS: Final = "simulations.json"
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
        model = ANY_MODEL if run.arm == REQUESTED and run.shared is None else run.slowdown_model
        name = f"{run.arm}-{model}-{run.arrivals.devices}-{run.arrivals.seed}"
        name += "" if run.shift == AT_ONCE else f"-{run.shift}"
        if name in written:
            return
        written.add(name)
        write_simulation(
            folder / name,
            run.schedule,
            run.metrics,
            settings={"arm": run.arm, "truth": model, **_settings_of(pool, run, settings)},
            capacity_assumption=settings.cluster.note(),
            step_s=_step_s(run.schedule.end_s),
            notes=notes,
            names=_names(pool, run),
            uses=run.uses,
            target=run.target,
            fragmented_gpus=run.fragmented_gpus,
            extra=_energy(pool, run, settings),
            shared=run.shared,
        )

    return keep


def write_rows(folder: Path, rows: Sequence[Mapping[str, object]], notes: Sequence[str]) -> Path:
    """Write all rows and notes of a simulation into one file of its folder; return the file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ROWS
    text = json.dumps({"notes": list(notes), "rows": list(rows)}, indent=2, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")
    return path


def _energy(pool: Pool, run: Run, settings: SimulationSettings) -> Mapping[str, pl.DataFrame]:
    if settings.site is None or run.energy is None:
        return {}
    return energy_tables(
        run.energy, settings.site, run.schedule.machines, _names(pool, run), run.schedule.workload.arrive_s
    )


def _settings_of(pool: Pool, run: Run, settings: SimulationSettings) -> dict[str, object]:
    discipline = {**asdict(settings.discipline), "sharing": settings.sharing}
    return {
        **{
            name: value if value is None or isinstance(value, int | float) else str(value)
            for name, value in discipline.items()
        },
        **settings.aiming.settings(settings.discipline),
        "trace": trace_of(pool.jobs),
        "devices": run.arrivals.devices,
        "seed": run.arrivals.seed,
        "jobs": len(run.arrivals.at_s),
        "warm_up_s": settings.warm_up_s,
        "horizon_s": settings.horizon_s,
        "outages": len(run.arrivals.outages.machine),
        "assumed_device_mem_gib": pool.assumed_device_mem_gib,
        "cluster": settings.cluster.source,
        "theta": settings.shrink_policy.theta,
        **({} if run.shared is None else {"variation": settings.shared.variation, **asdict(settings.shared.policy)}),
    }


def _names(pool: Pool, run: Run) -> dict[str, list[str | None]]:
    jobs = [pool.jobs[row].job for row in run.arrivals.picks.tolist()]
    return {
        "job_id": [job.job_id for job in jobs],
        "role": [job.role for job in jobs],
        "user": [job.user for job in jobs],
        "vc": [job.vc for job in jobs],
    }


def _step_s(end_s: float) -> float:
    return 60.0 * max(1, math.ceil(end_s / STEPS / 60.0))
