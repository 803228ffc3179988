"""What every part of the serving benchmarks needs: the models, a scratch folder, the rounds, and taut itself, started.

Measures nothing. Made by `tests.benchmarks.serving.__main__` and handed to the parts.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelserve.bundle.champions import read_champion
from modelserve.contract.requests import JobRow
from modelserve.settings import PREFIX
from tests.benchmarks.serving.models import TASK_TYPE, TRACE, Models
from tests.benchmarks.serving.processes import Server, free_port, served

COMMAND: Final = (str(Path(sys.executable).with_name("taut")), "serve")
COMPARED: Final = f"runtime.{TRACE}.{TASK_TYPE}"
"""The model that every server answers with."""
SPREAD_OF_JOBS: Final = 1000
"""How many different jobs the one-job calls are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One run of the benchmark."""

    models: Models
    scratch: Path
    cache: Path
    rounds: int
    seconds: float


@contextmanager
def taut_server(stage: Stage, name: str = "taut", *, env: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run `taut serve` with one worker over the ten models; whatever is not a place is at its default."""
    port = free_port()
    settings = {
        "PORT": str(port),
        "BUNDLES": str(stage.models.bundles),
        "STORE": f"sqlite:///{stage.scratch / name}.db",
        "TRACE": TRACE,
    }
    said = {PREFIX + key: value for key, value in settings.items()} | dict(env or {})
    with served(name, COMMAND, port=port, ready="/readyz", scratch=stage.scratch, env=said) as server:
        yield server


@contextmanager
def empty_server(stage: Stage) -> Iterator[Server]:
    """Run the endpoints that bound what can be reached: `/empty`, and `/trees` over the compared model."""
    port = free_port()
    bundle = read_champion(stage.models.bundles, COMPARED)
    command = [sys.executable, "-m", "tests.benchmarks.serving.empty", str(port), str(bundle.path)]
    with served("empty", command, port=port, ready="/readyz", scratch=stage.scratch) as server:
        yield server


def one_job_bodies(jobs: Sequence[JobRow], **options: object) -> list[bytes]:
    """Return calls of `/v1/predictions`, one job each."""
    return [body_of([job], **options) for job in jobs]


def body_of(jobs: Sequence[JobRow], **options: object) -> bytes:
    """Return one call about jobs, as compact JSON."""
    rows = [job.model_dump(mode="json", exclude_defaults=True) for job in jobs]
    return json.dumps({"trace": TRACE, "jobs": rows, **options}, separators=(",", ":")).encode()
