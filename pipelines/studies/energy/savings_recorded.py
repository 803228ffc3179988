"""What a replay without measured use allows: machines on or off, by placement, and a what-if of fewer GPUs.

Nobody's request can honestly be shrunk where nobody measured use. Called by `pipelines.studies.energy.savings`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from pipelines.lake.lake import Lake
from pipelines.simulation.energy.amounts import Amounts
from pipelines.simulation.energy.energy_rows import G_PER_KG
from pipelines.simulation.energy.meters import AMOUNTS, OFF, ON, Metered, Meters
from pipelines.simulation.energy.site import start_on
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.measures.holding import Uses
from pipelines.simulation.workloads import recorded_workload
from pipelines.studies.replay.capacity import evidence_of, readings_of
from pipelines.studies.replay.replay import replayed
from scheduler_core.cluster import UNITS
from scheduler_core.discipline import Discipline
from scheduler_core.types import FloatArray, IntArray

READING: Final = "machine_list"
SPREAD, PACKED, WHAT_IF = "spread", "best_fit", "what-if"
GPUS: Final = 2
SECONDS_PER_DAY: Final = 86_400.0
FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A trace's own jobs on its own machines.

    Attributes
    ----------
    days
        A row per day, arm, zone and whether empty machines are off: what was drawn, and jobs that finished.
    parts
        kWh by what they are for, of machines that are always on.
    notes
        What a reader of figures has to know.
    """

    days: pl.DataFrame
    parts: dict[str, float]
    notes: tuple[str, ...]


def recorded(lake: Lake, trace: str, cluster: str | None, meters: Meters, talk: Callable[[str], None]) -> Recorded:
    """Replay a trace's jobs until the last submission, first come first served, by placement.

    Raises
    ------
    LakeError
        If the lake lacks the trace's jobs or machines.
    BadUsage
        If the jobs are of several clusters.
    """
    taken = replayed(lake.table("jobs", trace, cluster).collect())
    jobs = taken.jobs
    first, last = (jobs["submit_ts"].dt.epoch("us").to_numpy()[[0, -1]] / 1e6).tolist()
    reading = readings_of(evidence_of(lake, jobs, since=jobs["submit_ts"][0], loads=()), [READING])[0]
    machines = reading.pools[0].machines
    workload = recorded_workload(jobs, gpus_per_machine=max(machine.gpus for machine in machines))
    frac = meters.table.assumed.gpu_frac
    plans = {PACKED: (workload, PACKED), SPREAD: (workload, SPREAD), WHAT_IF: (fewer_gpus(workload, frac), PACKED)}
    runs = {
        arm: simulate(told, machines, Discipline(placement=placement), horizon_s=last - first)
        for arm, (told, placement) in plans.items()
    }
    whole = list(_read(meters, runs[PACKED], first))
    rows: list[pl.DataFrame] = []
    for arm, run in runs.items():
        for found, own in zip(whole, _read(meters, run, first), strict=True):
            rows += [_days(arm, machine, replace(found, off=own.off), run) for machine in (ON, OFF)]
        talk(f"{trace}: {arm} replayed, {waited(run)} jobs waited")
    waits = ", ".join(f"{waited(run)} jobs waited under {arm}" for arm, run in runs.items())
    notes = (
        *(f"{trace}: {note}" for note in (*taken.notes, reading.note, start_on(meters.grids[0], None, first)[1])),
        f"{trace}: first come, first served, until the last submission; {waits}; work is that of {PACKED} in "
        "every row: arms differ in which machines are empty",
        *(f"{trace}: {note}" for note in meters.assumed(machines)),
        f"{trace}: nobody measured what its jobs use: no request is shrunk. {WHAT_IF}: as if every instance held only "
        f"the GPUs that {frac:.0%} use needs, whole ones, with the same work in the same time: a bound, no measurement",
    )
    return Recorded(days=pl.concat(rows), parts=whole[0].parts(), notes=notes)


def fewer_gpus(workload: Workload, frac: float) -> Workload:
    """Return the workload as if each instance held only as many whole GPUs as a share of them comes to."""
    whole = UNITS[GPUS]
    units = workload.request_units.copy()
    need = np.ceil(units[:, GPUS] * frac / whole).astype(np.int64) * whole
    units[:, GPUS] = np.minimum(units[:, GPUS], need)
    return replace(workload, request_units=units, granted_units=units)


def waited(run: Schedule) -> int:
    """Return how many jobs started later than they came."""
    first: FloatArray = np.full(len(run.workload), np.inf)
    np.minimum.at(first, run.job, run.start_s)
    return int((np.isfinite(first) & (first > run.workload.arrive_s)).sum())


def _read(meters: Meters, run: Schedule, first_ts: float) -> Iterator[Metered]:
    nobody_knows = Uses(mean=np.full((len(run.workload), len(UNITS)), np.nan))
    return meters.read(run, nobody_knows, lambda grid: start_on(grid, None, first_ts)[0])


def _days(arm: str, machines: str, found: Metered, run: Schedule) -> pl.DataFrame:
    day = np.floor((found.on.hour_ts - found.on.start_ts) / SECONDS_PER_DAY).astype(np.int64).clip(0)
    count = int(day.max()) + 1
    drawn = _by_day(found.on.hours, day, count)
    if machines == OFF:
        drawn = drawn - _by_day(found.off.hours, day, count)
    ended = run.finished_s[np.isfinite(run.finished_s) & (run.finished_s <= run.end_s)]
    finished = np.bincount((ended / SECONDS_PER_DAY).astype(np.int64).clip(0, count - 1), minlength=count)
    return pl.DataFrame(
        {"day": np.arange(count), **dict(zip(AMOUNTS, drawn, strict=True)), FINISHED: finished.astype(np.float64)}
    ).select(pl.lit(arm).alias("arm"), pl.lit(found.zone).alias("zone"), pl.lit(machines).alias("machines"), pl.all())


def _by_day(hours: Amounts, day: IntArray, count: int) -> FloatArray:
    columns = (hours.kwh, hours.carbon_g / G_PER_KG, hours.cost_usd)
    return np.array([np.bincount(day, weights=each, minlength=count) for each in columns])
