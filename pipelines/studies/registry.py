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
    "replay": Entry(
        f"{_ROOM}.replay.study:REPLAY",
        "Replay a trace's own jobs: every queue order with predicted, oracle and history sizes.",
    ),
}
"""In the order of the overview."""

RENAMED: Final[dict[str, str]] = {
    "replay": "replay",
}
"""By former name below `taut experiment`: the study. `taut experiment` works for one more release."""
