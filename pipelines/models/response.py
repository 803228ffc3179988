"""The response model of a task type: how its log run time depends on the five resources of Yang, Hong and Tang.

One XGBoost regressor of CPU cores, memory and GPUs as requested, and of network traffic and GPU memory, which no trace
requests, as similar jobs used them. Algorithm 1 uses it if it is trusted; the run-time model makes the forecasts.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import xgboost as xgb

from features.build import build
from features.contract import RESPONSE_CONTRACT
from features.history import History
from modelserve.bundle.card import ResourceImportance, ResponseState
from modelserve.bundle.served import five_resources
from pipelines.errors import TrainingError
from pipelines.models import boosting
from pipelines.models.boosting import Matrix
from pipelines.models.examples import Examples, IntArray, sized_rows
from pipelines.models.fitted import LEAST_TRAINED
from pipelines.models.importance import (
    REPEATS,
    REQUEST_COLUMN,
    Importance,
    important_resources,
    roles_of,
    spreads_within,
)
from pipelines.models.judging import day_draws, ratio_interval
from pipelines.models.metrics import FloatArray
from pipelines.models.splits import Split, group_folds, leak_key

FOLDS: Final = 5
MOST_ROWS: Final = 20_000
"""Maximum number of jobs: the latest submitted."""

USED: Final = ("net_bytes_per_s", "gpu_mem_gib")
"""The resources that no trace requests."""

PARAMETERS: Final = {"objective": "reg:squarederror", "tree_method": "hist", "max_depth": 4, "learning_rate": 0.1}
ROUNDS: Final = 300
PATIENCE: Final = 20
"""Boosting stops after this number of rounds without improvement on the early-stopping groups."""
LEAST_LEAF_SHARE: Final = 0.02


Response = tuple[ResponseState, xgb.Booster | None, tuple[str, ...]]
"""The findings on a response model; if it is trusted, also the model and the resources that are important to it."""


def response_of(examples: Examples, history: History, trained: IntArray, *, seed: int, nthread: int) -> Response:
    """Train and judge the response model on the jobs that a run-time model was trained on (row numbers `trained`).

    Each job is forecast by a model that was trained on other groups. The model is trusted if it leads over a constant
    with its whole interval over resampled groups. `history` is that of the whole trace.
    """
    rows = sized_rows(examples.jobs, np.sort(trained))[-MOST_ROWS:]
    jobs, log_s = examples.jobs[rows], examples.log_y[rows]
    if len(rows) < LEAST_TRAINED:
        return _unknown(f"{len(rows)} ended jobs, expected {LEAST_TRAINED}", rows)
    try:
        folds = group_folds(jobs, folds=FOLDS, seed=seed)
    except TrainingError:
        return _unknown(f"fewer than {FOLDS} groups to judge by", rows)
    matrix = five_resources(RESPONSE_CONTRACT.encode(build(jobs, history, RESPONSE_CONTRACT.names)))
    models = [_fit(matrix, log_s, split, seed=seed, nthread=nthread) for split in folds]

    def score(shown: Matrix, _: IntArray) -> tuple[FloatArray, FloatArray]:
        forecast = np.empty(len(shown))
        for split, model in zip(folds, models, strict=True):
            forecast[split.test] = boosting.predict(model, shown[split.test])[:, 0]
        return (log_s - forecast) ** 2, forecast

    def with_amounts(column: int, amounts: npt.NDArray[np.floating]) -> Matrix:
        shown = matrix.copy()
        shown[:, column] = amounts
        return shown

    constant = np.empty(len(rows))
    for split in folds:
        constant[split.test] = (log_s[split.test] - log_s[split.train].mean()) ** 2
    groups = np.unique(leak_key(jobs).to_numpy(), return_inverse=True)[1].astype(np.int64)
    draws = day_draws(int(groups.max()) + 1, seed=seed)
    lead = ratio_interval(groups, constant - score(matrix, rows)[0], constant, draws)
    roles, amounts = roles_of(jobs), dict(zip((*REQUEST_COLUMN, *USED), matrix.T, strict=True))
    spreads = spreads_within(roles, amounts, with_amounts, score, np.random.default_rng(seed))
    state = ResponseState(
        trusted=lead.lo > 0.0,
        why=f"removes {lead.value:.1%} [{lead.lo:.1%}, {lead.hi:.1%}] of a constant's error on groups not trained on",
        rows=len(rows),
        lead=lead.value,
        lead_lo=lead.lo,
        lead_hi=lead.hi,
        importances=tuple(
            ResourceImportance.model_validate(
                {"resource": name, "repeats": REPEATS, "mean": each.mean, "std": each.std, "sign": each.sign}
                | {"note": _note(column, roles)}
            )
            for (name, each), column in zip(spreads.items(), matrix.T, strict=True)
        ),
    )
    if not state.trusted:
        return state, None, ()
    rounds = round(float(np.median([boosting.rounds_of(model) for model in models])))
    booster = _trained(matrix, log_s, np.arange(len(rows)), rounds, seed=seed, nthread=nthread)
    others: list[Importance] = [{"feature": name, "mean": spreads[name].mean} for name in USED]
    requests = {name: spreads[name] for name in REQUEST_COLUMN}
    return state, booster, important_resources(requests, others, signed=True)


def _unknown(why: str, rows: IntArray) -> Response:
    return ResponseState(trusted=False, why=why, rows=len(rows)), None, ()


def _note(column: Matrix, roles: Sequence[IntArray]) -> str | None:
    """Return why a resource (n,) has no importance (shuffling does not change it); None if it may have one."""
    amounts = [np.unique(column[members][~np.isnan(column[members])]) for members in roles]
    if any(len(each) > 1 for each in amounts):
        return None
    every = np.unique(np.concatenate(amounts))
    if not len(every):
        return "unknown of all jobs"
    same = f"all jobs have {every[0]:g}" if len(every) == 1 else "all jobs of a role have the same amount"
    return f"{same}: run some with another amount to know"


def _fit(matrix: Matrix, log_s: FloatArray, split: Split, *, seed: int, nthread: int) -> xgb.Booster:
    """Fit twice: without the early-stopping groups to find the number of rounds, then on all training rows."""
    first = _trained(matrix, log_s, split.fit, ROUNDS, seed=seed, nthread=nthread, stop=split.stop)
    return _trained(matrix, log_s, split.train, first.best_iteration + 1, seed=seed, nthread=nthread)


def _trained(
    matrix: Matrix,
    log_s: FloatArray,
    rows: IntArray,
    rounds: int,
    *,
    seed: int,
    nthread: int,
    stop: IntArray | None = None,
) -> xgb.Booster:
    parameters = {
        **PARAMETERS,
        "base_score": float(log_s[rows].mean()),
        "min_child_weight": max(1.0, LEAST_LEAF_SHARE * len(rows)),
        "seed": seed,
        "nthread": nthread,
        "verbosity": 0,
    }
    data = [
        xgb.DMatrix(matrix[of], label=log_s[of].astype(np.float32), nthread=nthread)
        for of in (rows, stop)
        if of is not None
    ]
    stopped = {} if stop is None else {"evals": [(data[1], "stop")], "early_stopping_rounds": PATIENCE}
    return xgb.train(parameters, data[0], rounds, verbose_eval=False, **stopped)
