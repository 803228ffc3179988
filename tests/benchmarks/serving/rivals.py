"""The servers that taut is compared with, each with the same booster: `mlflow models serve` and MLServer.

Each is started as its users start it, with one worker, in its fastest settings. MLServer's dependencies conflict with
ours, so it has an environment of its own.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.flavor import INPUTS
from modelserve.contract.requests import JobRow
from tests.benchmarks.serving.processes import Server, free_port, served

MLSERVER: Final = ("mlserver==1.7.1", "mlserver-xgboost==1.7.1")
MODEL: Final = "runtime"

Matrix = npt.NDArray[np.float32]


@contextmanager
def mlflow_server(name: str, model: str, tracking_uri: str, scratch: Path) -> Iterator[Server]:
    """Serve a model by `mlflow models serve`, which loads it as a pyfunc."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("mlflow")), "models", "serve", "--model-uri", model]
    command += ["--env-manager", "local", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    # The command starts uvicorn by name, which is beside this interpreter.
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"MLFLOW_TRACKING_URI": tracking_uri, "PATH": path}
    with served(name, command, port=port, ready="/ping", scratch=scratch, env=env) as server:
        yield server


@contextmanager
def mlserver(python: Path, bundle: Bundle, scratch: Path) -> Iterator[Server]:
    """Serve the bundle's booster by MLServer's XGBoost runtime, predicting in the process that answers.

    Its default hands every call to a second process, which costs on one core more than it gives.
    """
    place, port = scratch / "mlserver", free_port()
    place.mkdir()
    plain_booster(bundle).save_model(place / "model.ubj")
    implementation = "mlserver_xgboost.XGBoostModel"
    model = {"name": MODEL, "implementation": implementation, "parameters": {"uri": "./model.ubj"}}
    settings = {"host": "127.0.0.1", "http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
    (place / "model-settings.json").write_text(json.dumps(model))
    (place / "settings.json").write_text(json.dumps({**settings, "debug": False, "parallel_workers": 0}))
    command = [str(python.with_name("mlserver")), "start", str(place)]
    with served("MLServer", command, port=port, ready=f"/v2/models/{MODEL}/ready", scratch=scratch) as server:
        yield server


def mlserver_python(cache: Path) -> Path:
    """Return the interpreter of an environment that has MLServer, made at first need."""
    place = cache / "-".join(MLSERVER).replace("==", "-")
    python, done = place / "bin" / "python", place / ".ready"
    if not done.exists():
        print(f"installing {' '.join(MLSERVER)} into {place}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        # The library whose booster is compared is the same on both sides.
        from xgboost import __version__ as ours

        install = [str(python), "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *MLSERVER, f"xgboost=={ours}"], check=True)
        done.touch()
    return python


def write_xgboost_flavor(bundle: Bundle, place: str) -> None:
    """Save the bundle's booster as a bare model of MLflow's XGBoost flavor, which takes data frames."""
    import mlflow.xgboost

    booster = plain_booster(bundle)
    booster.feature_names = list(bundle.contract.names)
    mlflow.xgboost.save_model(booster, place, model_format="ubj")


def plain_booster(bundle: Bundle):  # the library publishes no types
    """Return a copy of the run-time booster that asks for no column names."""
    booster = bundle.boosters[RUNTIME_TARGET].copy()
    booster.feature_names = None
    return booster


def job_bodies(jobs: Sequence[JobRow]) -> list[bytes]:
    """Return calls of `/invocations`, one job each, as the bundle's own MLflow model takes them."""
    rows = []
    for job in jobs:
        known = job.model_dump(mode="json", exclude={"request"}) | {
            f"req_{name}": value for name, value in job.request.model_dump().items()
        }
        # MLflow's datetime is UTC without saying so.
        known["submit_ts"] = job.submit_ts.replace(tzinfo=None).isoformat()
        rows.append({name: known[name] for name in INPUTS})
    return [_compact({"dataframe_split": {"columns": list(row), "data": [list(row.values())]}}) for row in rows]


def vector_bodies(names: Sequence[str], matrix: Matrix) -> list[bytes]:
    """Return calls of `/invocations`, one ready feature vector each, as a data frame."""
    return [_compact({"dataframe_split": {"columns": list(names), "data": [row]}}) for row in matrix.tolist()]


def infer_bodies(matrix: Matrix) -> list[bytes]:
    """Return calls of the Open Inference Protocol, one ready feature vector each."""
    shape = [1, matrix.shape[1]]
    return [
        _compact({"inputs": [{"name": "rows", "shape": shape, "datatype": "FP32", "data": _nulls(row)}]})
        for row in matrix.tolist()
    ]


def _nulls(row: list[float]) -> list[float | None]:
    return [None if value != value else value for value in row]


def _compact(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
