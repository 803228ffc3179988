"""Studies: reproductions of sources' claims on real, rebuilt or synthetic jobs, run by `taut study NAME`.

No study is imported here, so that the command line starts fast. What all studies share is in `study` and `compare`.
Only `pipelines.cli` imports this package.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["STUDIES"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a study is declared (`package.module:NAME`), its one-line help, and the trace that its page uses first."""

    at: str
    help: str
    trace: str = "pai"


_ROOM: Final = "pipelines.studies"

STUDIES: Final[dict[str, Entry]] = {
    "reclaim": Entry(
        f"{_ROOM}.reclaim:RECLAIMING",
        "Give what running jobs leave unused to waiting ones: share of an oracle's gain, kills and stretch, by arm.",
    ),
    "shrinking": Entry(
        f"{_ROOM}.shrinking.study:SHRINKING",
        "Shrink requests: jobs finished, use of every resource and harm; the goal under contention.",
    ),
    "shrinking-paper": Entry(
        f"{_ROOM}.shrinking.paper:PAPER_STUDY",
        "The paper of Yang, Hong and Tang by its numbers: tables 1 to 3, figures 2 to 6, experiments 1 to 3.",
    ),
    "fragmentation": Entry(
        f"{_ROOM}.fragmentation.study:FRAGMENTATION",
        "Fill clusters of shared GPUs up under six placements; GPUs left unallocated, against the published figures.",
        trace="openb",
    ),
    "carbon": Entry(
        f"{_ROOM}.carbon.study:CARBON",
        "Run elastic jobs under energy budgets: mean completion time at equal kWh, against baselines and a bound.",
        trace="philly",
    ),
    "cost": Entry(
        f"{_ROOM}.cost.study:COST",
        "Place jobs with due dates on node types at hourly prices: cost against FIFO, EDF and priority.",
        trace="philly",
    ),
    "sites": Entry(
        f"{_ROOM}.sites:SITES",
        "Route jobs among sites in several grid zones: learnt and planned policies against rules and bounds.",
        trace="helios",
    ),
}
"""Studies by name, in the order in which `taut study --help` lists them."""
