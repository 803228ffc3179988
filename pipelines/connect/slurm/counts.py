"""What became of the submissions that the agent was asked about, as Prometheus's text.

node_exporter's textfile collector reads it from a file, so the agent needs no port.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

Reason = Literal["late", "unavailable", "resting", "unreadable", "script"]
"""Why a submission got no advice.

The service missed the deadline, failed, or was not asked since it had failed three times in a row; the agent could not
read the request; or the script had no answer in time, as its next request states.
"""
BUCKETS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)


@dataclass(slots=True, kw_only=True)
class Counts:
    """Submissions since the agent started; those with mode `off` are not counted."""

    answered: int = 0
    lost: Counter[Reason] = field(default_factory=Counter)
    took_s: float = 0.0
    _within: Counter[float] = field(default_factory=Counter)
    _timed: int = 0

    def took(self, seconds: float) -> None:
        """Count the seconds that one call of the service took, answered or not."""
        self._timed += 1
        self.took_s += seconds
        self._within.update(bucket for bucket in BUCKETS_S if seconds <= bucket)

    def page(self) -> str:
        """Return the counts in Prometheus's text format; every reason has a series from the start."""
        buckets = [(f"{each:g}", self._within[each]) for each in BUCKETS_S] + [("+Inf", self._timed)]
        families: dict[str, list[tuple[str, float]]] = {
            "taut_agent_asked_total counter": [("", self.answered + self.lost.total())],
            "taut_agent_answered_total counter": [("", self.answered)],
            "taut_agent_lost_total counter": [(f'{{reason="{each}"}}', self.lost[each]) for each in get_args(Reason)],
            "taut_agent_call_seconds histogram": [
                *((f'_bucket{{le="{bound}"}}', count) for bound, count in buckets),
                ("_sum", self.took_s),
                ("_count", self._timed),
            ],
        }
        lines = []
        for family, samples in families.items():
            lines += [f"# TYPE {family}", *(f"{family.split()[0]}{end} {value}" for end, value in samples)]
        return "\n".join([*lines, ""])
