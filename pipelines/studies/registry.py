"""The studies by name: where each is declared, and its line in `taut study --help`.

Imports nothing heavy; a study is loaded when it is run. Called by `pipelines.cli.study`.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a study is declared, as `package.module:NAME`, and its help in one line."""

    at: str
    help: str


_ROOM: Final = "pipelines.studies"

STUDIES: Final[dict[str, Entry]] = {
    "shrinking": Entry(
        f"{_ROOM}.shrinking.study:SHRINKING",
        "Shrink requests: jobs finished, use of every resource and harm over load; the goal under contention.",
    ),
    "shrinking-mixes": Entry(f"{_ROOM}.shrinking.study:BY_MIX", "Shrink requests in three mixes of task types."),
    "shrinking-policies": Entry(f"{_ROOM}.shrinking.study:BY_POLICY", "Shrink requests under FIFO, SRTF and DRF."),
    "shrinking-ablation": Entry(
        f"{_ROOM}.shrinking.study:BY_PART",
        "Gain and harm of each part of the method, against fixed shares, percentile rules and the oracle.",
    ),
    "shrinking-frontier": Entry(
        f"{_ROOM}.shrinking.study:FRONTIER",
        "Gain against harm over thresholds, margins and eased floors, under contention at 70 jobs/h.",
    ),
    "fragmentation": Entry(
        f"{_ROOM}.fragmentation.study:FRAGMENTATION",
        "Fill clusters of shared GPUs up under six placements; GPUs left unallocated, against the published figures.",
    ),
    "departures": Entry(
        f"{_ROOM}.fragmentation.departures:DEPARTURES",
        "Placements while pods come and go: fragmentation and its reasons over time, waits, and targets learnt online.",
    ),
    "replay": Entry(
        f"{_ROOM}.replay.study:REPLAY",
        "Replay a trace's own jobs: every queue order with predicted, oracle and history sizes.",
    ),
}
"""In the order of the overview."""

RENAMED: Final[dict[str, str]] = {
    "1": "shrinking",
    "2": "shrinking-mixes",
    "3": "shrinking-policies",
    "ablate": "shrinking-ablation",
    "frontier": "shrinking-frontier",
    "fgd": "fragmentation",
    "fgd-departures": "departures",
    "replay": "replay",
}
"""By former name below `taut experiment`: the study. `taut experiment` works for one more release."""
