"""Predictors for the jobs of a pool: cross-fitted models, the champions of the registry, or the oracle.

Cross-fitted models: each job is predicted by models that were not trained on jobs of its group. No bundle is written.
Called by the studies that draw measured jobs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import polars as pl

from features.history import History
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.predictor import InProcessPredictor
from pipelines.errors import TrainingError
from pipelines.models.model import TrainedModel, card_of
from pipelines.models.peaks import UsageRecipe
from pipelines.models.runtime import train_runtime
from pipelines.models.splits import group_folds
from pipelines.models.usage import train_usage
from pipelines.simulation.advice import oracle_of
from pipelines.simulation.job_pool import PARAMETER_SERVER, Pool, job_pool
from pipelines.studies.shrinking.cases import TYPES
from pipelines.studies.study import Context, option, seed_option, trace_option
from scheduler_core.types import FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, RunTimes

Talk = Callable[[str], None]


_KEYS: Final = ("job_id", "role")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """The run-time and usage models of one fold, and the history of the jobs that they were trained on."""

    models: tuple[TrainedModel, ...]
    trained: History
    until: datetime

    def predictor(self, history: History) -> InProcessPredictor:
        """Return a predictor with the models of this fold, whose history features come from `history`."""
        return InProcessPredictor(bundles={model.name: _bundle(model, history, self.until) for model in self.models})


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossfit:
    """The models of each fold, the fold number that predicts each job of the pool (n,), and the history of all jobs."""

    folds: tuple[Fold, ...]
    fold_of: IntArray
    whole: History


def crossfit(
    pool: Pool,
    jobs: pl.DataFrame,
    usage: pl.DataFrame,
    *,
    folds: int = 5,
    seed: int = 0,
    usage_recipe: UsageRecipe | None = None,
    nthread: int = 1,
    talk: Talk = lambda _: None,
) -> Crossfit:
    """Train run-time and usage models as `taut train` does, once per fold, without the groups that the fold holds out.

    Parameters
    ----------
    pool
        The jobs that will be predicted, of the same trace.
    jobs, usage
        Canonical tables of one trace. Parameter servers, which no pool holds, are not trained on: their small requests
        would make the run time of other roles appear to depend on the request.
    folds, seed
        Number of folds, and the seed that assigns groups to them; no group is split between folds.

    Raises
    ------
    TrainingError
        There are fewer groups than folds, or too few jobs to train any run-time model.
    """
    whole, jobs = History.of(jobs, usage), jobs.filter(pl.col("role") != PARAMETER_SERVER)
    splits = group_folds(jobs, folds=folds, seed=seed)
    held_out = {key: number for number, split in enumerate(splits) for key in jobs[split.test].select(_KEYS).rows()}
    fold_of = _fold_of(pool, held_out)
    until = max(jobs["end_ts"].drop_nulls().to_list()) + timedelta(seconds=1)
    trained = []
    for number, split in enumerate(splits):
        talk(f"fold {number + 1} of {folds}")
        rest = jobs[split.train]
        measured = usage.join(rest, on=["trace", "cluster", *_KEYS], how="semi")
        common = {"trace": str(rest["trace"][0]), "until": until, "seed": seed, "nthread": nthread}
        models = train_runtime(rest, measured, **common)
        models += train_usage(rest, measured, recipe=usage_recipe, **common)
        trained.append(Fold(models=tuple(models), trained=History.of(rest, measured), until=until))
    return Crossfit(folds=tuple(trained), fold_of=fold_of, whole=whole)


def _fold_of(pool: Pool, held_out: Mapping[tuple[str, str], int]) -> IntArray:
    numbers = [held_out.get((entry.job.job_id, entry.job.role), -1) for entry in pool.jobs]
    if -1 in numbers:
        raise TrainingError(
            "crossfit: found a job in the pool that no fold holds out; expected pool and jobs of one lake"
        )
    return np.array(numbers, dtype=np.int64)


def _bundle(model: TrainedModel, history: History, created: datetime) -> Bundle:
    return Bundle(
        card=card_of(model, created=created),
        contract=model.contract,
        boosters=model.boosters,
        forests={},
        history=history,
        importances=(),
        path=Path(),
        digest="",
        history_digest="",
        quantile_forest=None if model.forest is None else model.forest.forest,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedPredictor:
    """A predictor that uses for each job the models of the fold that holds the job out."""

    folds: Sequence[Predictor]
    fold_of: Mapping[Job, int]

    @classmethod
    def of(cls, crossfit: Crossfit, pool: Pool) -> Self:
        """Return the predictor of the pool's jobs.

        As in the service, history features use all jobs that ended before a job's submission, its own group included.
        """
        numbers = crossfit.fold_of.tolist()
        return cls(
            folds=[fold.predictor(crossfit.whole) for fold in crossfit.folds],
            fold_of={entry.job: number for entry, number in zip(pool.jobs, numbers, strict=True)},
        )

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict `len(rows)` run times: row i is `jobs[rows[i]]` with `requests[i]` (k, 3)."""
        p50, p90 = np.full((2, len(rows)), np.nan)
        for predictor, members in self._members(jobs):
            mine = np.flatnonzero(np.isin(rows, members))
            place = np.searchsorted(members, rows[mine])
            answer = predictor.run_times([jobs[row] for row in members.tolist()], place, requests[mine])
            p50[mine], p90[mine] = answer.p50, answer.p90
        return RunTimes(p50=p50, p90=p90)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Predict the upper quantile of the use per instance of each job (n,)."""
        use = {name: np.full(len(jobs), np.nan) for name in ("cpu_cores", "mem_gib", "gpus", "gpu_mem_gib")}
        runs = np.zeros(len(jobs), dtype=np.int64)
        for predictor, members in self._members(jobs):
            answer = predictor.peak_use([jobs[row] for row in members.tolist()])
            for name, values in use.items():
                values[members] = getattr(answer, name)
            runs[members] = answer.runs
        return PeakUse(runs=runs, **use)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return what the run-time model of each job (n,) knows about resources: importance and range of requests."""
        known = [Knowledge()] * len(jobs)
        for predictor, members in self._members(jobs):
            answers = predictor.knowledge([jobs[row] for row in members.tolist()])
            for row, answer in zip(members.tolist(), answers, strict=True):
                known[row] = answer
        return known

    def _members(self, jobs: Sequence[Job]) -> list[tuple[Predictor, IntArray]]:
        """Return each fold's predictor with the ascending row numbers in `jobs` that it predicts."""
        fold = np.array([self.fold_of[job] for job in jobs], dtype=np.int64)
        members = [np.flatnonzero(fold == number) for number in range(len(self.folds))]
        return [(self.folds[number], rows) for number, rows in enumerate(members) if len(rows)]


def looking_back(pool: Pool, jobs: pl.DataFrame) -> int:
    """Return how many jobs of the pool were submitted after a job of the same group and role in `jobs` had ended.

    Models are trained on other groups, but history features use all jobs: the predictions of such a job use earlier
    runs of its own group, as they would in the service.
    """
    key = ["group", "role"]
    first = jobs.filter(pl.col("group").is_not_null()).group_by(key).agg(pl.col("end_ts").min().alias("first_end_ts"))
    back = pool.frame.join(first, on=key, how="left").select(pl.col("first_end_ts") <= pl.col("submit_ts"))
    return int(back.to_series().sum())


class PredictorName(StrEnum):
    """Where predicted run times and peak use come from: cross-fitted models, champions, or the recorded values."""

    OUT_OF_FOLD = "out-of-fold"
    CHAMPION = "champion"
    ORACLE = "oracle"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorConfig:
    """Options of studies that draw measured jobs: the trace, and the predictor for its jobs."""

    trace: str | None = trace_option()
    predictor: PredictorName = option(
        PredictorName.OUT_OF_FOLD,
        help="Models trained here on other groups than each job's, the registry's champions (for the jobs submitted "
        "after their cut), or the recorded values.",
    )
    folds: int = option(10, help="Parts that groups are dealt to, for out-of-fold.", minimum=2, maximum=100)
    offline: bool = option(False, help="Use the locally cached champions; do not contact the registry.")
    seed: int = seed_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A pool of jobs to draw from, the predictor for them, and notes on how the predictor was made."""

    pool: Pool
    predictor: Predictor
    notes: tuple[str, ...]


def predicted(config: PredictorConfig, context: Context, cluster: str | None = None) -> Predicted:
    """Read the jobs of the four task types of the mixes, and open or train the predictor for them."""
    lake, trace = context.lake(), context.trace(config.trace)
    jobs, usage = (lake.table(table, trace, cluster).collect() for table in ("jobs", "usage"))
    jobs = jobs.filter(pl.col("task_type").is_in(TYPES))
    match config.predictor:
        case PredictorName.OUT_OF_FOLD:
            pool = job_pool(jobs, usage)
            fitted = crossfit(
                pool, jobs, usage, folds=config.folds, seed=config.seed, nthread=context.threads, talk=context.talk
            )
            note = (
                f"predictions out of fold: {config.folds} times models of other groups than the ones they answer for; "
                "of users they may know. Histories are whole, as when served: "
                f"{looking_back(pool, jobs)} of {len(pool.jobs)} jobs look back on earlier runs of their own group"
            )
            return Predicted(pool=pool, predictor=FoldedPredictor.of(fitted, pool), notes=(note,))
        case PredictorName.CHAMPION:
            champions = context.champions(config.offline)
            until = max(bundle.card.until for bundle in champions.bundles.values())
            later = job_pool(jobs.filter(pl.col("submit_ts") >= until), usage)
            note = f"predictions of the champions, for jobs submitted after their cut ({until:%Y-%m-%d %H:%M} UTC)"
            return Predicted(pool=later, predictor=champions, notes=(note,))
        case PredictorName.ORACLE:
            pool = job_pool(jobs, usage)
            note = "predictor oracle: run times and peak use are those that were recorded"
            return Predicted(pool=pool, predictor=oracle_of(pool), notes=(note,))


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = FoldedPredictor
