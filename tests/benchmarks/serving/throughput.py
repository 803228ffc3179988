"""One-job predictions at full load: taut against an empty endpoint, `mlflow models serve`, and MLServer.

All servers stand at once, idle but for the one that is asked. Parts a, b and c of `tests.benchmarks.serving`.
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
from tests.benchmarks.serving.figures import Bar, Row, alternately, ratio_row
from tests.benchmarks.serving.load import Load, Target, full_load, write_bodies
from tests.benchmarks.serving.models import TRACE
from tests.benchmarks.serving.rivals import (
    MODEL,
    Matrix,
    infer_bodies,
    job_bodies,
    mlflow_server,
    mlserver,
    mlserver_python,
    tensor_bodies,
    vector_bodies,
    write_xgboost_flavor,
)
from tests.benchmarks.serving.stage import (
    COMPARED,
    SPREAD_OF_JOBS,
    Stage,
    empty_server,
    one_job_bodies,
    taut_server,
)

EMPTY: Final = "empty FastAPI endpoint"
FLOOR: Final = "an endpoint that only walks the trees"
"""What an endpoint in one Python process could reach at most."""
PART_OF: Final[Mapping[str, str]] = {
    EMPTY: "a",
    "mlflow models serve, the bundle": "b",
    "mlflow models serve, bare XGBoost, data frame": "b",
    "mlflow models serve, bare XGBoost, tensor": "b",
    "MLServer, bare XGBoost": "c",
}
BARS: Final[Mapping[str, Bar]] = {
    EMPTY: Bar(side="at least", value=0.45),
    "mlflow models serve, the bundle": Bar(side="at least", value=8.0),
    "mlflow models serve, bare XGBoost, data frame": Bar(side="at least", value=8.0),
    "MLServer, bare XGBoost": Bar(side="at least", value=3.0),
}
"""By what taut is compared with; the tensor call of MLflow is told beside, without a bar."""
RUN_TIME: Final = "taut, run time"
FULL: Final = "taut, run time and peak use"
WARM_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The same jobs in every server's words: as jobs, and as the feature vectors of the compared model."""

    jobs: Sequence[JobRow]
    bundle: Bundle
    matrix: Matrix


def throughput_rows(stage: Stage, parts: str) -> list[Row]:
    """Return the rows of the parts asked for, and of the full answer beside the first."""
    asked = asked_of(stage)
    with ExitStack() as stack:
        targets = _taut(stage, stack, asked)
        for part, started in {"a": _empty, "b": _mlflow, "c": _mlserver}.items():
            if part in parts:
                targets += started(stage, stack, asked)
        for target in targets:
            _answer(target.url, target.bodies.read_bytes().splitlines()[0])
            full_load(target, seconds=WARM_S)
        measures: dict[str, Callable[[], Load]] = {
            target.name: partial(full_load, target, seconds=stage.seconds) for target in targets
        }
        found = alternately(measures, stage.rounds)
    return [row for base in PART_OF if base in found for row in _rows(base, found)]


def asked_of(stage: Stage) -> Asked:
    """Return jobs, the compared bundle, and their feature vectors as training builds them."""
    jobs = stage.models.jobs(SPREAD_OF_JOBS)
    bundle = read_champion(stage.models.bundles, COMPARED)
    frame = jobs_frame([job_of(row, trace=TRACE, submitted=row.submit_ts) for row in jobs], bundle.history)
    return Asked(jobs=jobs, bundle=bundle, matrix=bundle.contract.encode(run_time_features(bundle, frame).features))


def _rows(base: str, found: Mapping[str, Sequence[Load]]) -> list[Row]:
    part = PART_OF[base]
    bars = {RUN_TIME: BARS.get(base)} | ({FULL: None, FLOOR: None} if base == EMPTY else {})
    rows = []
    for name, bar in bars.items():
        measured, against = found[name], found[base]
        rates = [each.per_s for each in measured], [each.per_s for each in against]
        row = ratio_row(part, f"one-job calls: {name}", base, *rates, unit="1/s", bar=bar)
        by_cpu = median(other.cpu_us / one.cpu_us for one, other in zip(measured, against, strict=True))
        rows.append(row | {"by_cpu": by_cpu})
    return rows


def _taut(stage: Stage, stack: ExitStack, asked: Asked) -> list[Target]:
    server = stack.enter_context(taut_server(stage))
    url = server.url + "/v1/predictions"
    run_time = write_bodies(one_job_bodies(asked.jobs, outputs=["run_time"]), stage.scratch / "run_time.txt")
    full = write_bodies(one_job_bodies(asked.jobs), stage.scratch / "full.txt")
    return [
        Target(name=RUN_TIME, url=url, bodies=run_time, pid=server.pid),
        Target(name=FULL, url=url, bodies=full, pid=server.pid),
    ]


def _empty(stage: Stage, stack: ExitStack, asked: Asked) -> list[Target]:
    server = stack.enter_context(empty_server(stage))
    bodies = write_bodies(one_job_bodies(asked.jobs, outputs=["run_time"]), stage.scratch / "empty.txt")
    return [
        Target(name=EMPTY, url=server.url + "/empty", bodies=bodies, pid=server.pid),
        Target(name=FLOOR, url=server.url + "/trees", bodies=bodies, pid=server.pid),
    ]


def _mlflow(stage: Stage, stack: ExitStack, asked: Asked) -> list[Target]:
    started = partial(mlflow_server, tracking_uri=stage.models.tracking_uri, scratch=stage.scratch)
    bundle = stack.enter_context(started("mlflow-bundle", f"models:/{asked.bundle.card.name}@champion"))
    bare = {
        kind: stack.enter_context(started(f"mlflow-{kind}", write_xgboost_flavor(asked.bundle, place, named=named)))
        for kind, place, named in (
            ("frame", stage.scratch / "frame", True),
            ("tensor", stage.scratch / "tensor", False),
        )
    }
    names = asked.bundle.contract.names
    calls = {
        "mlflow models serve, the bundle": (bundle, job_bodies(asked.jobs)),
        "mlflow models serve, bare XGBoost, data frame": (bare["frame"], vector_bodies(names, asked.matrix)),
        "mlflow models serve, bare XGBoost, tensor": (bare["tensor"], tensor_bodies(asked.matrix)),
    }
    targets = []
    for name, (server, bodies) in calls.items():
        url = server.url + "/invocations"
        if server is not bundle:
            _check_same(asked, name, json.loads(_answer(url, bodies[0]))["predictions"][0])
        file = write_bodies(bodies, stage.scratch / f"{server.name}.txt")
        targets.append(Target(name=name, url=url, bodies=file, pid=server.pid))
    return targets


def _mlserver(stage: Stage, stack: ExitStack, asked: Asked) -> list[Target]:
    server = stack.enter_context(mlserver(mlserver_python(stage.cache), asked.bundle, scratch=stage.scratch))
    url, bodies = f"{server.url}/v2/models/{MODEL}/infer", infer_bodies(asked.matrix)
    name = "MLServer, bare XGBoost"
    _check_same(asked, name, json.loads(_answer(url, bodies[0]))["outputs"][0]["data"])
    file = write_bodies(bodies, stage.scratch / "mlserver.txt")
    return [Target(name=name, url=url, bodies=file, pid=server.pid)]


def _answer(url: str, body: bytes) -> bytes:
    call = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=30) as answer:
        return bytes(answer.read())


def _check_same(asked: Asked, name: str, found: Sequence[float]) -> None:
    expected = raw_outputs(asked.bundle.boosters[RUNTIME_TARGET], asked.matrix[:1])[0]
    if not np.allclose(found, expected, atol=1e-5):
        raise SystemExit(f"{name} answers {found}, expected {expected.tolist()}: it serves another model")
