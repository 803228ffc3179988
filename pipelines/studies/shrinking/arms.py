"""Ways to size the requests of jobs at submission, and models that did not see the groups that they predict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from features.history import History
from modelserve.bundle.alike import PARAMETER_SERVER
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.predictor import InProcessPredictor, Kind
from modelserve.bundle.served import ServedModel
from modelserve.bundle.trees.forest import read_forest
from pipelines.engine.engine import Local
from pipelines.models.examples import Setting
from pipelines.models.model import TrainedModel, card_of
from pipelines.models.retrain import models_of, train_units, units_of
from pipelines.models.splits import group_folds
from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, UNGUARDED, at_request, oracle_advice
from pipelines.simulation.job_pool import Pool
from scheduler_core.shrink import PAPER_ALPHA0, ShrinkPolicy, shrink
from scheduler_core.types import FloatArray, Job, Predictor, Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The inputs of all arms: a pool of jobs, a predictor, and the parameters of Algorithm 1."""

    pool: Pool
    predictor: Predictor
    policy: ShrinkPolicy

    @property
    def jobs(self) -> list[Job]:
        """Return the jobs of the pool, in its order."""
        return [entry.job for entry in self.pool.jobs]


Size = Callable[[Sizing], Sequence[Recommendation]]
"""An arm: returns the recommendation of every job."""


def sizing(pool: Pool, predictor: Predictor, policy: ShrinkPolicy) -> Sizing:
    """Return the inputs of the arms, with the memory sizes of the pool's GPU types filled into the policy."""
    known = replace(policy, device_mem_gib=pool.device_mem_gib, assumed_device_mem_gib=pool.assumed_device_mem_gib)
    return Sizing(pool=pool, predictor=predictor, policy=known)


def advice_of(inputs: Sizing, arms: Mapping[str, Size]) -> dict[str, list[Recommendation]]:
    """Return the recommendations of every arm, and as the first arm `requested`, in which requests are unchanged.

    In all arms, the oracle's included, a job's run time is predicted for its original request. So queue orders see
    the same run times in every arm, and arms differ only in the sizes of requests.
    """
    run_s = run_times(inputs, requests_of(inputs.jobs)).tolist()
    given = {name: list(size(inputs)) for name, size in arms.items()}
    unchanged = [at_request(answer) for answer in next(iter(given.values()))]
    return {
        name: [replace(answer, run_time_p50_s=known) for answer, known in zip(answers, run_s, strict=True)]
        for name, answers in {REQUESTED: unchanged, **given}.items()
    }


def run_times(inputs: Sizing, requests: FloatArray) -> FloatArray:
    """Return the predicted p50 run time of every job (n,) if it had these requests (n, 3)."""
    times: FloatArray = inputs.predictor.run_times(inputs.jobs, np.arange(len(requests)), requests).p50
    return times


def requests_of(jobs: Sequence[Job]) -> FloatArray:
    """Return the jobs' requests as an array (n, 3) of CPU cores, memory in GiB, and GPUs."""
    return np.array([job.request.row() for job in jobs], dtype=np.float64)


def guarded(inputs: Sizing) -> list[Recommendation]:
    """Shrink by Algorithm 1 with floors: importance, the run-time threshold, and floors from predicted peak use."""
    return shrink(inputs.jobs, inputs.predictor, replace(inputs.policy, guard="usage"))


def unguarded(inputs: Sizing) -> list[Recommendation]:
    """Shrink by Algorithm 1 of Yang, Hong and Tang: importance and the run-time threshold, but no floors."""
    return shrink(inputs.jobs, inputs.predictor, replace(inputs.policy, guard="none", alpha0=PAPER_ALPHA0))


def oracle(inputs: Sizing) -> list[Recommendation]:
    """Set every request to what the job used in its recorded run, and GPUs to what slows it by less than theta."""
    return oracle_advice(inputs.pool)


ARMS: Final[Mapping[str, Size]] = {SHRUNK: guarded, UNGUARDED: unguarded, ORACLE: oracle}
"""Arms by name, in the order in which tables list them after `requested`."""


class FoldedPredictor(InProcessPredictor):
    """A predictor that uses for each job the models of the fold that holds the job out."""

    def __init__(self, *, folds: Sequence[InProcessPredictor], fold_of: Mapping[Job, int]) -> None:
        super().__init__(bundles={})
        self.folds, self.fold_of = folds, fold_of

    def choice(self, kind: Kind, job: Job) -> tuple[ServedModel | None, str | None]:
        """Return the model of a job that was not trained on its group."""
        return self.folds[self.fold_of[job]].choice(kind, job)


_KEYS: Final = ("job_id", "role")


def crossfit(
    pool: Pool,
    jobs: pl.DataFrame,
    usage: pl.DataFrame,
    *,
    folds: int,
    seed: int = 0,
    nthread: int = 1,
    talk: Callable[[str], None] = lambda _: None,
) -> FoldedPredictor:
    """Train run-time and usage models as `taut train` does, once per fold, without the groups that the fold holds out.

    Each job of the pool is predicted by models that were not trained on its group. As in the service, history features
    use all jobs that ended before a job's submission, its own group included. Parameter servers, which no pool holds,
    are not trained on: their small requests would make the run time of other roles appear to depend on the request.
    """
    history, jobs = History.of(jobs, usage), jobs.filter(pl.col("role") != PARAMETER_SERVER)
    until = max(jobs["end_ts"].drop_nulls().to_list()) + timedelta(seconds=1)
    held_out: dict[tuple[str, str], int] = {}
    predictors = []
    for number, split in enumerate(group_folds(jobs, folds=folds, seed=seed)):
        talk(f"fold {number + 1} of {folds}")
        held_out |= dict.fromkeys(jobs[split.test].select(_KEYS).rows(), number)
        rest = jobs[split.train]
        measured = usage.join(rest, on=["trace", "cluster", *_KEYS], how="semi")
        trace = str(rest["trace"][0])
        setting = Setting(jobs=rest, usage=measured, trace=trace, until=until, seed=seed, threads=nthread)
        units = units_of(setting)
        models = models_of(units, train_units(Local(), setting, units), talk)
        predictors.append(InProcessPredictor(bundles={each.name: _bundle(each, history, until) for each in models}))
    fold_of = {entry.job: held_out[entry.job.job_id, entry.job.role] for entry in pool.jobs}
    return FoldedPredictor(folds=predictors, fold_of=fold_of)


def _bundle(model: TrainedModel, history: History, created: datetime) -> Bundle:
    return Bundle(
        card=card_of(model, created=created),
        contract=model.contract,
        boosters=model.boosters,
        forests={name: read_forest(bytes(each.save_raw("ubj")), name=name) for name, each in model.boosters.items()},
        history=history,
        known_until=model.until,
        importances=(),
        path=Path(),
        digest="",
        history_digest="",
        quantile_forest=None if model.forest is None else model.forest.forest,
    )
