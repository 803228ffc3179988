"""What a statistic is: a function with a title, the columns it needs, and an answer that says why it is none.

Which there are is in `pipelines.statistics`. Called by that, by `taut stats` and by reports.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.statistics.query import By

Compute = Callable[[Lake, str, By, str | None], pl.DataFrame]
"""`(lake, trace, by, cluster) -> rows`."""

TOLD_ABOUT: Final = {
    "queue_s": "no wait is told: jobs start when submitted, or have no start",
    "run_s": "no run time is told",
    "user": "no user is named",
    "group": "no group is named",
    "req_gpus": "no request of GPUs is told",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswerable:
    """Why a trace cannot answer."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The rows of a statistic; where there are none, `unanswerable` says why.

    `cluster` is the one they are of; None: all.
    """

    rows: pl.DataFrame
    cluster: str | None = None
    unanswerable: Unanswerable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """A named statistic: its title (with the unit), its function, the columns it needs, what it may be split by."""

    name: str
    title: str
    unit: str
    function: Compute
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    adds_up: bool = True
    """Whether clusters that are alternatives would be added up."""
    otherwise: str = ""
    """Why there may be no rows though the needed columns are told."""

    @property
    def definition(self) -> str:
        """Return the function's documentation, as one paragraph."""
        said = (getdoc(self.function) or "").partition("\n\nReferences\n")[0]
        return " ".join(said.split())

    def answer(self, lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> Answer:
        """Return the rows, or none and the reason.

        Clusters that are alternatives are not added up: where none is named and none split by, they are those of the
        one that stands for the trace.

        Raises
        ------
        LakeError
            If there is no such trace or cluster.
        BadUsage
            If the statistic cannot be split so.
        """
        if cluster is None and self.adds_up and "cluster" not in ((by,) if isinstance(by, str) else by or ()):
            cluster = lake.manifest(trace).representative
        rows = self.function(lake, trace, by, cluster)
        if rows.height:
            return Answer(rows=rows, cluster=cluster)
        reason = self._missing(lake, trace, cluster)
        return Answer(rows=rows, cluster=cluster, unanswerable=Unanswerable(reason=reason))

    def _missing(self, lake: Lake, trace: str, cluster: str | None) -> str:
        where = trace if cluster is None else f"{trace}, cluster {cluster}"
        for table, columns in self.needs.items():
            frame = lake.table(table, trace, cluster)
            counts = frame.select(pl.len().alias("rows"), *(pl.col(c).count() for c in columns)).collect().row(0)
            if not counts[0]:
                return f"{where} has no rows in {table}"
            for column, known in zip(columns, counts[1:], strict=True):
                if not known:
                    told = TOLD_ABOUT.get(column)
                    return f"{table}.{column} is null in all {counts[0]} rows of {where}" + (
                        f" ({told})" if told else ""
                    )
        why = f": {self.otherwise}" if self.otherwise else ""
        return f"no row of {where} has all that {self.name} needs{why}"


def alone(lake: Lake, trace: str) -> str | None:
    """Say which cluster's numbers are told where none is named; None where it is all of them, added up."""
    manifest = lake.manifest(trace)
    if manifest.representative is None or len(manifest.clusters) == 1:
        return None
    return (
        f"{trace}: of its {len(manifest.clusters)} clusters {manifest.representative} alone: they are alternatives of "
        "each other, never added up; --cluster names another"
    )
