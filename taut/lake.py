"""The lake as `taut.open` returns it: tables, SQL, right-sizing and training in one call each.

Each call is the function behind the command of that name.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.models import NEWEST
from pipelines.settings import load_settings
from scheduler_core.shrink import ShrinkPolicy

if TYPE_CHECKING:
    from pipelines.models.retrain import Retrained

__all__ = ["OpenLake"]


class OpenLake(Lake):
    """A lake that holds at least one trace.

    `trace` is a trace's name and may be left out if the lake holds one; `cluster` selects one cluster, None all.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._require()

    def jobs(self, trace: str | None = None, cluster: str | None = None) -> pl.DataFrame:
        """Return the table `jobs` of a trace: one row per job, columns as in docs/data-dictionary.md.

        Raises
        ------
        BadUsage
            If no trace is named and the lake holds several.
        LakeError
            If the trace or cluster does not exist, or a file is damaged.
        """
        return self.table("jobs", self.chosen(trace), cluster).collect()

    def usage(self, trace: str | None = None, cluster: str | None = None) -> pl.DataFrame:
        """Return the table `usage` of a trace: one row per measured job. Errors are those of `jobs`."""
        return self.table("usage", self.chosen(trace), cluster).collect()

    def sql(self, query: str) -> pl.DataFrame:
        """Run one SELECT on the lake's tables and views, with the limits of `taut sql`; return its rows.

        Raises
        ------
        QueryRefused
            If the text is not one SELECT, accesses anything outside the lake, exceeds a limit, or DuckDB cannot run it.
        """
        from pipelines.lake.sql import query as run

        return run(self, query)

    def rightsize(
        self,
        by: Literal["group", "user", "type"] = "group",
        *,
        trace: str | None = None,
        cluster: str | None = None,
        policy: ShrinkPolicy | None = None,
    ) -> pl.DataFrame:
        """Return what recurring jobs request, use and need, one row per group (or user, or type) and role, worst first.

        Columns are those of `taut rightsize --format json`: amounts per instance, hours summed over instances.

        Raises
        ------
        BadUsage, LakeError
            As `jobs`; LakeError also if no run was measured.
        """
        from pipelines.rightsizing.rows import rightsized

        policy = policy or ShrinkPolicy(device_mem_gib=GPU_MEM_GIB_OF_TYPE)
        return rightsized(self.jobs(trace, cluster), self.usage(trace, cluster), by, policy)

    def train(
        self,
        *,
        trace: str | None = None,
        cluster: str | None = None,
        until: datetime | None = None,
        by: Literal["kind", "workload"] = "kind",
        types: Sequence[str] | None = None,
        newest: int = NEWEST,
        seed: int = 0,
        threads: int | None = None,
    ) -> "list[Retrained]":
        """Train the models of a trace and register each as a challenger, as `taut train` does.

        The registry is `MLFLOW_TRACKING_URI`, else SQLite next to the lake. Each result has its `model` (card, metrics)
        and `version`; `row()` is its row in the table of `taut train`.

        Parameters
        ----------
        until
            Train only on jobs that ended before this time, which has a time zone; None leaves the latest fifth of the
            submissions for the gate.
        newest
            Most jobs to read: the last submitted.

        Raises
        ------
        BadUsage
            As `jobs`, or if `until` has no time zone.
        TrainingError
            If no job ended before the cut.
        """
        name, settings = self.chosen(trace), load_settings()
        if until is not None and until.tzinfo is None:
            zone = self.manifest(name).zone
            raise BadUsage(f"until={until} has no time zone; give it one: until.replace(tzinfo=ZoneInfo({zone!r}))")
        from pipelines.models.retrain import retrain
        from pipelines.models.training_tables import read_tables

        return retrain(
            read_tables(self, name, cluster=cluster, newest=newest),
            name,
            uri=settings.registry(self.path),
            until=until,
            by=by,
            types=types,
            seed=seed,
            threads=threads or settings.threads,
        )
