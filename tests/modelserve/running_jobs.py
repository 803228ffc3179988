"""Running jobs with samples, as a call for reservations has them, and their answers, made again from the log."""

import json
from typing import Any

from modelserve.callers import ANYONE
from modelserve.contract.calls import RESERVE
from modelserve.contract.reservations import ReserveAnswer, ReserveBody
from modelserve.learning.learned import Learned, Stop
from modelserve.service import Service
from scheduler_core.reserve import ReservePolicy

POLICY = ReservePolicy()
REQUEST = {"cpu_cores": 6.0, "mem_gib": 29.0, "gpus": 0.5}
LEARNED = Learned(
    modes={("pai", "", "ctr", ""): "enforce"},
    brakes={("pai", "", "nlp", "", ""): Stop(scope=("pai", "", "nlp", "", ""), why="too many kills", since=1.0)},
    floors={("pai", "pai", "group", "g1", "worker"): 28.5},
    seq=12,
)
Row = dict[str, Any]  # JSON values


def columns(count: int = 30, **changes: Any) -> Row:
    """Return samples of one a minute of a job that hardly varies."""
    wave = [0.02 * (i % 5) for i in range(count)]
    return {
        "at_s": [60.0 * (i + 1) for i in range(count)],
        "cpu_cores": [1.0 + each for each in wave],
        "gpus": [0.1 + each / 10 for each in wave],
        "mem_gib": [4.0 + each for each in wave],
        "gpu_mem_gpus": [0.1 + each / 100 for each in wave],
        **changes,
    }


def job(job_id: str = "a", **changes: object) -> Row:
    said: Row = {
        "job_id": job_id,
        "task_type": "ctr",
        "cluster": "pai",
        "user": "u1",
        "role": "worker",
        "request": REQUEST,
        "age_s": 1830.0,
        "samples": columns(),
    }
    return {name: value for name, value in {**said, **changes}.items() if value is not ...}


def asked(service: Service, *jobs: Row) -> list[Row]:
    body = ReserveBody.model_validate_json(json.dumps({"jobs": jobs}), strict=True)
    answered = service.decide(RESERVE, body, ANYONE, answer_id="x-1")
    ReserveAnswer.model_validate_json(answered.body)
    record = service.log.records[-1]  # type: ignore[attr-defined]
    assert answered.body == record.response
    assert b"NaN" not in answered.body
    assert b"Infinity" not in answered.body + record.context
    rows: list[Row] = json.loads(answered.body)["reservations"]
    return rows


def stands(row: Row) -> bool:
    memory = row["memory"]
    return bool(
        row["mean"] == {"cpu_cores": 6.0, "gpus": 0.5}
        and row["spread"] == {"cpu_cores": 0.0, "gpus": 0.0}
        and (memory["mem_gib"], memory["gpu_mem_gpus"]) == (29.0, 0.5)
    )
