"""The experiment from measured speeds and prices to tables, claims and charts.

Puts the parts together. Called by `taut experiment cost`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pipelines.errors import BadUsage
from pipelines.studies.cost.charts import cost_over_load, energy_against_tardiness, parts_of_cost
from pipelines.studies.cost.claims import as_asked_note, claims
from pipelines.studies.cost.equal_tardiness import equal_tardiness_rows, frontier
from pipelines.studies.cost.prices import prices
from pipelines.studies.cost.runs import Task, run_all
from pipelines.studies.cost.studies import AT_LOADS, LOADS, OFF_BY, settings
from pipelines.studies.cost.tables import deviation_rows, levels, savings, sensitivity
from pipelines.studies.cost.workload import GPUS_ON_A_NODE, POWERS, speeds_of
from pipelines.studies.energy.measured import gavel_throughputs
from pipelines.studies.study import Findings
from scheduler_core.planning.cost.lookahead import ITERATIONS

ZONES: Final = ("DE-LU", "US-CAL-CISO")
"""The first is where everything is run; flat prices at its mean are added to the others."""

PUE: Final = 1.2
RESTART_S: Final = 60.0
CLAIMS: Final = "claims"


NOTES: Final = (
    f"jobs: speeds measured on {' and '.join(POWERS)} with 1, 2, 4 and 8 GPUs; GPUs asked for and run times as in "
    "Gavel's public generator; due dates and weights as in the ANDREAS authors'; a dollar stands for their euro",
    "load: GPU-seconds that arrive, each job where it takes the fewest, over those there are; it was settled which "
    "loads are moderate to high (those of the bars) before any reported seed was run",
    "looking ahead (ours) judges plans to the end of all jobs that are there; randomised + relinking and the greedy go "
    "by the source's objective, which ends with the next decision",
    "these three may stop and move jobs, every restart taking "
    f"{RESTART_S:g} s; the methods they are held against do not, as in the source; that is where most of what they "
    "save comes from: the same methods with leave to preempt are claims of their own, 'preemptive'",
    "nodes without jobs are switched off under every policy: the bars are judged so; `kept_on_pct` is the saving "
    "had the other policy left them on",
    "the methods share nodes and pass over who does not fit; fixed: the count asked for, on the faster node type "
    "with room; fastest: the fastest configuration with room",
    f"run times off: each true run time is {100 * OFF_BY:g} % above or below the predicted one, with equal chance; "
    "progress is seen at every decision, speed is not; what decisions had foreseen is nearly the realised cost by "
    "construction, as a job's last decision foresees most of it: the bar to read is the plan run with predicted times",
    "savings are ratios of means over seeds, paired; energy is the whole site's (PUE included)",
)
"""What has to be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which loads and prices, on `nodes` of each type, with `jobs` a run; the bars are judged at `at_loads`."""

    energy: Path
    zones: Sequence[str] = ZONES
    loads: Sequence[float] = LOADS
    at_loads: Sequence[float] = AT_LOADS
    nodes: int = 2
    jobs: int = 100
    iterations: int = ITERATIONS
    seed: int = 0
    seeds: int = 10
    processes: int = 1


def ask(question: Question, *, talk: Callable[[str], None] = lambda _: None) -> Findings:
    """Run every policy under the same jobs and prices, load by load and seed by seed.

    Raises
    ------
    BadUsage
        If a bar is to be judged at a load that is not run.
    SourceError
        If the measured speeds or a zone's prices are absent or cannot be meant.
    """
    strange = [load for load in question.at_loads if load not in question.loads]
    if strange or not question.at_loads:
        found = ", ".join(map(str, strange)) or "none of 0.5 to 0.9"
        raise BadUsage(
            f"bars at loads: found {found}, expected some of those run: {', '.join(map(str, question.loads))}"
        )
    speeds, series = speeds_of(gavel_throughputs(question.energy)), prices(question.energy, question.zones)
    tasks = [
        Task(
            setting=setting,
            seed=seed,
            speeds=speeds,
            price=series[setting.zone],
            nodes=question.nodes,
            jobs=question.jobs,
            iterations=question.iterations,
            pue=PUE,
            restart_s=RESTART_S,
        )
        for setting in settings(question.loads, question.at_loads, list(series))
        for seed in range(question.seed, question.seed + question.seeds)
    ]
    runs = run_all(tasks, question.processes, talk)
    middle, home = question.at_loads[len(question.at_loads) // 2], question.zones[0]
    tables = {
        CLAIMS: claims(runs, question.at_loads),
        "savings, percent": savings(runs),
        "foreseen and realised": deviation_rows(runs),
        "what parameters change": sensitivity(runs, middle, home),
        "energy at equal tardiness": equal_tardiness_rows(runs, middle, home),
        "levels": levels(runs),
    }
    said = _subtitle(question)
    charts = {
        "cost_over_load": partial(cost_over_load, runs, said),
        "parts_of_cost": partial(parts_of_cost, runs, middle, said),
        "energy_against_tardiness": partial(
            energy_against_tardiness, frontier(runs, middle, home), runs, (middle, home), said
        ),
    }
    notes = (*NOTES, as_asked_note(runs, question.at_loads))
    return Findings(study="cost", trace="gavel", tables=tables, frames={"runs": runs}, charts=charts, notes=notes)


def _subtitle(question: Question) -> list[str]:
    return [
        f"{question.seeds} seeds of {question.jobs} jobs; {question.nodes} P100 and {question.nodes} V100 nodes of "
        f"{GPUS_ON_A_NODE} GPUs; hourly prices of {question.zones[0]}, 2023; PUE {PUE:g}; nodes without jobs are off",
    ]
