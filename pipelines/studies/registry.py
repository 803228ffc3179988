"""The list of studies: where each is declared, and its line in `taut study --help`.

No study is imported here, so that the command line starts fast.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["STUDIES"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a study is declared (`package.module:NAME`), and its one-line help."""

    at: str
    help: str


_ROOM: Final = "pipelines.studies"

STUDIES: Final[dict[str, Entry]] = {
    "reclaim": Entry(
        f"{_ROOM}.reclaim.study:RECLAIMING",
        "Give what running jobs leave unused to waiting ones: share of an oracle's gain, kills and stretch, by arm.",
    ),
    "shrinking": Entry(
        f"{_ROOM}.shrinking.study:SHRINKING",
        "Shrink requests: jobs finished, use of every resource and harm over load; the goal under contention.",
    ),
    "shrinking-paper": Entry(
        f"{_ROOM}.shrinking.paper:PAPER_STUDY",
        "Rebuild the algorithm as published: one instance a task, five features, and a sweep of its parameters.",
    ),
    "fragmentation": Entry(
        f"{_ROOM}.fragmentation.study:FRAGMENTATION",
        "Fill clusters of shared GPUs up under six placements; GPUs left unallocated, against the published figures.",
    ),
    "replay": Entry(
        f"{_ROOM}.replay.study:REPLAY",
        "Replay a trace's own jobs: every queue order with predicted, oracle and history sizes.",
    ),
    "carbon": Entry(
        f"{_ROOM}.carbon.study:CARBON",
        "Run elastic jobs under energy budgets: mean completion time at equal kWh, and carbon on real grids.",
    ),
    "carbon-gap": Entry(
        f"{_ROOM}.carbon.gap:CARBON_GAP",
        "Compare plans under a carbon budget with the exhaustive optimum: up to 4 jobs, 8 GPUs, 5 frequencies.",
    ),
    "cost": Entry(
        f"{_ROOM}.cost.study:COST",
        "Place jobs with due dates on node types at hourly prices: cost against FIFO, EDF and priority.",
    ),
    "cost-gap": Entry(
        f"{_ROOM}.cost.gap:COST_GAP",
        "Compare single decisions on drawn jobs with the exact optimum (HiGHS), or with the deterministic greedy.",
    ),
    "sites": Entry(
        f"{_ROOM}.sites.study:SITES",
        "Route jobs among sites in several grid zones: learnt and planned policies against rules and bounds.",
    ),
    "energy-fits": Entry(
        f"{_ROOM}.energy.fits:ENERGY_FITS",
        "Fit speed and watts by frequency, power limit and GPU count; errors on fitted and held-out rows.",
    ),
    "forecasts": Entry(
        f"{_ROOM}.energy.forecasts:FORECAST_ERRORS",
        "Errors of simple forecasts of carbon and price, for every zone and horizon of a folder of hourly series.",
    ),
}
"""Studies by name, in the order in which `taut study --help` lists them."""
