"""What right-sizing saves in energy, carbon and money: drawn jobs with measured use, recorded ones without, one table.

Puts the parts together. Called by `taut experiment savings`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from pipelines.report.charts.energy_use import parts_of_energy
from pipelines.simulation.energy.idleness import OFF_AFTER_S
from pipelines.simulation.energy.meters import OFF, Meters, Row
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.simulation_rows import trace_of
from pipelines.simulation.simulation_settings import SimulationSettings
from pipelines.studies.energy.savings_drawn import DRAWN_AT_PER_H, WINDOW, drawn_rows
from pipelines.studies.energy.savings_recorded import Recorded
from pipelines.studies.energy.savings_tables import drawn_parts, recorded_savings, right_sizing, shares, switching_off
from pipelines.studies.study import Findings
from scheduler_core.types import Predictor

SAVINGS, SWITCHING, PARTS = "right-sizing alone", "switching empty machines off", "where the energy goes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whose jobs are drawn and who predicts for them, what was recorded beside, and the grids both are priced on."""

    pool: Pool
    predictor: Predictor
    meters: Meters
    seeds: Sequence[int]
    recorded: dict[str, Recorded] = field(default_factory=dict)
    settings: SimulationSettings = field(default_factory=lambda: SimulationSettings(engine="compiled"))
    notes: Sequence[str] = ()


def ask(question: Question, *, talk: Callable[[str], None] = lambda _: None) -> Findings:
    """Run every arm under the same arrivals, and put recorded replays beside."""
    rows = drawn_rows(question.pool, question.predictor, question.settings, question.meters, question.seeds)
    runs = pl.DataFrame(list(rows), infer_schema_length=None)
    talk(f"{runs.height} readings of drawn jobs")
    drawn = trace_of(question.pool.jobs)
    right, off, parts = (_named(drawn, each(runs)) for each in (right_sizing, switching_off, drawn_parts))
    days: list[pl.DataFrame] = []
    for trace, each in question.recorded.items():
        less, switched = recorded_savings(each.days, question.seeds[0])
        right += _named(trace, less)
        off += _named(trace, switched)
        parts += _named(trace, [{"scene": "recorded", "arm": "requested", "n": 1} | shares(each.parts)])
        days.append(each.days.select(pl.lit(trace).alias("trace"), pl.all()))
    frame = pl.DataFrame(parts, infer_schema_length=None)
    assumed = question.meters.assumed(question.settings.cluster.machines)
    said = (*question.settings.notes(), *_notes(question, drawn), *question.meters.notes, *assumed, *question.notes)
    return Findings(
        study="savings",
        trace="+".join([drawn, *question.recorded]),
        tables={SAVINGS: right, SWITCHING: off, PARTS: parts},
        frames={"runs": runs, "parts": frame, **({"days": pl.concat(days)} if days else {})},
        charts={"parts_of_energy": lambda: parts_of_energy(frame)},
        notes=(*said, *(note for each in question.recorded.values() for note in each.notes)),
    )


def _named(trace: str, rows: Sequence[Row]) -> list[Row]:
    return [{"trace": trace, **row} for row in rows]


def _notes(question: Question, drawn: str) -> list[str]:
    seeds = question.seeds
    return [
        f"{drawn}: {len(question.pool.jobs)} measured jobs drawn at {DRAWN_AT_PER_H:g} jobs/h for 12 h as in "
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
