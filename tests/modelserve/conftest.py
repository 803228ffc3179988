"""A small cluster's jobs, and bundles trained on them: enough to answer, quick to make."""

import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import xgboost as xgb

from features.build import build
from features.contract import RESPONSE_CONTRACT, FeatureContract
from features.history import History
from features.references import build_referenced
from modelserve.bundle.bundle import Bundle, read_bundle, write_bundle
from modelserve.bundle.card import COMBINABLE, USAGE_TARGETS, Card, Importance
from modelserve.bundle.combination import Combination
from modelserve.bundle.served import five_resources
from pipelines.models.boosting import fit_forest
from tests.modelserve.mirrored import NAME, USAGE, Folder


@pytest.fixture(autouse=True, scope="session")
def no_access_log() -> Iterator[None]:
    """Keep the lines of finished calls off the screen: a thread writes them later, between the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("modelserve.api.gate.sys", SimpleNamespace(stderr=io.StringIO()))
        yield


START = datetime(2020, 7, 1, tzinfo=UTC)
CREATED = datetime(2020, 8, 1, tzinfo=UTC)


def make_jobs(count: int = 300, seed: int = 1) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 6, count)
    cpu = rng.choice([2.0, 4.0, 6.0, 8.0], count)
    run_s = np.round(np.exp(rng.normal(5 + user / 3, 0.4, count)) * (1 + cpu / 8), 1)
    submit = [START + timedelta(minutes=20 * i) for i in range(count)]
    return pl.DataFrame(
        {
            "trace": "pai",
            "cluster": "pai",
            "job_id": [f"j{i}" for i in range(count)],
            "role": "worker",
            "user": [f"u{i}" for i in user],
            "vc": None,
            "group": [f"g{i // 2}" for i in user],
            "workload": "ctr",
            "task_type": "ctr",
            "gpu_type": rng.choice(["T4", "V100"], count),
            "submit_ts": submit,
            "start_ts": submit,
            "end_ts": [at + timedelta(seconds=float(s)) for at, s in zip(submit, run_s, strict=True)],
            "queue_s": 0.0,
            "run_s": run_s,
            "run_s_censored": False,
            "status": "completed",
            "instances": rng.integers(1, 4, count),
            "req_cpu_cores": cpu,
            "req_mem_gib": rng.choice([16.0, 29.3], count),
            "req_gpus": rng.choice([0.25, 0.5, 1.0], count),
        },
        schema_overrides={
            "vc": pl.String,
            "instances": pl.Int32,
            "submit_ts": pl.Datetime("us", "UTC"),
            "start_ts": pl.Datetime("us", "UTC"),
            "end_ts": pl.Datetime("us", "UTC"),
        },
    )


def make_usage(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.select(
        "trace",
        "cluster",
        "job_id",
        "role",
        used_cpu_cores=pl.col("req_cpu_cores") * 0.3,
        used_gpus=pl.col("req_gpus") * 0.2,
        mem_max_gib=pl.col("req_mem_gib") * 0.4,
        gpu_mem_max_gib=pl.lit(5.0),
        net_read_bytes_per_s=pl.col("req_mem_gib") * 10.0,
    )


TARGET_COLUMN = {
    "cpu_cores": "used_cpu_cores",
    "mem_gib": "mem_max_gib",
    "gpus": "used_gpus",
    "gpu_mem_gib": "gpu_mem_max_gib",
}


def make_boosters(kind: str, matrix: np.ndarray, jobs: pl.DataFrame, usage: pl.DataFrame) -> dict[str, xgb.Booster]:
    params = {"tree_method": "hist", "max_depth": 3, "nthread": 1, "seed": 3, "objective": "reg:quantileerror"}
    if kind == "runtime":
        rows = xgb.DMatrix(matrix, np.log(jobs["run_s"].to_numpy()), nthread=1)
        return {"run_s": xgb.train({**params, "quantile_alpha": [0.5, 0.9]}, rows, 12)}
    made = {}
    for target in USAGE_TARGETS:
        rows = xgb.DMatrix(matrix, np.log1p(usage[TARGET_COLUMN[target]].to_numpy()), nthread=1)
        made[target] = xgb.train({**params, "quantile_alpha": [0.95]}, rows, 12)
    return made


def make_card(kind: str, contract: FeatureContract, **changes: object) -> Card:
    said = {
        "name": f"{kind}.pai.ctr",
        "kind": kind,
        "trace": "pai",
        "task_type": "ctr",
        "targets": ["run_s"] if kind == "runtime" else list(USAGE_TARGETS),
        "quantiles": [0.5, 0.9] if kind == "runtime" else [0.95],
        "relative": False,
        "offsets": {"p50": 0.0, "p90": 0.2} if kind == "runtime" else dict.fromkeys(USAGE_TARGETS, 0.1),
        "important": [],
        "support": {"cpu_cores": [2.0, 8.0], "mem_gib": [16.0, 29.3], "gpus": [0.25, 1.0]},
        "params": {"max_depth": 3},
        "metrics": {"pinball": 0.2, "lead": float("nan")},
        "until": CREATED,
        "created": CREATED,
        "rows": 300,
        "data_fingerprint": "a1b2",
        "contract_fingerprint": contract.fingerprint,
    }
    if kind == "runtime":
        said["resource_importances"] = [
            {"resource": "cpu_cores", "mean": 0.02, "std": 0.01, "repeats": 5, "sign": 0.1},
            {"resource": "mem_gib", "mean": 0.0, "std": 0.0, "repeats": 5, "sign": None},
            {"resource": "gpus", "mean": 0.004, "std": 0.003, "repeats": 5, "sign": -0.4},
        ]
    return Card.model_validate({**said, **changes})


def write_small_bundle(folder: Path, kind: str = "runtime", **card: object) -> str:
    jobs = make_jobs()
    usage = make_usage(jobs)
    history = History.of(jobs, usage)
    frame = build(jobs, history, "submit" if kind == "runtime" else "usage")
    contract = FeatureContract.fit(frame)
    said = make_card(kind, contract, **card)
    return write_bundle(
        folder,
        card=said,
        contract=contract,
        boosters=make_boosters(kind, contract.encode(frame), jobs, usage)
        | ({"response": make_response(jobs, history)} if "response" in said.boosters else {}),
        history=history,
        importances=[Importance(feature="req_gpus", mean=0.3, std=0.1, repeats=5, sign=-0.5)],
    )


def make_response(jobs: pl.DataFrame, history: History) -> xgb.Booster:
    matrix = five_resources(RESPONSE_CONTRACT.encode(build(jobs, history, RESPONSE_CONTRACT.names)))
    rows = xgb.DMatrix(matrix, 8.0 - jobs["req_gpus"].to_numpy() + 0.1 * np.nan_to_num(matrix[:, 3]), nthread=1)
    return xgb.train({"tree_method": "hist", "max_depth": 3, "nthread": 1, "seed": 3}, rows, 12)


def write_combined_bundle(folder: Path, **card: object) -> str:
    """Write a run-time bundle whose trees are combined with a forest and forecasts from the history."""
    jobs = make_jobs()
    history = History.of(jobs, make_usage(jobs))
    built = build_referenced(jobs, history, "submit", relative=True)
    contract = FeatureContract.fit(built.features)
    matrix = contract.encode(built.features)
    shorter = jobs.with_columns(run_s=pl.col("run_s") / np.exp(built.reference_log_s[:, 0]))
    target = np.log(jobs["run_s"].to_numpy()) - built.reference_log_s[:, 0]
    forest = fit_forest(matrix, target, seed=0, nthread=1)
    combination = Combination.new(COMBINABLE, rows=300).stored()
    said = {"relative": True, "offsets": {"p50": 0.0, "p90": 0.0}, "combination": combination, **card}
    return write_bundle(
        folder,
        card=make_card("runtime", contract, **said),
        contract=contract,
        boosters=make_boosters("runtime", matrix, shorter, jobs),
        history=history,
        importances=[Importance(feature="req_gpus", mean=0.3, std=0.1, repeats=5, sign=-0.5)],
        forest=(forest.trees, forest.values),
    )


@pytest.fixture(scope="session")
def combined_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("combined") / "runtime"
    write_combined_bundle(folder)
    return folder


@pytest.fixture(scope="session")
def small_bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of a run-time and a usage bundle of one small trace."""
    place = tmp_path_factory.mktemp("bundles")
    for kind in ("runtime", "usage"):
        write_small_bundle(place / kind, kind)
    return {kind: place / kind for kind in ("runtime", "usage")}


@pytest.fixture(scope="session")
def bundles(small_bundles: dict[str, Path]) -> dict[str, Bundle]:
    """Return the two bundles by registered name."""
    read = [read_bundle(folder, version="7") for folder in small_bundles.values()]
    return {bundle.card.name: bundle for bundle in read}


@pytest.fixture(scope="session")
def responding(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Return the run-time bundle with a trusted response model: a run is shorter with more GPUs, by known amounts."""
    folder = tmp_path_factory.mktemp("responding") / "runtime"
    response = {"trusted": True, "why": "it leads", "rows": 300, "lead": 0.3, "lead_lo": 0.2, "lead_hi": 0.4}
    write_small_bundle(folder, response=response, important=["gpus"])
    return read_bundle(folder, version="7")


@pytest.fixture
def small_jobs() -> pl.DataFrame:
    return make_jobs()


@pytest.fixture
def write_bundle_of() -> Callable[..., str]:
    return write_small_bundle


@pytest.fixture
def folder(small_bundles: dict[str, Path], tmp_path: Path) -> Folder:
    made = Folder(tmp_path, small_bundles)
    made.add(NAME, "1")
    made.add(USAGE, "1")
    return made


@pytest.fixture(scope="session")
def other_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of the same history that answers otherwise; tests copy it."""
    place = tmp_path_factory.mktemp("other") / "bundle"
    write_small_bundle(place, "runtime", offsets={"p50": 0.5, "p90": 0.5})
    return place
