"""Compile the kernels of a service worker into the folder NUMBA_CACHE_DIR, so that containers start without compiling.

The Containerfile runs this while the image is built. It loads a model bundle with a single tree, made from invented
jobs, as a worker loads a real one: this compiles every function for the argument types of real models.
"""

import hashlib
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from features.build import build
from features.contract import FeatureContract
from features.history import History
from features.tables import Jobs
from modelserve.bundle.boosters import lean_xgboost
from modelserve.bundle.bundle import write_bundle
from modelserve.bundle.card import Card
from modelserve.bundle.champions import Pointer, write_pointer
from modelserve.loading.models import ModelSet
from scheduler_core.decisions import load_rules

NAME = "runtime.none.other"
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
COUNT = 8


def made_up_jobs() -> pl.DataFrame:
    """Return a few invented jobs, submitted one hour apart; fields that are not needed are null."""
    submitted = [BEGIN + timedelta(hours=number) for number in range(COUNT)]
    said = {
        "trace": "none", "cluster": "none", "role": "whole", "user": "u", "group": "g", "task_type": "other",
        "run_s": 60.0, "run_s_censored": False, "queue_s": 0.0, "status": "completed", "instances": 1,
        "req_cpu_cores": 1.0, "req_mem_gib": 1.0, "req_gpus": 1.0,
    }  # fmt: skip
    moments = {"job_id": [f"j{number}" for number in range(COUNT)], "submit_ts": submitted, "start_ts": submitted}
    ended = {"end_ts": [at + timedelta(minutes=1) for at in submitted]}
    rows = pl.DataFrame({**moments, **ended}).with_columns(**{name: pl.lit(value) for name, value in said.items()})
    schema = Jobs.create_empty().schema
    absent = [pl.lit(None).alias(name) for name in schema if name not in rows.columns]
    return rows.with_columns(absent).select(schema.names()).cast(schema)


def write_one_tree(folder: Path) -> str:
    """Write a model bundle with a single tree, and return its digest."""
    jobs = made_up_jobs()
    history = History.of(jobs)
    frame = build(jobs, history, "submit")
    contract = FeatureContract.fit(frame)
    xgb = lean_xgboost()
    params = {"objective": "reg:quantileerror", "quantile_alpha": [0.5, 0.9], "max_depth": 1, "nthread": 1}
    booster = xgb.train(params, xgb.DMatrix(contract.encode(frame), np.arange(float(COUNT)), nthread=1), 1)
    card = Card.model_validate(
        {
            "name": NAME, "kind": "runtime", "trace": "none", "task_type": "other", "targets": ["run_s"],
            "quantiles": [0.5, 0.9], "relative": False, "offsets": {"p50": 0.0, "p90": 0.0}, "important": [],
            "support": {}, "params": {}, "metrics": {}, "until": BEGIN, "created": BEGIN, "rows": COUNT,
            "data_fingerprint": "none", "contract_fingerprint": contract.fingerprint,
        }
    )  # fmt: skip
    write_bundle(folder, card=card, contract=contract, boosters={"run_s": booster}, history=history, importances=[])
    return hashlib.sha256((folder / "checksums.json").read_bytes()).hexdigest()


def main() -> None:
    """Load a one-tree bundle and the rules as a worker would, which compiles the kernels."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / NAME).mkdir()
        digest = write_one_tree(folder / NAME / "1")
        write_pointer(folder, Pointer(name=NAME, version="1", alias="champion", run_id=None, digest=digest))
        models = ModelSet(folder, past=lambda _trace: (), clock=time.time)
        [result] = models.refresh()
        if result.result != "loaded":
            raise SystemExit(f"the bundle of one tree did not load: {result.detail}")
    load_rules()


if __name__ == "__main__":
    main()
