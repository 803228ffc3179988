"""A small synthetic lake with its models, made by commands alone, and a service over it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 120.0
MODELS = 4
"""Models that `MAKE` promotes."""
MAKE = (
    "synth pai --to raw --tasks 4000 --tagged-share 0.6 --seed 3",
    "ingest pai --from raw --lake lake --as pai-synth",
    "train --lake lake --type ctr --type nlp --threads 1",
    "promote --lake lake --force",
)


def taut(*words: str) -> list[str]:
    """Return the command line that runs `taut` of this checkout."""
    return [sys.executable, "-c", "from pipelines.cli import main; main()", *words]


def surroundings() -> dict[str, str]:
    """Return an environment without settings of taut or MLflow, with this checkout first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TAUT_", "MLFLOW_"))}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `raw`, `lake`, the registry and mirrored models."""
    folder = tmp_path_factory.mktemp("contract")
    for line in MAKE:
        done = subprocess.run(
            taut(*line.split()),
            cwd=folder,
            env=surroundings(),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"taut {line}\n{done.stderr}"
    return folder


@pytest.fixture(scope="session")
def client(house: Path) -> Iterator[httpx2.Client]:
    """Return a plain HTTP client of a service over the small lake."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (house / "serve.log").open("w") as log:
        serving = subprocess.Popen(
            taut("serve", "--lake", "lake", "--port", str(port)),
            cwd=house,
            env=surroundings() | {"TAUT_SERVE_TRACE": "pai-synth"},
            stdout=log,
            stderr=log,
        )
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as found:
                _await_ready(found, serving)
                yield found
        finally:
            serving.terminate()
            serving.wait(60)


def _await_ready(client: httpx2.Client, serving: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until:
        assert serving.poll() is None, "the service ended as it began"
        try:
            found = client.get("/readyz")
            if found.status_code == 200 and found.json()["serving"] == MODELS:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError("the service was not ready in time")
