"""A thousand jobs recommended in one call, against one prediction of the same matrix by the library; reserved, by time.

Part e of `tests.benchmarks.serving`.
"""

import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import numpy as np

from features.build import with_requests
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.champions import read_champion
from modelserve.bundle.job_frames import jobs_frame
from modelserve.bundle.run_times import run_time_features
from modelserve.contract.requests import job_of
from modelserve.contract.reservations import MAX_RUNNING, MAX_SAMPLES
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import Job
from tests.benchmarks.serving.figures import Bar, Row, alternately, amount_row, ratio_row
from tests.benchmarks.serving.models import TASK_TYPE, TRACE
from tests.benchmarks.serving.processes import CLIENT_CORE, SERVER_CORE
from tests.benchmarks.serving.rivals import Matrix
from tests.benchmarks.serving.stage import Stage, body_of, taut_server

if TYPE_CHECKING:
    from xgboost import Booster

JOBS: Final = 1000
BAR: Final = Bar(side="at most", value=3.0)
BASE: Final = "inplace_predict"
CALLS: Final[Mapping[str, Mapping[str, object]]] = {
    f"recommendation of {JOBS} jobs": {},
    f"recommendation of {JOBS} jobs, guard none": {"guard": "none"},
}
"""What is asked for beside the jobs: as is usual, and as the paper does it, without floors."""
RESERVATION: Final = f"reservation of {MAX_RUNNING} jobs, {MAX_SAMPLES} samples each"
RESERVATION_BAR: Final = Bar(side="under", value=0.1)


def batch_rows(stage: Stage) -> list[Row]:
    """Return how long a call takes from its first byte to the last of its answer, in library predictions or seconds."""
    rows = stage.models.jobs(JOBS)
    bundle = read_champion(stage.models.bundles, f"runtime.{TRACE}.{TASK_TYPE}")
    matrix = candidates_matrix(bundle, [job_of(row, trace=TRACE, submitted=row.submit_ts) for row in rows])
    with taut_server(stage) as server:
        measures = {
            name: partial(_call_s, server.url, "/v1/recommendations", body_of(rows, **options))
            for name, options in CALLS.items()
        }
        measures[RESERVATION] = partial(_call_s, server.url, "/v1/reservations", reservation_body())
        measures[BASE] = partial(_predict_s, bundle.boosters[RUNTIME_TARGET], matrix)
        alternately(measures, 1)
        found = alternately(measures, stage.rounds)
    against = f"{BASE} of its {len(matrix)} rows"
    rows_found = [ratio_row("e", name, against, found[name], found[BASE], unit="s", bar=BAR) for name in CALLS]
    return [*rows_found, amount_row("e", RESERVATION, found[RESERVATION], unit="s", bar=RESERVATION_BAR)]


def reservation_body() -> bytes:
    """Return a call for the reservations of as many jobs and samples as a call may hold."""
    rng = np.random.default_rng(0)
    at_s = [60.0 * (minute + 1) for minute in range(MAX_SAMPLES)]
    scales = {"cpu_cores": 6.0, "gpus": 0.5, "mem_gib": 20.0, "gpu_mem_gib": 8.0}
    jobs = [
        {
            "job_id": f"j{i}", "task_type": TASK_TYPE, "user": f"u{i % 50}", "group": f"g{i % 90}", "gpu_type": "V100",
            "request": {"cpu_cores": 6.0, "mem_gib": 29.3, "gpus": 0.5}, "age_s": at_s[-1] + 30.0,
            "samples": {"at_s": at_s} | {
                name: (scale * rng.random(MAX_SAMPLES)).round(4).tolist() for name, scale in scales.items()
            },
        }
        for i in range(MAX_RUNNING)
    ]  # fmt: skip
    return json.dumps({"trace": TRACE, "jobs": jobs}, separators=(",", ":")).encode()


def candidates_matrix(bundle: Bundle, jobs: Sequence[Job]) -> Matrix:
    """Return the feature vectors of every job as it stands and at each candidate of the published algorithm."""
    alphas = np.concatenate([[1.0], ShrinkPolicy(guard="none").alphas()])
    requests = np.array([job.request.row() for job in jobs])
    asked = (alphas[None, :, None] * requests[:, None, :]).reshape(-1, requests.shape[1])
    frame = jobs_frame(jobs, bundle.history)
    features = run_time_features(bundle, frame).features
    index = np.repeat(np.arange(len(jobs)), len(alphas))
    return bundle.contract.encode(with_requests(features, frame, index, asked))


def recommended_s(stage: Stage, url: str) -> float:
    """Ask a server for `JOBS` recommendations, and return how long it took."""
    return _call_s(url, "/v1/recommendations", body_of(stage.models.jobs(JOBS)))


def _call_s(url: str, path: str, body: bytes) -> float:
    with _on(CLIENT_CORE):
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        connection.connect()
        start = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        taken = time.perf_counter() - start
        connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {said[:300]!r}, expected 200")
    return taken


def _predict_s(booster: "Booster", matrix: Matrix) -> float:
    with _on(SERVER_CORE):
        start = time.perf_counter()
        booster.inplace_predict(matrix)
        return time.perf_counter() - start


@contextmanager
def _on(core: int) -> Iterator[None]:
    """Keep this thread on one core for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
