"""What feedback taught and people decided, frozen: modes, brakes, and floors of memory under what was killed.

It is looked up here and made in `modelserve.contract.feedback_rules`. Called by whatever recommends, through
`modelserve.learning.feed`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import numpy as np

Mode = Literal["observe", "enforce"]
Place = tuple[str, str, str, str]
"""Trace, cluster, task type, group; an empty text stands for every one."""
Key = tuple[str, str, str, str, str]
"""Trace, cluster, whose (`group` or `user`), its name, role."""

EVERY = ""
"""In a place or key: every cluster, type or group; as a job's cluster: none was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why jobs of a type are not shrunk for now, and since when: Unix time of the report that was one too many.

    >>> str(Stop(why="5 of the last 200 were killed", since=1596274200.0))
    '5 of the last 200 were killed; since 2020-08-01T09:30:00Z'
    """

    why: str
    since: float

    def __str__(self) -> str:
        return f"{self.why}; since {datetime.fromtimestamp(self.since, UTC):%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """All that is known at one moment; `seq` is the number of the latest change in it.

    A job that names no cluster is answered with the strictest of all clusters: callers that are bound to clusters have
    to name one. What was said without a cluster counts for all.
    """

    default: Mode = "observe"
    modes: Mapping[Place, Mode] = field(default_factory=dict)
    brakes: Mapping[tuple[str, str, str], Stop] = field(default_factory=dict)
    floors: Mapping[Key, float] = field(default_factory=dict)
    seq: int = 0

    def mode(self, trace: str, task_type: str, group: str | None, cluster: str | None = None) -> Mode:
        """Return the mode of a job: its group's, else its type's, else its trace's, else the settings'.

        At each of the three, a mode set for the cluster goes before one set for every cluster.

        >>> learned = Learned(modes={("pai", "", "", ""): "enforce", ("pai", "", "", "g3"): "observe"})
        >>> learned.mode("pai", "ctr", "g3"), learned.mode("pai", "ctr", "g4"), learned.mode("philly", "other", None)
        ('observe', 'enforce', 'observe')
        """
        if not self.modes:
            return self.default
        clusters = (EVERY,) if cluster is None else (cluster, EVERY)
        groups = () if group is None else ((task_type, group), (EVERY, group))
        for kind, of in (*groups, (task_type, EVERY), (EVERY, EVERY)):
            for each in clusters:
                found = self.modes.get((trace, each, kind, of))
                if found is not None:
                    return found
        return self.default

    def braked(self, trace: str, task_type: str, cluster: str | None = None) -> Stop | None:
        """Return why jobs of this type are not shrunk for now, or None where they may be."""
        if not self.brakes:
            return None
        if cluster is not None:
            return self.brakes.get((trace, cluster, task_type)) or self.brakes.get((trace, EVERY, task_type))
        return next((stop for (t, _, kind), stop in self.brakes.items() if (t, kind) == (trace, task_type)), None)

    def memory_floor_gib(
        self, trace: str, cluster: str | None, group: str | None, role: str, user: str | None = None
    ) -> float:
        """Return the memory below which a job's like was killed, with its margin; NaN where none was.

        A job's like are those of its group and role; without a group, those of its user and role without one.
        """
        if not self.floors:
            return np.nan
        whose, name = ("user", user) if group is None else ("group", group)
        if name is None:
            return np.nan
        if cluster is None:
            found = [gib for (t, _, *rest), gib in self.floors.items() if (t, *rest) == (trace, whose, name, role)]
        else:
            held = (self.floors.get((trace, each, whose, name, role)) for each in (cluster, EVERY))
            found = [gib for gib in held if gib is not None]
        return max(found, default=np.nan)
