"""Advice out of fold: every job of a pool is advised by models that saw no job of its group.

Trains and recommends; nothing is simulated, and no bundle is written.
Called by `pipelines.cli` and `pipelines.studies.shrinking`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from features.history import History
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.predictor import InProcessPredictor
from pipelines.errors import TrainingError
from pipelines.models.model import TrainedModel, card_of
from pipelines.models.peaks import UsageRecipe
from pipelines.models.runtime import train_runtime
from pipelines.models.splits import IntArray, group_folds
from pipelines.models.usage import train_usage
from pipelines.simulation.job_pool import Pool
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import Job, Recommendation

Known = Literal["own", "cold"]
"""What a held-out job may look back on: `own`, whatever had ended before its submission, runs of its own group too, as
a serving system knows them; `cold`, runs of the training groups only."""

Talk = Callable[[str], None]

FOLDS: Final = 5

_KEYS: Final = ("job_id", "role")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """The models of one fold: run time and use, and the histories that they can be asked over."""

    models: tuple[TrainedModel, ...]
    trained: History
    until: datetime

    def predictor(self, history: History) -> InProcessPredictor:
        """Return the predictor over a history."""
        return InProcessPredictor(bundles={model.name: _bundle(model, history, self.until) for model in self.models})


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossfit:
    """Models by fold, and which fold holds each job of the pool out (n,)."""

    folds: tuple[Fold, ...]
    fold_of: IntArray
    whole: History

    def advise(self, pool: Pool, policy: ShrinkPolicy, *, history: Known = "own") -> list[Recommendation]:
        """Recommend for every job of the pool (n), each by the models of the fold that holds it out."""
        policy = replace(policy, device_mem_gib=pool.device_mem_gib, assumed_device_mem_gib=pool.assumed_device_mem_gib)
        answers: dict[int, Recommendation] = {}
        for number, fold in enumerate(self.folds):
            rows = np.flatnonzero(self.fold_of == number).tolist()
            predictor = fold.predictor(self.whole if history == "own" else fold.trained)
            found = shrink([pool.jobs[row].job for row in rows], predictor, policy)
            answers.update(zip(rows, found, strict=True))
        return [answers[row] for row in range(len(pool.jobs))]


def crossfit(
    pool: Pool,
    jobs: pl.DataFrame,
    usage: pl.DataFrame,
    *,
    folds: int = FOLDS,
    seed: int = 0,
    usage_recipe: UsageRecipe | None = None,
    nthread: int = 1,
    talk: Talk = lambda _: None,
) -> Crossfit:
    """Train run-time and usage models as `taut train` does, once for each fold without the groups it holds out.

    Parameters
    ----------
    pool
        The jobs to be advised, of the same trace.
    jobs, usage
        Canonical tables of one trace; every role is learnt from.
    folds, seed
        Groups are dealt to the folds whole.

    Raises
    ------
    TrainingError
        There are fewer groups than folds, or too few jobs to train any run-time model.
    """
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
        models = train_runtime(rest, measured, forest=False, **common)
        models += train_usage(rest, measured, recipe=usage_recipe, **common)
        trained.append(Fold(models=tuple(models), trained=History.of(rest, measured), until=until))
    return Crossfit(folds=tuple(trained), fold_of=fold_of, whole=History.of(jobs, usage))


def handing_out(pool: Pool, answers: Sequence[Recommendation]) -> Callable[[Sequence[Job]], list[Recommendation]]:
    """Return the scale that hands every job of the pool its recommendation."""
    by_job = {entry.job: answer for entry, answer in zip(pool.jobs, answers, strict=True)}
    return lambda jobs: [by_job[job] for job in jobs]


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
    )
