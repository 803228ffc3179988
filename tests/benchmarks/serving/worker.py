"""One worker with ten models: the tail of its answers, a thousand recommendations, its memory, and its start."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import numpy as np

from features.online import OnlineHistory
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.champions import read_champion
from modelserve.bundle.predictor import asked_of
from modelserve.bundle.served import ServedModel
from modelserve.contract.requests import JobRow, job_of
from scheduler_core.decisions import load_rules
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import FloatArray, Job
from tests.benchmarks.harness import Bar, Row, alternately, amount_row, ratio_row
from tests.benchmarks.serving.models import TRACE
from tests.benchmarks.serving.processes import CLIENT_CORE, SERVER_CORE, cpu_s, weights
from tests.benchmarks.serving.stage import (
    COMPARED,
    SPREAD_OF_JOBS,
    Stage,
    Target,
    body_of,
    empty_server,
    full_load,
    one_job_bodies,
    taut_server,
    write_bodies,
)

SHARE: Final = 0.5
TAIL_BAR: Final = Bar(side="at most", value=4.0)
JOBS: Final = 1000
BATCH_BAR: Final = Bar(side="at most", value=3.0)
MEMORY_BAR: Final = Bar(side="under", value=400.0)
MACHINES: Final = 1000
SCHEDULES: Final = 20
SCHEDULE_BAR: Final = Bar(side="at most", value=300.0)
READY_BAR: Final = Bar(side="under", value=3.0)


def latency_rows(stage: Stage) -> list[Row]:
    """Return p99 over p50 at half of the peak, and the same of an empty endpoint at as many calls a second."""
    bodies = one_job_bodies(stage.models.jobs(SPREAD_OF_JOBS), outputs=["run_time"])
    file = write_bodies(bodies, stage.scratch / "paced.txt")
    with taut_server(stage) as server, empty_server(stage) as nothing:
        target = Target(name="taut", url=server.url + "/v1/predictions", bodies=file, pid=server.pid)
        rate = SHARE * max(full_load(target, seconds=stage.seconds).per_s for _ in range(2))
        urls = {"taut": target.url, "an empty endpoint": nothing.url + "/empty"}
        measures = {
            name: partial(_paced, url, "--bodies", file, "--rate", rate, "--seconds", stage.seconds)
            for name, url in urls.items()
        }
        rounds = alternately(measures, stage.rounds)
    rows = []
    for name, quantiles in rounds.items():
        p99, p50 = ([each[quantile] for each in quantiles] for quantile in ("p99_ms", "p50_ms"))
        what = f"p99 of {name} at {rate:.0f} calls a second, {SHARE:.0%} of the peak"
        rows.append(ratio_row(what, "p50", p99, p50, unit="ms", bar=TAIL_BAR if name == "taut" else None))
    return rows


def batch_rows(stage: Stage) -> list[Row]:
    """Return how long a call for `JOBS` recommendations takes, in predictions of the same rows by the library."""
    jobs = stage.models.jobs(JOBS)
    bundle = read_champion(stage.models.bundles, COMPARED)
    matrix = candidates_matrix(bundle, [job_of(row, trace=TRACE, submitted=row.submit_ts) for row in jobs])
    booster, body = bundle.boosters[RUNTIME_TARGET], body_of(jobs)

    def predict_s() -> float:
        with _on(SERVER_CORE):
            start = time.perf_counter()
            booster.inplace_predict(matrix)
            return time.perf_counter() - start

    with taut_server(stage) as server:
        measures = {"ours": partial(_posted_s, server.url, "recommendations", body), "library": predict_s}
        alternately(measures, 1)
        seconds = alternately(measures, stage.rounds)
    against = f"inplace_predict of its {len(matrix)} rows"
    what = f"recommendation of {JOBS} jobs"
    return [ratio_row(what, against, seconds["ours"], seconds["library"], unit="s", bar=BATCH_BAR)]


def schedule_rows(stage: Stage) -> list[Row]:
    """Return how long a call takes that shrinks and places `JOBS` jobs on `MACHINES` half full machines, in ms."""
    machines = [
        {"machine": f"m{i:04d}", "cpu_cores": 96, "mem_gib": 512, "gpus": 8, "gpu_type": "T4"} for i in range(MACHINES)
    ]
    request = {"cpu_cores": 48, "mem_gib": 256, "gpus": 4}
    running = [{"job_id": f"r{i:04d}", "request": request, "on": [{"machine": f"m{i:04d}"}]} for i in range(MACHINES)]
    names = {"trace", "cluster", "gpu_type", "instances"}
    waiting = [
        job.model_copy(update={name: JobRow.model_fields[name].default for name in names})
        for job in stage.models.jobs(JOBS)
    ]
    rows = list[Row]()
    load_rules()  # compiles them at first: a server decides by Python until they are in the cache
    with taut_server(stage) as server:
        for placement in ("best_fit", "fgd"):
            rules = {"policy": "srtf", "placement": placement}
            body = body_of(waiting, machines=machines, running=running, **rules)
            for _ in range(3):
                _posted_s(server.url, "schedule", body)
            taken = [1e3 * _posted_s(server.url, "schedule", body) for _ in range(SCHEDULES)]
            what = f"schedule of {JOBS} jobs on {MACHINES} machines by {placement}"
            rows.append(amount_row(what, taken, unit="ms", bar=SCHEDULE_BAR))
            rows.append(amount_row(f"{what}: p95", [float(np.quantile(taken, 0.95))], unit="ms", bar=SCHEDULE_BAR))
    return rows


def candidates_matrix(bundle: Bundle, jobs: list[Job]) -> FloatArray:
    """Return the feature vectors of every job as it stands and at each candidate of the published algorithm."""
    alphas = np.concatenate([[1.0], ShrinkPolicy(guard="none").alphas()])
    requests = np.array([job.request.row() for job in jobs])
    asked = (alphas[None, :, None] * requests[:, None, :]).reshape(-1, requests.shape[1])
    model, index = ServedModel.of(bundle, OnlineHistory(bundle.history)), np.repeat(np.arange(len(jobs)), len(alphas))
    rows = [asked_of(job, model.history) for job in jobs]
    return model.rows.with_requests(model.look(rows).rows.matrix, rows, index, asked)


def memory_rows(stage: Stage) -> list[Row]:
    """Return the resident memory of the worker, ready, and after calls of a thousand jobs."""
    body, ready, after = body_of(stage.models.jobs(JOBS)), list[float](), list[float]()
    for _ in range(stage.rounds):
        with taut_server(stage) as server:
            ready.append(_worker(server.pid))
            for _ in range(3):
                _posted_s(server.url, "recommendations", body)
            after.append(_worker(server.pid))
    return [
        amount_row("worker with ten models, ready: resident", ready, unit="MiB", bar=MEMORY_BAR),
        amount_row("after calls of 1000 jobs: resident", after, unit="MiB", bar=MEMORY_BAR),
    ]


def ready_rows(stage: Stage) -> list[Row]:
    """Return how long it takes from the process's start to the first 200 of `/readyz`, with code compiled before."""
    with taut_server(stage):
        pass  # Compiles, and keeps what it compiled.
    starts = []
    for _ in range(stage.rounds):
        with taut_server(stage) as server:
            starts.append((server.ready_s, cpu_s(server.pid)))
    what = "start to ready with ten models"
    return [
        amount_row(what, [taken for taken, _ in starts], unit="s", bar=READY_BAR),
        amount_row(f"{what}: processor time", [spent for _, spent in starts], unit="s"),
    ]


def _paced(url: str, *options: object) -> dict[str, float]:
    command = ["taskset", "--cpu-list", CLIENT_CORE, sys.executable, "-m", "tests.benchmarks.serving.paced", url]
    run = subprocess.run([*map(str, (*command, *options))], capture_output=True, text=True, check=False, timeout=600)
    if run.returncode:
        raise SystemExit(f"paced load failed: {run.stderr[-500:]}")
    [line] = run.stdout.splitlines()
    window: dict[str, float] = json.loads(line)
    if window["wrong"]:
        raise SystemExit(f"paced load: {window}, expected every call to be answered 200")
    return window


def _posted_s(url: str, call: str, body: bytes) -> float:
    with _on(CLIENT_CORE):
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        connection.connect()
        start = time.perf_counter()
        connection.request("POST", f"/v1/{call}", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        taken = time.perf_counter() - start
        connection.close()
    if answer.status != 200:
        raise SystemExit(f"{call}: {answer.status} {content[:300]!r}, expected 200")
    return taken


@contextmanager
def _on(core: int) -> Iterator[None]:
    """Keep this thread on one core for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _worker(pid: int) -> float:
    """Return the resident MiB of the heaviest process: with one worker, the one that holds the models."""
    return max(mib for _, mib in weights(pid))
