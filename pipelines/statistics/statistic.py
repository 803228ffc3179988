"""The type of a statistic (function, title, needed columns), and of its result: rows, or the reason for having none."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.statistics.query import JOB_DIMENSIONS, By, Split, run_query

Compute = Callable[[Lake, str, Split, str | None], pl.DataFrame]
"""Function that computes a statistic: `(lake, trace, split, cluster) -> rows`."""

NULL_REASONS: Final = {
    "queue_s": "no queueing delay is known: jobs start when submitted, or have no start",
    "run_s": "no run time is known",
    "user": "no job has a user",
    "group": "no job has a group",
    "req_gpus": "no GPU request is known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a statistic: rows, their cluster (None: all), and the reason if there are no rows."""

    rows: pl.DataFrame
    cluster: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """A named statistic: title, unit, definition, needed columns by table, and the dimensions it can be split by."""

    name: str
    title: str
    unit: str
    definition: str
    compute: Compute
    dimensions: Mapping[str, str]
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    adds_up: bool = True
    """Whether the statistic adds up clusters; it is then restricted to one cluster if clusters are alternatives."""
    otherwise: str = ""
    """Reason to give if there are no rows although the needed columns have values."""

    @property
    def by(self) -> tuple[str, ...]:
        """Return the names of the dimensions."""
        return tuple(self.dimensions)

    def __call__(self, lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
        """Compute the statistic, split by dimensions; `cluster` None: over all clusters."""
        return self.compute(lake, trace, Split(by, self.dimensions), cluster)

    def answer(self, lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> Answer:
        """Compute the statistic for a trace; return its rows, or no rows and the reason.

        If the trace's clusters are alternatives, and neither `cluster` nor `by` distinguishes them, only the
        representative cluster is used.
        """
        if cluster is None and self.adds_up and "cluster" not in ((by,) if isinstance(by, str) else by or ()):
            cluster = lake.manifest(trace).representative
        rows = self(lake, trace, by, cluster)
        if rows.height:
            return Answer(rows=rows, cluster=cluster)
        reason = self._missing(lake, trace, cluster)
        return Answer(rows=rows, cluster=cluster, reason=reason)

    def _missing(self, lake: Lake, trace: str, cluster: str | None) -> str:
        where = trace if cluster is None else f"{trace}, cluster {cluster}"
        for table, columns in self.needs.items():
            frame = lake.table(table, trace, cluster)
            counts = frame.select(pl.len().alias("rows"), *(pl.col(c).count() for c in columns)).collect().row(0)
            if not counts[0]:
                return f"{where} has no rows in {table}"
            for column, known in zip(columns, counts[1:], strict=True):
                if not known:
                    told = NULL_REASONS.get(column)
                    return f"{table}.{column} is null in all {counts[0]} rows of {where}" + (
                        f" ({told})" if told else ""
                    )
        why = f": {self.otherwise}" if self.otherwise else ""
        return f"no row of {where} has all columns that {self.name} needs{why}"


def statistic(
    *,
    title: str,
    unit: str,
    needs: Mapping[str, tuple[str, ...]],
    by: Mapping[str, str] = JOB_DIMENSIONS,
    otherwise: str = "",
) -> Callable[[Callable[[Split], str]], Statistic]:
    """Make a statistic of the function that returns its query; name and definition are the function's."""

    def made(query: Callable[[Split], str]) -> Statistic:
        return Statistic(
            name=query.__name__,
            title=title,
            unit=unit,
            definition=defined(query),
            compute=lambda lake, trace, split, cluster: run_query(lake, query(split), trace=trace, cluster=cluster),
            dimensions=by,
            needs=needs,
            otherwise=otherwise,
        )

    return made


def defined(function: Callable[..., object]) -> str:
    """Return the definition of a statistic: its function's docstring as one paragraph, without references."""
    return " ".join((getdoc(function) or "").partition("\n\nReferences\n")[0].split())


def cluster_note(lake: Lake, trace: str) -> str | None:
    """Return a note that names the cluster used by default; None if all clusters are added up."""
    manifest = lake.manifest(trace)
    if manifest.representative is None or len(manifest.clusters) == 1:
        return None
    return (
        f"{trace}: of its {len(manifest.clusters)} clusters {manifest.representative} alone: they are alternatives, "
        "never added up; --cluster names another"
    )
