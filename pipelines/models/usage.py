"""Train quantile models of CPU, GPU, peak memory and peak GPU memory per instance, for traces that measure use.

References: Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World" (2005); Romano, Patterson, Candes,
"Conformalized Quantile Regression" (2019), here over the jobs that ended last.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import xgboost as xgb

from features.vocabulary import Status
from modelserve.bundle.alike import PARAMETER_SERVER, SIMILAR_ROOM, Alike, alike_key
from pipelines.errors import TrainingError
from pipelines.models import boosting, metrics
from pipelines.models.baselines import rank_quantile
from pipelines.models.boosting import Boosting, Columns, Matrix, Rows
from pipelines.models.examples import (
    Examples,
    IntArray,
    Setting,
    contract_of,
    encoded,
    fingerprint,
    support_of,
)
from pipelines.models.fitted import LEAST_TRAINED
from pipelines.models.importance import REQUEST_COLUMN, Importance, gain_shares, permuted, sample_of
from pipelines.models.judging import MODEL
from pipelines.models.metrics import FloatArray
from pipelines.models.model import TrainedModel
from pipelines.models.splits import Split, leak_key, time_later

BoolArray = npt.NDArray[np.bool_]

LEVEL: Final = 0.95
"""Quantile level of usage models."""

RESIDUALS: Final = 8000
"""Number of residuals from which a calibration offset is computed: those of the jobs that ended last."""
LEAST_RESIDUALS: Final = 30
"""Minimum number of ended jobs below which the offset is 0."""


LEVELS: Final[Mapping[str, float]] = {"cpu_cores": 0.99, "mem_gib": 1.0, "gpus": 0.95, "gpu_mem_gib": 1.0}
"""By target: the quantile of similar jobs' use (the maximum for memory); times `SIMILAR_ROOM` it is their bound."""

RAISE_LEVEL: Final = 0.9
"""Quantile of similar jobs' CPU use to which a request is raised if more than half of them use more than that."""

LEAST_GROUPS: Final = 50
"""Minimum number of measured groups of jobs with the same role and request below which their use is not bounded."""

FEATURES: Final = "usage"
"""Feature set of usage models."""
BOOSTING: Final = Boosting(
    rounds=100, patience=30, learning_rate=0.15, num_parallel_tree=1, max_depth=4, colsample_bytree=0.5
)

MEASURED_COLUMN: Final = {
    "cpu_cores": "used_cpu_cores",
    "mem_gib": "mem_max_gib",
    "gpus": "used_gpus",
    "gpu_mem_gib": "gpu_mem_max_gib",
}
"""Column of the `usage` table that measures each target: mean use for CPU and GPU, peak use for the memories."""

USAGE_EVALUATION_SCHEMA: Final[dict[str, type[pl.DataType]]] = {
    **dict.fromkeys(("model", "trace", "task_type", "split", "target"), pl.String),
    "n": pl.Int64,
    **dict.fromkeys(("level", "coverage", "pinball", "over"), pl.Float64),
}
"""Columns of a usage evaluation, one row per target.

`coverage` is the share of held-out rows whose use is at most the prediction. `pinball` is the pinball loss of log1p use
at the quantile `level`. `over` is the sum of the predictions divided by the sum of the uses: the cost of the coverage.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The fitted quantile model of one target, and its predictions in log1p of the target's unit.

    `offset` is the calibration offset at the cut. `answered` are the calibrated predictions for the rows `test`, each
    with the offset in force at its submission. `log1p` is log1p of the use of every row, NaN if not measured.
    """

    booster: xgb.Booster
    rounds: int
    offset: float
    trained: IntArray
    test: IntArray
    log1p: FloatArray
    answered: FloatArray


def train_usage(setting: Setting, task_type: str) -> TrainedModel:
    """Train and judge the usage model of one task type.

    A job's use is known only when it ends, so jobs that ended after the cut are not trained on. The memory of a job
    that was killed for memory is a lower bound. A target measured in too few jobs gets no booster. The model also
    contains upper bounds of the use of similar jobs (`alike_of`).
    """
    until = setting.cut
    examples = setting.examples(task_type, FEATURES, relative=False)
    split = time_later(examples.jobs, until=until)
    uses = {target: log1p_use(examples.jobs, column) for target, column in MEASURED_COLUMN.items()}
    killed = (examples.jobs["status"] == Status.OOM).fill_null(value=False).to_numpy()
    bounded = {target: killed & (target == "mem_gib") for target in uses}
    measured = np.column_stack([~np.isnan(log1p) for log1p in uses.values()])
    trained = split.train[measured[split.train].any(axis=1)]
    few = TrainingError(
        f"no task type of {setting.trace} has {LEAST_TRAINED} measured jobs that ended before {until.isoformat()}: "
        "usage models need jobs with measured use; move --until later, or bring more jobs"
    )
    if len(trained) < LEAST_TRAINED:
        raise few
    contract = contract_of(examples.features, trained)
    matrix, columns = encoded(examples.features, contract)
    fitted = {
        target: fit_peak(setting, examples, split, log1p, bounded[target], matrix, columns)
        for target, log1p in uses.items()
        if learnable(split, np.where(bounded[target], np.nan, log1p), LEAST_TRAINED)
    }
    if not fitted:
        raise few
    evaluation = _evaluation(fitted, trace=setting.trace, task_type=task_type)
    return TrainedModel(
        name=f"usage.{setting.trace}.{task_type}",
        kind="usage",
        trace=setting.trace,
        task_type=task_type,
        contract=contract,
        boosters={target: f.booster for target, f in fitted.items()},
        quantiles=(LEVEL,),
        offsets={target: f.offset for target, f in fitted.items()},
        history=setting.whole,
        importances=_importances(fitted, matrix, columns, seed=setting.seed),
        important=(),
        support=support_of(examples.jobs[trained]),
        alike=alike_of(examples.jobs[trained], MEASURED_COLUMN, LEAST_GROUPS),
        params={
            **asdict(BOOSTING),
            "features": FEATURES,
            "level": LEVEL,
            "rounds": max(f.rounds for f in fitted.values()),
            "seed": setting.seed,
            "nthread": setting.threads,
        },
        metrics={
            f"{row['target']}_{name}": float(row[name])
            for row in evaluation.to_dicts()
            for name in ("coverage", "pinball", "over")
        },
        evaluation=evaluation,
        until=until,
        rows=len(trained),
        data_fingerprint=fingerprint(examples.jobs[trained]),
    )


def _evaluation(fitted: dict[str, Peak], *, trace: str, task_type: str) -> pl.DataFrame:
    rows = []
    for target, f in fitted.items():
        used = f.log1p[f.test]
        if len(used) == 0:
            continue
        total = float(np.expm1(used).sum())
        rows.append(
            {
                "model": MODEL,
                "trace": trace,
                "task_type": task_type,
                "split": "time",
                "target": target,
                "n": len(used),
                "level": LEVEL,
                "coverage": float(np.mean(used <= f.answered)),
                "pinball": metrics.pinball(used, f.answered, LEVEL),
                "over": float(np.expm1(f.answered).sum()) / total if total > 0 else float("nan"),
            }
        )
    return pl.DataFrame(rows, schema=USAGE_EVALUATION_SCHEMA)


def _importances(fitted: dict[str, Peak], matrix: Matrix, columns: Columns, *, seed: int) -> list[Importance]:
    """Measure permutation importances on rows with all targets measured; the loss is summed over the targets."""
    known = ~np.isnan(np.column_stack([f.log1p for f in fitted.values()])).any(axis=1)
    later = np.intersect1d(np.concatenate([f.test for f in fitted.values()]), np.flatnonzero(known))
    rows = sample_of(later if len(later) else np.flatnonzero(known), seed=seed)
    boosters, log1p = [f.booster for f in fitted.values()], [f.log1p[rows] for f in fitted.values()]
    predicts = [boosting.walked(booster) for booster in boosters]

    def score(shown: Matrix, of: IntArray) -> tuple[FloatArray, FloatArray]:
        answers = [predict(shown)[:, 0] for predict in predicts]
        loss = np.sum([metrics.pinball_rows(y[of], q, LEVEL) for y, q in zip(log1p, answers, strict=True)], axis=0)
        return loss, answers[0] if len(answers) == 1 else np.zeros(len(shown))  # with several targets: no sign

    gains = gain_shares(boosters)
    return permuted(matrix[rows], columns, score, used=gains.keys(), gains=gains, seed=seed)


def alike_of(jobs: pl.DataFrame, columns: Mapping[str, str], least_groups: int) -> tuple[Alike, ...]:
    """Return the upper bounds for every pair of role and request with enough measured groups, most groups first.

    `jobs` are measured jobs (n rows); `columns` names the column that measures each target. Use above the request
    counts as the request: the job was given the excess without requesting it. Only if most of the jobs use more CPU
    than requested is the bound of CPU above the request; it is then a quantile of their use, without a margin.
    """
    kept = jobs.filter(pl.col("role") != PARAMETER_SERVER)
    if kept.is_empty():
        return ()
    requests = kept.select(pl.col(name).cast(pl.Float64) for name in REQUEST_COLUMN.values()).rows()
    keys = [alike_key(role, row) for role, row in zip(kept["role"], requests, strict=True)]
    cells, of_cell = np.unique(["\t".join(key) for key in keys], return_inverse=True)
    groups = np.unique(leak_key(kept).to_numpy(), return_inverse=True)[1]
    uses = {target: _floats(kept, column) for target, column in columns.items()}
    requested = {target: _floats(kept, REQUEST_COLUMN.get(target, "")) for target in columns}
    bounds = []
    for cell in range(len(cells)):
        rows = np.flatnonzero(of_cell == cell)
        count = len(np.unique(groups[rows]))
        if count < least_groups:
            continue
        of_targets = {target: _bound(target, used[rows], requested[target][rows]) for target, used in uses.items()}
        known = {target: value for target, value in of_targets.items() if value is not None}
        request = dict(zip(REQUEST_COLUMN, requests[rows[0]], strict=True))
        bounds.append(Alike(role=kept["role"][int(rows[0])], **request, groups=count, needs=known))
    return tuple(sorted(bounds, key=lambda each: (-each.groups, each.key)))


def _floats(jobs: pl.DataFrame, column: str) -> FloatArray:
    """Return a column (n,), NaN where null or absent."""
    if column not in jobs.columns:
        return np.full(jobs.height, np.nan)
    return np.asarray(jobs[column].cast(pl.Float64).fill_null(float("nan")).to_numpy(), dtype=np.float64)


def _bound(target: str, used: FloatArray, requested: FloatArray) -> float | None:
    """Return the bound of one target for jobs of one role and request (n,), None if none of them was measured."""
    measured = ~np.isnan(used)
    if not measured.any():
        return None
    used, requested = used[measured], requested[measured]
    if target == "cpu_cores" and np.mean(used > requested) > 0.5:
        return conformal_quantile(used, RAISE_LEVEL)
    bound = conformal_quantile(np.fmin(used, requested), LEVELS[target]) * SIMILAR_ROOM[target]
    return float(np.fmin(bound, requested.min())) if target == "cpu_cores" else bound


def conformal_quantile(values: FloatArray, level: float) -> float:
    """Return the ceil((n + 1)·level)-th smallest of n values, at most the largest.

    If rows are exchangeable, at least a share `level` of new values is at most this.
    """
    rank = min(int(np.ceil((len(values) + 1) * level)), len(values))
    return float(np.partition(values, rank - 1)[rank - 1])


def log1p_use(jobs: pl.DataFrame, column: str) -> FloatArray:
    """Return log1p of a column of use (n,), NaN where it was not measured."""
    used: FloatArray = np.log1p(_floats(jobs, column))
    return used


def learnable(split: Split, log1p: FloatArray, least: int) -> bool:
    """Return whether at least `least` training rows are measured, with some for fitting and some for early stopping."""
    known = [int(np.count_nonzero(~np.isnan(log1p[rows]))) for rows in (split.fit, split.stop)]
    return sum(known) >= least and min(known) > 0


def fit_peak(
    setting: Setting,
    examples: Examples,
    split: Split,
    log1p: FloatArray,
    bounded: BoolArray,
    matrix: Matrix,
    columns: Columns,
) -> Peak:
    """Fit the quantile of one target: early stopping on the latest measured rows, refit on all, then calibrate.

    The use of `bounded` rows (n,) is only a lower bound. Such a row takes part in the refit if its bound is above the
    prediction of the first fit, and in nothing else. So bounds can raise predictions, but never lower them.
    """
    known = ~np.isnan(log1p) & ~bounded
    fit_rows, stop_rows, test = (rows[known[rows]] for rows in (split.fit, split.stop, split.test))
    trained = np.concatenate([fit_rows, stop_rows])
    least = min(BOOSTING.min_child_weight, max(1.0, len(trained) / 50))
    grown = replace(BOOSTING, min_child_weight=least)

    def fit(of: IntArray, watched: IntArray | None, trees: Boosting) -> xgb.Booster:
        stop = None if watched is None else Rows(matrix=matrix[watched], target=log1p[watched])
        rows = Rows(matrix=matrix[of], target=log1p[of])
        return boosting.fit(
            rows,
            columns,
            quantiles=(LEVEL,),
            stop=stop,
            boosting=trees,
            seed=setting.seed,
            nthread=setting.threads,
        )

    first = fit(fit_rows, stop_rows, grown)
    rounds = boosting.rounds_of(first)
    if bounded.any():
        kept = split.train[bounded[split.train] & ~np.isnan(log1p[split.train])]
        trained = np.concatenate([trained, kept[log1p[kept] > boosting.predict(first, matrix[kept])[:, 0]]])
    final = fit(trained, None, replace(grown, rounds=rounds))
    later = np.setdiff1d(np.flatnonzero(known), trained)
    raw = np.full(len(matrix), np.nan)
    raw[stop_rows] = boosting.predict(first, matrix[stop_rows])[:, 0]
    raw[later] = boosting.predict(final, matrix[later])[:, 0]

    def calibrated(rows: IntArray) -> tuple[FloatArray, float]:
        return calibration(examples.submit_us[rows], examples.end_us[rows], log1p[rows] - raw[rows], LEVEL)

    answered = np.flatnonzero(~np.isnan(raw))
    ended = answered[examples.end_us[answered] < setting.cut.timestamp() * 1e6]
    offsets = calibrated(answered)[0][np.searchsorted(answered, test)]
    return Peak(
        booster=final,
        rounds=rounds,
        offset=calibrated(ended)[1],
        trained=trained,
        test=test,
        log1p=log1p,
        answered=np.maximum(raw[test] + offsets, 0.0),
    )


def calibration(submit_us: IntArray, end_us: IntArray, residuals: FloatArray, level: float) -> tuple[FloatArray, float]:
    """Return the calibration offset in force at each submission (n,), and the last offset, in the target's log units.

    The offset is added to a predicted quantile: it is the quantile `level` of the last `RESIDUALS` residuals y - q of
    ended jobs. `residuals` (n,) come from a model that was not trained on the row; those that are NaN do not count. At
    equal times submissions come first, so no job influences its own offset.
    """
    window: deque[float] = deque()
    ranked: list[float] = []
    offsets, now = np.zeros(len(residuals)), 0.0
    is_end = np.repeat([False, True], len(residuals))
    # Simultaneous ends are ordered by residual, not by row number, so the order of the rows does not matter.
    order = np.lexsort((np.tile(residuals, 2), is_end, np.concatenate([submit_us, end_us])))
    for event in order.tolist():
        if event < len(residuals):
            offsets[event] = now
        elif not np.isnan(residual := float(residuals[event - len(residuals)])):
            window.append(residual)
            insort(ranked, residual)
            if len(window) > RESIDUALS:
                ranked.pop(bisect_left(ranked, window.popleft()))
            now = rank_quantile(ranked, level) if len(ranked) >= LEAST_RESIDUALS else 0.0
    return offsets, now
