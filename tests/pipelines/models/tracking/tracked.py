"""Small models as training leaves them, to be tracked."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import xgboost as xgb

from features.build import build
from features.contract import FeatureContract
from features.history import History
from modelserve.bundle.card import USAGE_TARGETS
from pipelines.models.model import TrainedModel

CUT = datetime(2020, 7, 4, tzinfo=UTC)


def jobs_of(count: int = 150) -> pl.DataFrame:
    rng = np.random.default_rng(2)
    user = rng.integers(0, 4, count)
    run_s = np.exp(rng.normal(4 + user, 0.3, count)).round()
    submit = [datetime(2020, 7, 1, tzinfo=UTC) + timedelta(minutes=20 * i) for i in range(count)]
    said = {
        "trace": "pai",
        "cluster": "pai",
        "job_id": [f"j{i}" for i in range(count)],
        "role": "worker",
        "user": [f"u{i}" for i in user],
        "group": [f"g{i}" for i in user],
        "workload": "ctr",
        "task_type": "ctr",
        "gpu_type": "T4",
        "submit_ts": submit,
        "start_ts": submit,
        "end_ts": [at + timedelta(seconds=float(s)) for at, s in zip(submit, run_s, strict=True)],
        "run_s": run_s,
        "status": "completed",
        "instances": 1,
        "req_cpu_cores": rng.choice([2.0, 6.0], count),
        "req_mem_gib": 29.3,
        "req_gpus": rng.choice([0.25, 0.5], count),
    }
    moments = dict.fromkeys(("submit_ts", "start_ts", "end_ts"), pl.Datetime("us", "UTC"))
    return pl.DataFrame(said, schema_overrides=moments).with_columns(vc=pl.lit(None, dtype=pl.String))


def evaluation_of(pinball: float, *, n: int = 400) -> pl.DataFrame:
    """Return an evaluation on `n` rows in which the best simple answer, `same_gpus`, has a loss of 0.4."""
    rows = []
    for name, loss in (("combined", pinball), ("same_gpus", 0.4), ("user_median", 0.5)):
        row = {"model": name, "split": "time", "n": n, "days": 20, "pinball": loss}
        for of, other in (("lead", pinball), ("excess", 0.4)):
            row |= {of: loss - other, f"{of}_lo": loss - other - 0.05, f"{of}_hi": loss - other + 0.05}
        rows.append(row)
    return pl.DataFrame(rows)


def model_of(
    task_type: str, *, kind: str = "runtime", pinball: float = 0.3, rounds: int = 5, n: int = 400
) -> TrainedModel:
    jobs = jobs_of()
    history = History.of(jobs)
    frame = build(jobs, history, "request")
    contract = FeatureContract.fit(frame)
    rows = xgb.DMatrix(contract.encode(frame), np.log(np.maximum(jobs["run_s"].to_numpy(), 1.0)), nthread=1)
    levels = (0.5, 0.9) if kind == "runtime" else (0.95,)
    params = {"objective": "reg:quantileerror", "quantile_alpha": list(levels), "nthread": 1, "max_depth": 3}
    booster = xgb.train(params, rows, rounds)
    coverage = {"model": "xgboost", "split": "time", "n": 90, "level": 0.95, "coverage": 0.96}
    return TrainedModel(
        name=f"{kind}.pai.{task_type}",
        kind=kind,
        trace="pai",
        task_type=task_type,
        contract=contract,
        boosters={"run_s": booster} if kind == "runtime" else dict.fromkeys(USAGE_TARGETS, booster),
        quantiles=levels,
        offsets={"p50": 0.0, "p90": 0.1},
        history=history,
        importances=[{"feature": "req_gpus", "mean": 0.2, "std": 0.1, "repeats": 5, "sign": None}],
        important=("gpus",),
        support={"gpus": (0.25, 0.5)},
        params={"max_depth": 3, "seed": 0},
        metrics={"pinball": 0.3, "wmape": float("nan")},
        evaluation=evaluation_of(pinball, n=n)
        if kind == "runtime"
        else pl.DataFrame([{**coverage, "target": target} for target in USAGE_TARGETS]),
        until=CUT,
        rows=150,
        data_fingerprint="f" * 64,
    )
