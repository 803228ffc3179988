"""What right-sizing saves where jobs are drawn under contention: every arm under the same arrivals, priced by the hour.

What the figures come to is `savings_tables`' matter. Called by `pipelines.studies.energy.savings`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from pipelines.simulation.advice import ORACLE, SHRUNK, Advice
from pipelines.simulation.energy.meters import OFF, ON, Meters, Row, first_s, hours_of
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.paired_runs import Run, paired_runs
from pipelines.simulation.simulate import ALL
from pipelines.simulation.simulation_settings import PAPER_RATE_PER_H, SimulationSettings
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.shrinking.arms import EXPERIMENT_ARMS, advice_of, asked_of
from pipelines.studies.shrinking.cases import cases_of
from scheduler_core.planning.hourly import HOUR_S
from scheduler_core.types import Predictor

WINDOW, DRAINED = "first 12 h", "until all ended"
SCENES: Final = {WINDOW: PAPER_HORIZON_S, DRAINED: math.inf}
"""By name, when the same arrivals are stopped: as the paper's experiments, and where all have done the same work."""

ARMS: Final = (SHRUNK, ORACLE)
DRAWN_AT_PER_H: Final = PAPER_RATE_PER_H


def drawn_rows(
    pool: Pool, predictor: Predictor, settings: SimulationSettings, meters: Meters, seeds: Sequence[int]
) -> Iterator[Row]:
    """Yield a row per scene, seed, truth, arm, zone and whether empty machines are switched off.

    Arrivals are those of experiment 1 at 70 jobs/h, over all devices. Each seed begins at an hour of the year of its
    own, drawn, the same for all its arms: so that the grid's seasons and hours weigh as they come.

    Raises
    ------
    BadUsage
        If the pool lacks a kind of the paper's mix.
    """
    asked = asked_of(pool, predictor, settings.shrink_policy)
    advice: Advice = advice_of(asked, {name: EXPERIMENT_ARMS[name] for name in ARMS})
    cases = cases_of(pool, seeds=seeds, loads_per_h=(DRAWN_AT_PER_H,), horizon_s=PAPER_HORIZON_S)
    # The first population is the widest.
    own = [case for case in cases if (case.gnn, case.devices) == (cases[0].gnn, ALL)]
    working = gangs_of(pool.frame)
    gangs = replace(working, fails=np.zeros_like(working.fails))
    arrivals = {id(case.arrivals): case for case in own}
    for scene, horizon_s in SCENES.items():
        until = replace(settings, horizon_s=horizon_s)
        for run in paired_runs(pool, gangs, advice, settings.truths, [case.arrivals for case in own], until):
            seed = arrivals[id(run.arrivals)].seed
            yield from _rows(scene, seed, run, meters)


def _rows(scene: str, seed: int, run: Run, meters: Meters) -> Iterator[Row]:
    share = np.random.default_rng([seed, 2]).random()
    offset_s = math.floor(share * min(hours_of(grid) for grid in meters.grids)) * HOUR_S
    for found in meters.read(run.schedule, run.uses, lambda grid: first_s(grid) + offset_s):
        for machines in (ON, OFF):
            yield {
                "scene": scene,
                "truth": run.truth,
                "arm": run.arm,
                "zone": found.zone,
                "machines": machines,
                "seed": seed,
                **found.amounts(machines),
                **found.parts(),
                "finished": run.metrics.completed + run.metrics.failed,
                "killed": run.metrics.killed,
                "jct_mean_h": run.metrics.jct_mean_s / HOUR_S,
                "hours": run.schedule.end_s / HOUR_S,
            }
