"""Savings study: energy, carbon and money saved by right-sizing jobs, and by switching off empty machines.

Jobs are drawn from measured ones or replayed from traces. The simulations are in `savings_runs`. Called by `taut study
savings`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.report.charts.energy_use import parts_of_energy
from pipelines.simulation.advice import REQUESTED
from pipelines.simulation.energy.meters import OFF, OFF_AFTER_S, ON, Meters, Row
from pipelines.simulation.rows import trace_of
from pipelines.simulation.settings import SimulationSettings
from pipelines.studies.energy.savings_runs import (
    ARMS,
    DRAWN_AT_PER_H,
    FINISHED,
    PACKED,
    SPREAD,
    WHAT_IF,
    WINDOW,
    Recorded,
    drawn_rows,
    recorded,
)
from pipelines.studies.intervals import BLOCK_DAYS, LEAST_BLOCKS, LEVEL, Interval, day_counts, mean, ratio
from pipelines.studies.shrinking.crossfit import Predicted, PredictorConfig, predicted
from pipelines.studies.study import (
    Context,
    Findings,
    Study,
    grid_option,
    option,
    power_option,
    pue_option,
    seeds_option,
    year_option,
    zones_option,
)
from scheduler_core.types import FloatArray

PERCENT: Final = 100.0
JOBS: Final = 1000.0
"""Number of finished jobs to which amounts of energy, carbon and money refer."""

WHAT: Final = {"energy_kwh": "energy", "carbon_kg": "carbon", "cost_usd": "cost"}
KEY: Final = ("scene", "truth", "zone", "machines")
PER_WORK: Final = "energy_per_work_saved_pct"
HARM: Final = ("finished", "killed", "jct_mean_h")
PARTS: Final = ("work_kwh", "idle_of_used_kwh", "idle_of_unused_gpus_kwh", "idle_unheld_kwh", "idle_empty_kwh")


def right_sizing(runs: pl.DataFrame) -> list[Row]:
    """Return each arm's savings relative to the arm `requested` with the same seeds, its kills, and its delays."""
    rows: list[Row] = []
    for key, members in runs.group_by(KEY, maintain_order=True):
        base = _of(members, REQUESTED)
        for arm in ARMS:
            own = _of(members, arm)
            row: Row = {**dict(zip(KEY, key, strict=True)), "arm": arm, "against": REQUESTED, "n": own.height}
            row |= _told(own, base)
            per_work, standing = (each["energy_kwh"].to_numpy() / each["work_kwh"].to_numpy() for each in (own, base))
            row |= _spanned(PER_WORK, ratio(per_work, standing).scaled(-PERCENT, less=1.0))
            for name in HARM:
                row[name] = float(own[name].cast(pl.Float64).mean() or 0.0)  # type: ignore[arg-type]  # of numbers
            row["finished_requested"] = float(base["finished"].mean() or 0.0)  # type: ignore[arg-type]  # of numbers
            rows.append(row)
    return rows


def switching_off(runs: pl.DataFrame) -> list[Row]:
    """Return the savings of switching off empty machines when every job runs at its request."""
    rows: list[Row] = []
    kept = runs.filter(pl.col("arm") == REQUESTED, pl.col("truth") == pl.col("truth").first())
    for (scene, zone), members in kept.group_by(["scene", "zone"], maintain_order=True):
        on, off = (members.filter(pl.col("machines") == each).sort("seed") for each in (ON, OFF))
        told: Row = {"scene": scene, "zone": zone, "arm": f"{REQUESTED}, {OFF}", "against": f"{REQUESTED}, {ON}"}
        rows.append(told | {"n": on.height} | _told(off, on))
    return rows


def recorded_savings(days: pl.DataFrame, seed: int) -> tuple[list[Row], list[Row]]:
    """Return two tables of savings in replayed traces: by fewer GPUs per job; by switching off and by placement.

    The first table compares `WHAT_IF` (jobs hold only the GPUs they would need) with jobs that hold all their GPUs.
    Intervals are from resampled weeks, the same for both arms; with fewer than two weeks they are NaN.
    """
    right: list[Row] = []
    off: list[Row] = []
    for (zone,), own in days.group_by(["zone"], maintain_order=True):
        sums = {key: rows.sort("day") for key, rows in own.group_by(["arm", "machines"], maintain_order=True)}
        counts = day_counts(next(iter(sums.values())).height, rng=np.random.default_rng(seed))
        for machines in (ON, OFF):
            found = _resampled(sums[WHAT_IF, machines], sums[PACKED, machines], counts)
            right.append(
                {"scene": "recorded", "zone": zone, "machines": machines, "arm": WHAT_IF}
                | _against(PACKED, counts)
                | found
            )
        for arm, against in (
            ((PACKED, OFF), (PACKED, ON)),
            ((SPREAD, OFF), (SPREAD, ON)),
            ((PACKED, OFF), (SPREAD, OFF)),
        ):
            told: Row = {"scene": "recorded", "zone": zone, "arm": ", ".join(arm)}
            off.append(told | _against(", ".join(against), counts) | _resampled(sums[arm], sums[against], counts))
    return right, off


def drawn_parts(runs: pl.DataFrame) -> list[Row]:
    """Return a row per scene and arm: parts of the energy of always-on machines, as means over seeds.

    Only the last slowdown model and the first zone are used.
    """
    zone, truth = runs["zone"][0], runs["truth"][-1]
    kept = runs.filter(pl.col("zone") == zone, pl.col("truth") == truth, pl.col("machines") == ON)
    return [
        {"scene": scene, "arm": arm, "n": members.height}
        | shares({name: float(members[name].mean() or 0.0) for name in PARTS})  # type: ignore[arg-type]  # of numbers
        for (scene, arm), members in kept.group_by(["scene", "arm"], maintain_order=True)
    ]


def shares(parts: Mapping[str, float]) -> Row:
    """Return the sum of the parts, and each part in percent of the sum."""
    whole = sum(parts.values())
    return {"energy_kwh": whole, **{name.replace("_kwh", "_pct"): PERCENT * kwh / whole for name, kwh in parts.items()}}


def _of(members: pl.DataFrame, arm: str) -> pl.DataFrame:
    return members.filter(pl.col("arm") == arm).sort("seed")


def _against(arm: str, counts: FloatArray) -> Row:
    return {"against": arm, "n": counts.shape[1]}


def _told(own: pl.DataFrame, base: pl.DataFrame) -> Row:
    row: Row = {}
    finished, other = (frame["finished"].to_numpy().astype(np.float64) for frame in (own, base))
    for name, what in WHAT.items():
        each, standing = own[name].to_numpy() / finished * JOBS, base[name].to_numpy() / other * JOBS
        row |= _spanned(f"{what}_saved_pct", ratio(each, standing).scaled(-PERCENT, less=1.0))
        row |= _spanned(f"{name}_saved", mean(standing - each))
    return row


def _resampled(own: pl.DataFrame, base: pl.DataFrame, counts: FloatArray) -> Row:
    row: Row = {}
    every = np.ones((1, counts.shape[1]))
    for name, what in WHAT.items():
        drawn, whole = (_per_job(own, base, name, weights) for weights in (counts, every))
        for figure, at in ((f"{what}_saved_pct", 0), (f"{name}_saved", 1)):
            row |= _spanned(figure, _quantiles(float(whole[at][0]), drawn[at], counts.shape[1]))
    return row


def _per_job(own: pl.DataFrame, base: pl.DataFrame, name: str, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the savings in percent and the savings per `JOBS` finished jobs, one of each per resample."""
    each, standing = (
        weights @ frame[name].to_numpy() / (weights @ frame[FINISHED].to_numpy()) for frame in (own, base)
    )
    return PERCENT * (1.0 - each / standing), JOBS * (standing - each)


def _quantiles(value: float, drawn: FloatArray, days: int) -> Interval:
    if days < LEAST_BLOCKS * BLOCK_DAYS:
        return Interval(value=value, low=math.nan, high=math.nan)
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail]).tolist()
    return Interval(value=value, low=low, high=high)


def _spanned(name: str, found: Interval) -> Row:
    # Adding 0.0 turns -0.0 into 0.0.
    ends = sorted((found.low + 0.0, found.high + 0.0))
    return {name: found.value + 0.0, f"{name}_lo": ends[0], f"{name}_hi": ends[1]}


SAVINGS, SWITCHING = "right-sizing alone", "switching empty machines off"
WHERE = "where the energy goes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PredictorConfig):
    """Options of the savings study: drawn jobs and their predictor, replayed traces, and grid zones."""

    replayed: tuple[str, ...] = option(
        (),
        name="--replay",
        help="Also replay the jobs of this trace, which has no measured use (may be repeated).",
        shown="none",
    )
    cluster: str | None = option(
        None, help="Only this cluster of the traces replayed (with --replay).", shown="all of them"
    )
    grid: Path | None = grid_option()
    zones: tuple[str, ...] = zones_option()
    year: int | None = year_option()
    power: Path | None = power_option()
    pue: float | None = pue_option()
    seeds: int = seeds_option(20)

    def each_seed(self) -> range:
        """Return the seeds of the drawn arrivals."""
        return range(self.seed, self.seed + self.seeds)


def run(config: Config, context: Context) -> Findings:
    """Simulate every arm with the same drawn arrivals, and replay recorded traces.

    Raises
    ------
    BadUsage
        If a cluster is given without a trace to replay, or a zone lacks a carbon or price series.
    """
    if config.cluster is not None and not config.replayed:
        raise BadUsage(
            f"found --cluster {config.cluster} without --replay, expected a trace to replay, as drawn jobs are of all "
            "clusters: add --replay, or leave --cluster out"
        )
    meters = Meters.of(
        config.grid or context.energy / "grid", config.zones, config.power, config.pue, config.year
    ).priced()
    replays = {
        name: recorded(context.lake(), context.trace(name), config.cluster, meters, context.talk)
        for name in dict.fromkeys(config.replayed)
    }
    settings = SimulationSettings(engine="compiled")
    return findings(predicted(config, context), meters, config.each_seed(), replays, settings, talk=context.talk)


def findings(
    given: Predicted,
    meters: Meters,
    seeds: Sequence[int],
    replays: Mapping[str, Recorded],
    settings: SimulationSettings,
    *,
    talk: Callable[[str], None] = lambda _: None,
) -> Findings:
    """Simulate the drawn jobs, and return all results of the study."""
    rows = drawn_rows(given.pool, given.predictor, settings, meters, seeds)
    runs = pl.DataFrame(list(rows), infer_schema_length=None)
    talk(f"{runs.height} readings of drawn jobs")
    drawn = trace_of(given.pool.jobs)
    right, off, parts = (_named(drawn, each(runs)) for each in (right_sizing, switching_off, drawn_parts))
    days: list[pl.DataFrame] = []
    for trace, each in replays.items():
        less, switched = recorded_savings(each.days, seeds[0])
        right += _named(trace, less)
        off += _named(trace, switched)
        parts += _named(trace, [{"scene": "recorded", "arm": "requested", "n": 1} | shares(each.parts)])
        days.append(each.days.select(pl.lit(trace).alias("trace"), pl.all()))
    frame = pl.DataFrame(parts, infer_schema_length=None)
    assumed = meters.assumed(settings.cluster.machines)
    said = (*settings.notes(), *_notes(given, seeds, drawn), *meters.notes, *assumed, *given.notes)
    return Findings(
        study="savings",
        trace="+".join([drawn, *replays]),
        tables={SAVINGS: right, SWITCHING: off, WHERE: parts},
        frames={"runs": runs, "parts": frame, **({"days": pl.concat(days)} if days else {})},
        charts={"parts_of_energy": lambda: parts_of_energy(frame)},
        notes=(*said, *(note for each in replays.values() for note in each.notes)),
    )


def _named(trace: str, rows: Sequence[Row]) -> list[Row]:
    return [{"trace": trace, **row} for row in rows]


def _notes(given: Predicted, seeds: Sequence[int], drawn: str) -> list[str]:
    return [
        f"{drawn}: {len(given.pool.jobs)} measured jobs drawn at {DRAWN_AT_PER_H:g} jobs/h for 12 h as in "
        f"experiment 1, seeds {seeds[0]} to {seeds[-1]}; each seed begins at an hour of the grid's year of its own, "
        "drawn, the same for every arm",
        f"`{WINDOW}` ends with jobs half done, other ones in every arm; where all have ended the same work was done",
        "saved: 1 - amount per finished job / that of the jobs at their requests; *_saved per 1000 finished jobs; "
        "below 0: more is drawn. Kills, the runs after them, and stretched runs are in the energy",
        f"{OFF}: a machine on which nothing ran for {OFF_AFTER_S:g} s draws nothing until its next run; starting up "
        "costs neither time nor energy (a bound)",
        "energy_per_work: kWh drawn per kWh of work above idle; jobs half done count with what they did, and so do "
        "runs that a kill undid",
        "idle_of_unused_gpus: idle watts x (GPUs held - used) x hours",
    ]


SAVINGS_STUDY: Final = Study(name="savings", config=Config, run=run, takes=("lake", "threads"))
