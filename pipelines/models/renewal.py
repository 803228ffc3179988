"""Renew the champions of a trace: undo a promotion that did harm, train again, promote what is no worse."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

import numpy as np
import polars as pl

from features.history import History
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.errors import ServeError
from pipelines.errors import RegistryError
from pipelines.models.judging import Interval, day_blocks, day_draws, mean_interval
from pipelines.models.metrics import FloatArray, Forecast, log_run, primary_rows
from pipelines.models.retrain import Retrained
from pipelines.models.splits import finished
from pipelines.models.tracking import CHAMPION, ModelVersion, promote, rollback, versions
from pipelines.models.training_tables import Tables, Talk
from pipelines.simulation.job_pool import Pool, recorded_pool

__all__ = ["Decision", "renew"]

LEAST_JOBS: Final = 200
"""Minimum number of ended jobs on which two versions are compared."""

MOST_JOBS: Final = 50_000
"""Maximum number of jobs on which two versions are compared: the latest submitted."""

ReadVersion = Callable[[str, int], Bundle]
"""Reads the bundle of a registered version, given the model's name and the version's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided about one version of a model.

    `lead` is the mean pinball loss of the version that it would replace or had replaced, minus its own, with a 95 %
    interval over days; None if the two were not compared. `jobs` is the number of jobs compared.
    """

    model: str
    outcome: Literal["promoted", "kept", "rolled_back"]
    why: str
    jobs: int = 0
    lead: Interval | None = None

    def row(self) -> dict[str, object]:
        """Return one flat row."""
        lead = self.lead
        ends = (None, None, None) if lead is None else (lead.value, lead.lo, lead.hi)
        finite = [each if each is not None and math.isfinite(each) else None for each in ends]
        named = dict(zip(("lead", "lead_lo", "lead_hi"), finite, strict=True))
        return {"model": self.model, "outcome": self.outcome, "why": self.why, "jobs": self.jobs, **named}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Inputs of a comparison of versions: the tables, their history, where versions are read, and the seed of draws."""

    tables: Tables
    history: History
    read_version: ReadVersion
    seed: int

    def lead(self, name: str, ours: int, theirs: int, since: datetime) -> tuple[int, Interval | None]:
        """Compare two versions of a run-time model on the jobs submitted from `since` on that ran and have ended.

        Jobs on which either version was trained are left out. Both versions get the same history: every job that ended
        before a submission. Return the number of jobs, and the lead of version `ours` (see `Decision`); None with fewer
        than `LEAST_JOBS` jobs.
        """
        bundles = [self.read_version(name, version) for version in (theirs, ours)]
        since = max(since, *(bundle.card.until for bundle in bundles))
        kind = bundles[0].card.task_type
        own = ((pl.col("task_type") == kind) | (pl.col("workload") == kind)).fill_null(value=False)
        ran = finished() & (pl.col("run_s") > 0.0)
        later = self.tables.jobs.filter(own, ran, pl.col("submit_ts") >= since)
        if later.height < LEAST_JOBS:
            return later.height, None
        pool = recorded_pool(later.sort("submit_ts").tail(MOST_JOBS), self.tables.usage)
        behind, ahead = (self._losses(bundle, pool) for bundle in bundles)
        blocks = day_blocks(pool.frame["submit_ts"])
        drawn = day_draws(int(blocks.max()) + 1, seed=self.seed)
        return len(ahead), mean_interval(blocks, behind - ahead, drawn)

    def _losses(self, bundle: Bundle, pool: Pool) -> FloatArray:
        """Return the pinball loss of each job's predicted run time (n,), the mean of p50 and p90."""
        predictor = InProcessPredictor(bundles={bundle.card.name: replace(bundle, history=self.history)})
        jobs = [entry.job for entry in pool.jobs]
        requests = np.array([job.request.row() for job in jobs], dtype=np.float64)
        times = predictor.run_times(jobs, np.arange(len(jobs)), requests)
        forecast = Forecast(p50=log_run(times.p50), p90=log_run(times.p90))
        return primary_rows(log_run(pool.frame["run_s"].to_numpy()), forecast)


def renew(
    tables: Tables,
    trace: str,
    *,
    uri: str,
    read_version: ReadVersion,
    train: Callable[[], Sequence[Retrained]] | None,
    seed: int = 0,
    talk: Talk = lambda _: None,
) -> list[Decision]:
    """Roll back champions that do worse than the version they replaced; train, and promote what is no worse.

    `train` trains and registers challengers; None only checks the last promotions. There is one decision per
    challenger, after the champions that were rolled back; without `train`, one per run-time champion.
    """
    judging = Judging(
        tables=tables, history=History.of(tables.jobs, tables.measured), read_version=read_version, seed=seed
    )
    try:
        checked = check_drops(trace, judging, uri=uri)
    except RegistryError as error:
        if train is None:
            raise
        talk(f"no earlier promotion to check ({str(error).partition(';')[0]})")
        checked = []
    if train is None:
        return checked
    undone = [each for each in checked if each.outcome == "rolled_back"]
    return [*undone, *(promote_better(each, judging, uri=uri) for each in train())]


def check_drops(trace: str, judging: Judging, *, uri: str) -> list[Decision]:
    """Roll back each run-time champion that does worse on new jobs than the version it replaced.

    New jobs are those submitted after the latest event in the data that the champion was trained with, so they
    chose neither version. A champion is rolled back if the interval of its lead over the former is wholly below zero.
    """
    held = [each for each in versions(uri=uri) if CHAMPION in each.aliases]
    return [_checked(each, judging, uri=uri) for each in held if each.name.startswith(f"runtime.{trace}.")]


def _checked(champion: ModelVersion, judging: Judging, *, uri: str) -> Decision:
    if champion.replaced is None or champion.seen is None:
        missing = "it replaced no version" if champion.replaced is None else "its data have no recorded end"
        return Decision(model=champion.reference, outcome="kept", why=f"not compared: {missing}")
    former = f"{champion.name}@{champion.replaced}"
    try:
        jobs, lead = judging.lead(champion.name, champion.version, champion.replaced, champion.seen)
    except ServeError as error:
        return Decision(model=champion.reference, outcome="kept", why=f"not compared with {former}: {error}")
    if lead is None:
        why = f"not compared with {former}: {jobs} new jobs ended, expected at least {LEAST_JOBS}"
        return Decision(model=champion.reference, outcome="kept", why=why, jobs=jobs)
    if lead.hi >= 0.0:
        return Decision(model=champion.reference, outcome="kept", why=f"no worse than {former}", jobs=jobs, lead=lead)
    back = rollback(champion.name, uri=uri)
    why = f"worse than {former} on new jobs; champion is {back.reference} again"
    return Decision(model=champion.reference, outcome="rolled_back", why=why, jobs=jobs, lead=lead)


def promote_better(trained: Retrained, judging: Judging, *, uri: str) -> Decision:
    """Promote a challenger that the gate lets serve, unless the champion does better on later jobs.

    The champion is kept if the whole interval of the challenger's lead is below zero.
    """
    version, kind = trained.version, trained.model.kind
    held = [each for each in versions(uri=uri, name=version.name) if CHAMPION in each.aliases]
    if version.refusal(held[0] if held else None) is not None:
        return Decision(model=version.reference, outcome="kept", why=version.reasons)
    jobs, lead = 0, None
    if held and kind == "runtime":
        with suppress(ServeError):  # a champion that cannot be read is replaced
            jobs, lead = judging.lead(version.name, version.version, held[0].version, trained.model.until)
    if lead is not None and lead.hi < 0.0:
        why = f"worse than {held[0].reference} on later jobs"
        return Decision(model=version.reference, outcome="kept", why=why, jobs=jobs, lead=lead)
    promote(version.name, uri=uri, version=version.version)
    return Decision(model=version.reference, outcome="promoted", why=version.reasons, jobs=jobs, lead=lead)
