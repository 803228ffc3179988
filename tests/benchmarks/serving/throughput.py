"""One-job predictions at full load: taut against an empty endpoint, `mlflow models serve`, and MLServer.

In each part all servers run at once, idle but for the one that is called.
"""

import json
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

import numpy as np

from modelserve.bundle.boosters import raw_outputs
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.champions import read_champion
from modelserve.bundle.job_frames import jobs_frame
from modelserve.bundle.run_times import run_time_features
from modelserve.contract.requests import JobRow, job_of
from tests.benchmarks.harness import Bar, Row, alternately, ratio_row
from tests.benchmarks.serving.models import TRACE
from tests.benchmarks.serving.processes import Server
from tests.benchmarks.serving.rivals import (
    MODEL,
    Matrix,
    infer_bodies,
    job_bodies,
    mlflow_server,
    mlserver,
    mlserver_python,
    vector_bodies,
    write_xgboost_flavor,
)
from tests.benchmarks.serving.stage import (
    COMPARED,
    SPREAD_OF_JOBS,
    Load,
    Stage,
    Target,
    empty_server,
    full_load,
    one_job_bodies,
    taut_server,
    write_bodies,
)

EMPTY: Final = "empty FastAPI endpoint"
TREES: Final = "an endpoint that only walks the trees"
"""What an endpoint in one Python process could reach at most."""
RUN_TIME: Final = "taut, run time"
FULL: Final = "taut, run time and peak use"
EMPTY_BAR: Final = Bar(side="at least", value=0.45)
MLFLOW_BAR: Final = Bar(side="at least", value=8.0)
MLSERVER_BAR: Final = Bar(side="at least", value=3.0)
WARM_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The same jobs for every server: as jobs, and as the feature vectors of the compared model."""

    jobs: Sequence[JobRow]
    bundle: Bundle
    matrix: Matrix


def empty_rows(stage: Stage) -> list[Row]:
    """Compare taut, its full answer, and the trees alone with an empty endpoint."""
    jobs = stage.models.jobs(SPREAD_OF_JOBS)
    with ExitStack() as stack:
        taut, empty = stack.enter_context(taut_server(stage)), stack.enter_context(empty_server(stage))
        run_time, full = one_job_bodies(jobs, outputs=["run_time"]), one_job_bodies(jobs)
        targets = [
            _target(stage, RUN_TIME, taut, "/v1/predictions", run_time),
            _target(stage, FULL, taut, "/v1/predictions", full),
            _target(stage, EMPTY, empty, "/empty", run_time),
            _target(stage, TREES, empty, "/trees", run_time),
        ]
        loads = _loads(stage, targets)
    bars = {RUN_TIME: EMPTY_BAR, FULL: None, TREES: None}
    return [_row(name, EMPTY, loads, bar) for name, bar in bars.items()]


def mlflow_rows(stage: Stage) -> list[Row]:
    """Compare with `mlflow models serve`, of the bundle and of its bare booster on ready features."""
    calls, bare = _calls(stage), str(stage.scratch / "bare")
    write_xgboost_flavor(calls.bundle, bare)
    bodies = vector_bodies(calls.bundle.contract.names, calls.matrix)
    models = {
        "mlflow models serve, the bundle": (f"models:/{calls.bundle.card.name}@champion", job_bodies(calls.jobs)),
        "mlflow models serve, bare XGBoost": (bare, bodies),
    }
    with ExitStack() as stack:
        targets = [_taut(stage, stack, calls)]
        for name, (uri, each) in models.items():
            server = stack.enter_context(
                mlflow_server(f"mlflow-{len(targets)}", uri, stage.models.tracking_uri, stage.scratch)
            )
            targets.append(_target(stage, name, server, "/invocations", each))
        answer = json.loads(_answer(targets[-1].url, bodies[0]))
        _check_same(calls, targets[-1].name, answer["predictions"][0])
        loads = _loads(stage, targets)
    return [_row(RUN_TIME, name, loads, MLFLOW_BAR) for name in models]


def mlserver_rows(stage: Stage) -> list[Row]:
    """Compare with MLServer, of the bare booster on ready features."""
    calls, name = _calls(stage), "MLServer, bare XGBoost"
    bodies = infer_bodies(calls.matrix)
    with ExitStack() as stack:
        server = stack.enter_context(mlserver(mlserver_python(stage.cache), calls.bundle, stage.scratch))
        targets = [
            _taut(stage, stack, calls),
            _target(stage, name, server, f"/v2/models/{MODEL}/infer", bodies),
        ]
        _check_same(calls, name, json.loads(_answer(targets[-1].url, bodies[0]))["outputs"][0]["data"])
        loads = _loads(stage, targets)
    return [_row(RUN_TIME, name, loads, MLSERVER_BAR)]


def _calls(stage: Stage) -> Calls:
    jobs = stage.models.jobs(SPREAD_OF_JOBS)
    bundle = read_champion(stage.models.bundles, COMPARED)
    frame = jobs_frame([job_of(row, trace=TRACE, submitted=row.submit_ts) for row in jobs], bundle.history)
    return Calls(jobs=jobs, bundle=bundle, matrix=bundle.contract.encode(run_time_features(bundle, frame).features))


def _taut(stage: Stage, stack: ExitStack, calls: Calls) -> Target:
    bodies = one_job_bodies(calls.jobs, outputs=["run_time"])
    return _target(stage, RUN_TIME, stack.enter_context(taut_server(stage)), "/v1/predictions", bodies)


def _target(stage: Stage, name: str, server: Server, path: str, bodies: Sequence[bytes]) -> Target:
    file = write_bodies(bodies, stage.scratch / f"{name}.txt")
    return Target(name=name, url=server.url + path, bodies=file, pid=server.pid)


def _loads(stage: Stage, targets: Sequence[Target]) -> dict[str, list[Load]]:
    """Warm all up, then load each in turn."""
    for target in targets:
        _answer(target.url, target.bodies.read_bytes().splitlines()[0])
        full_load(target, seconds=WARM_S)
    measures: dict[str, Callable[[], Load]] = {
        target.name: partial(full_load, target, seconds=stage.seconds) for target in targets
    }
    return alternately(measures, stage.rounds)


def _row(name: str, base: str, loads: Mapping[str, Sequence[Load]], bar: Bar | None) -> Row:
    """Compare rates; `by_cpu` is the ratio of processor time, which other load on the machine does not change."""
    rates = ([each.per_s for each in loads[who]] for who in (name, base))
    by_cpu = median(other.cpu_us / one.cpu_us for one, other in zip(loads[name], loads[base], strict=True))
    return ratio_row(f"one-job calls: {name}", base, *rates, unit="1/s", bar=bar) | {"by_cpu": by_cpu}


def _answer(url: str, body: bytes) -> bytes:
    call = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=30) as answer:
        return bytes(answer.read())


def _check_same(calls: Calls, name: str, answered: Sequence[float]) -> None:
    expected = raw_outputs(calls.bundle.boosters[RUNTIME_TARGET], calls.matrix[:1])[0]
    if not np.allclose(answered, expected, atol=1e-5):
        raise SystemExit(f"{name} answers {answered}, expected {expected.tolist()}: it serves another model")
