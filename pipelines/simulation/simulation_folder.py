"""A folder of simulations: one subfolder for each run, and all rows beside them.

What a subfolder holds is `simulation_files`' matter. Called by `taut simulate --out` and the experiments.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.simulation.advice import REQUESTED
from pipelines.simulation.energy.energy_tables import energy_tables
from pipelines.simulation.energy.site import AT_ONCE
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.paired_runs import Keep, Run
from pipelines.simulation.simulation_files import write_simulation
from pipelines.simulation.simulation_rows import trace_of
from pipelines.simulation.simulation_settings import SimulationSettings

ROWS: Final = "simulations.json"
ANY_TRUTH: Final = "any"
"""Stands for the truth of the arm without shrinking, which is the same under all."""

STEPS: Final = 1000
"""About how many steps a time series has; each is whole minutes."""


def keeping(folder: Path, pool: Pool, settings: SimulationSettings, notes: Sequence[str]) -> Keep:
    """Return what writes every run into a subfolder of its own; runs that are the same are written once."""
    written: set[str] = set()

    def keep(run: Run) -> None:
        truth = ANY_TRUTH if run.arm == REQUESTED else run.truth
        name = f"{run.arm}-{truth}-{run.arrivals.devices}-{run.arrivals.seed}"
        name += "" if run.shift == AT_ONCE else f"-{run.shift}"
        if name in written:
            return
        written.add(name)
        write_simulation(
            folder / name,
            run.schedule,
            run.metrics,
            settings={"arm": run.arm, "truth": truth, **_settings_of(pool, run, settings)},
            capacity_assumption=settings.cluster.note(),
            step_s=_step_s(run.schedule.end_s),
            notes=notes,
            names=_names(pool, run),
            uses=run.uses,
            target=run.target,
            fragmented_gpus=run.fragmented_gpus,
            beside=_energy(pool, run, settings),
        )

    return keep


def write_rows(folder: Path, rows: Sequence[Mapping[str, object]], notes: Sequence[str]) -> Path:
    """Write all rows and notes of a simulation into its folder; return the file's path."""
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
        **settings.aiming.said(settings.discipline),
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
