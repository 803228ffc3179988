"""What the serving benchmarks share: the models, a scratch folder, the servers, and full load on a URL."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelserve.bundle.champions import read_champion
from modelserve.contract.requests import JobRow
from modelserve.settings import PREFIX
from tests.benchmarks.serving.models import TASK_TYPE, TRACE, Models, trained
from tests.benchmarks.serving.processes import CLIENT_CORE, Server, cpu_s, free_port, served

COMMAND: Final = (str(Path(sys.executable).with_name("taut")), "serve")
COMPARED: Final = f"runtime.{TRACE}.{TASK_TYPE}"
"""The model that every server answers with."""
SPREAD_OF_JOBS: Final = 1000
"""How many different jobs the one-job calls are about."""
CONNECTIONS: Final = 8
SCRIPT: Final = Path(__file__).with_name("asks.lua")
TOOLS: Final = {"wrk": "wrk", "taskset": "util-linux"}
"""What has to be installed, and its Debian package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One run of the benchmark; `seconds` of load a round."""

    models: Models
    scratch: Path
    cache: Path
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A URL, the file of bodies to send to it, and the process that answers (with those below it)."""

    name: str
    url: str
    bodies: Path
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One round: answers a second, and the processor time that each took, in microseconds."""

    per_s: float
    cpu_us: float


def add_cache(parser: ArgumentParser) -> None:
    """Add the option for the folder that one run leaves to the next: models, and MLServer's environment."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taut-bench"
    parser.add_argument("--cache", type=Path, default=cache, help="folder kept between runs")


@contextmanager
def staged(options: Namespace) -> Iterator[Stage]:
    """Check the machine, train the models at first need, and make a scratch folder."""
    missing = [f"{tool} (apt-get install {package})" for tool, package in TOOLS.items() if not shutil.which(tool)]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}")
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("one core, expected two: one for the server, one for the load")
    options.cache.mkdir(parents=True, exist_ok=True)
    models = trained(options.cache)
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as scratch:
        at = {"scratch": Path(scratch), "cache": options.cache}
        yield Stage(models=models, rounds=options.rounds, seconds=options.seconds, **at)


@contextmanager
def taut_server(stage: Stage, *, env: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run `taut serve` with one worker over the ten models; other settings are at their default."""
    port = free_port()
    settings = {
        "PORT": str(port),
        "BUNDLES": str(stage.models.bundles),
        "STORE": f"sqlite:///{stage.scratch / 'taut'}.db",
        "TRACE": TRACE,
    }
    given = {PREFIX + key: value for key, value in settings.items()} | dict(env or {})
    with served("taut", COMMAND, port=port, ready="/readyz", scratch=stage.scratch, env=given) as server:
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


def write_bodies(bodies: Sequence[bytes], place: Path) -> Path:
    """Write one body a line and return the file."""
    place.write_bytes(b"\n".join(bodies) + b"\n")
    return place


def full_load(target: Target, *, seconds: float) -> Load:
    """Call by wrk on a core of its own, as fast as answers come; any call not answered 200 ends the benchmark."""
    command = ["taskset", "--cpu-list", str(CLIENT_CORE), "wrk", "--threads", "1"]
    command += ["--connections", str(CONNECTIONS), "--duration", f"{max(1, round(seconds))}s"]
    command += ["--script", str(SCRIPT), target.url, "--", str(target.bodies)]
    before = cpu_s(target.pid)
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    spent = cpu_s(target.pid) - before
    lines = [line for line in run.stdout.splitlines() if line.startswith("figures ")]
    if run.returncode or not lines:
        raise SystemExit(f"wrk on {target.name} failed: {run.stdout[-500:]}{run.stderr[-500:]}")
    figures = json.loads(lines[0].removeprefix("figures "))
    if figures["refused"] or figures["broken"] or not figures["answers"]:
        raise SystemExit(f"{target.name}: {figures}, expected every call to be answered 200")
    return Load(per_s=figures["answers"] / figures["duration_s"], cpu_us=spent / figures["answers"] * 1e6)
