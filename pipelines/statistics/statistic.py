"""A statistic: its query (one SELECT on one trace, split by dimensions such as `user`), title and needed columns.

Its result has rows, or the reason for having none.
"""

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getdoc
from pathlib import Path
from typing import Final

import duckdb
import polars as pl

from pipelines.errors import BadUsage, LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.views import EXACT, GPU_HOURS, GPUS, INSTANCE_HOURS, total

By = str | Sequence[str] | None
"""The dimensions by which a statistic is split: one name, several, or None (not split)."""

_LONG_NUMBER: Final = re.compile(r"(\d{12})[\d.]{12,}")

PERCENTS: Final = (5, 10, 25, 50, 75, 90, 95, 99)

_SIZE_CLASSES: Final = ("0", "<1", "1", "2", "3-4", "5-8", "9-16", "17-64", "65+")
_REQUEST_CLASSES: Final = ("0", "<0.25", "0.25-0.5", "0.5-1", "1", ">1")

JOB_DIMENSIONS: Final[dict[str, str]] = {
    "cluster": "cluster",
    "vc": "vc",
    "user": '"user"',
    "group": '"group"',
    "role": "role",
    "task_type": "task_type",
    "workload": "workload",
    "gpu_type": "gpu_type",
    "status": "status",
    "month": "strftime(submit_local, '%Y-%m')",
    "device": "CASE WHEN gpus > 0 THEN 'gpu' WHEN gpus = 0 THEN 'cpu' END",
    "instances": "instances",
    "req_gpus": "req_gpus",
    "request_class": f"""CAST(CASE WHEN req_gpus = 0 THEN '0' WHEN req_gpus < 0.25 THEN '<0.25'
        WHEN req_gpus < 0.5 THEN '0.25-0.5' WHEN req_gpus < 1 THEN '0.5-1' WHEN req_gpus = 1 THEN '1'
        WHEN req_gpus > 1 THEN '>1' END AS ENUM{_REQUEST_CLASSES})""",
    "size": f"""CAST(CASE WHEN gpus = 0 THEN '0' WHEN gpus < 1 THEN '<1' WHEN gpus < 2 THEN '1' WHEN gpus < 3 THEN '2'
        WHEN gpus < 5 THEN '3-4' WHEN gpus < 9 THEN '5-8' WHEN gpus < 17 THEN '9-16' WHEN gpus < 65 THEN '17-64'
        WHEN gpus IS NOT NULL THEN '65+' END AS ENUM{_SIZE_CLASSES})""",
}
"""Dimensions of jobs with their SQL: canonical columns; the local month of submission; whether GPUs are requested
(`device`); GPUs requested by one instance (`req_gpus`, classes in `request_class`) and by all instances (`size`)."""


ZONE: Final = "local_zone($trace)"
"""SQL of the time zone for the trace's local hours and days, taken from its manifest."""


JOB_ROWS: Final = f"""job AS (
    SELECT *, {GPUS} AS gpus, {GPU_HOURS} AS gpu_hours, {INSTANCE_HOURS} AS instance_hours,
        timezone({ZONE}, submit_ts) AS submit_local
    FROM jobs WHERE trace = $trace AND cluster = coalesce($cluster, cluster))"""
"""SQL of the CTE `job`: the jobs of one trace with `gpus` (instances times GPUs of each), `gpu_hours` and
`instance_hours` (null if a factor is null), and `submit_local`."""


class Split:
    """The dimensions by which a query is split, with the SQL fragments for its SELECT."""

    def __init__(self, by: By, dimensions: Mapping[str, str]) -> None:
        self.names = () if by is None else (by,) if isinstance(by, str) else tuple(dict.fromkeys(by))
        unknown = [name for name in self.names if name not in dimensions]
        if unknown:
            raise BadUsage(f"cannot split by {unknown[0]!r}; expected one of {', '.join(dimensions) or 'none'}")
        self._dimensions = dimensions

    @property
    def defined(self) -> str:
        """Return `expression AS "name", ` for each dimension, to begin a SELECT list."""
        return "".join(f'{self._dimensions[name]} AS "{name}", ' for name in self.names)

    @property
    def listed(self) -> str:
        """Return `"name", ` for each dimension, to begin a SELECT list of an outer query."""
        return "".join(f'"{name}", ' for name in self.names)

    @property
    def window(self) -> str:
        """Return the SQL window of all rows with equal values of the dimensions."""
        return f"PARTITION BY {self.listed[:-2]}" if self.names else ""


def run_query(lake: Lake, sql: str, *, trace: str, cluster: str | None) -> pl.DataFrame:
    """Run one SELECT on the lake's tables with the parameters `$trace` and `$cluster` (null: all clusters)."""
    lake.table("jobs", trace, cluster)
    with tempfile.TemporaryDirectory(prefix="taut-stats-") as spill:
        connection = lake.connect(Path(spill))
        try:
            rows = connection.sql(sql, params={"trace": trace, "cluster": cluster}).to_arrow_table()
        except duckdb.Error as error:
            said = _LONG_NUMBER.sub(r"\1...", str(error).partition("\n")[0])[:300]
            path = lake.manifest_folder / f"{trace}.json"
            message = f"{trace}'s tables cannot be read as expected: {said}; remove {path} and ingest the trace again"
            raise LakeError(message) from error
        finally:
            connection.close()
    return pl.DataFrame(rows).with_columns(pl.selectors.by_dtype(pl.Categorical, pl.Enum).cast(pl.String))


def without(name: str, dimensions: Mapping[str, str]) -> dict[str, str]:
    """Return the other dimensions."""
    return {other: of for other, of in dimensions.items() if other != name}


def mean(value: str) -> str:
    """Return the SQL of a mean that does not depend on row order."""
    return f"CAST(avg(CAST({value} AS {EXACT})) AS DOUBLE)"


def quantiles(value: str) -> str:
    """Return the SQL of the list of continuous quantiles at `PERCENTS`, which `percentiles` splits into columns."""
    return f"quantile_cont(CAST({value} AS DOUBLE), [{', '.join(str(p / 100) for p in PERCENTS)}])"


def percentiles(unit: str, of: str = "q") -> str:
    """Return the SQL that splits a list of quantiles into columns `p5_<unit>` to `p99_<unit>`.

    `of` is the name of the list.
    """
    return ", ".join(f"{of}[{i}] AS p{percent}_{unit}" for i, percent in enumerate(PERCENTS, start=1))


def share_of_gpu_hours(where: str) -> str:
    """Return the SQL of the share of GPU-hours that jobs matching `where` have; null if there are no GPU-hours."""
    return f"coalesce({total('gpu_hours', where)}, 0) / nullif({total('gpu_hours')}, 0)"


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
