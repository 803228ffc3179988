"""Forged reports over HTTP: no memory target moves, and no answer's id can be told from what others see."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from modelserve.api.app import create_app
from modelserve.service import Service
from tests.modelserve.api.conftest import TOKENS, bearer, job
from tests.modelserve.feedback_cases import ACCOUNTING, body, row

Make = Callable[..., Service]
BEGIN = datetime(2020, 7, 25, tzinfo=UTC)
LATE = "2020-08-20T00:00:00Z"


def report(number: int, gib: float, answer_id: str | None = None) -> dict[str, object]:
    begin = BEGIN + timedelta(minutes=number)
    times = {"submit_ts": begin, "start_ts": begin, "end_ts": begin + timedelta(seconds=300)}
    used = {"cpu_cores": 2.0, "gpus": 0.1, "mem_max_gib": gib, "gpu_mem_max_gib": 3.0}
    return row(f"r{number}", **{name: at.isoformat() for name, at in times.items()}, used=used, answer_id=answer_id)


def recommended(client: TestClient) -> tuple[float, int]:
    """Return the memory target of the next job, and the number of measured runs behind it."""
    asked = {"jobs": [job(submit_ts=LATE)]}
    [answer] = client.post("/v1/recommendations", json=asked, headers=bearer("predictor")).json()["recommendations"]
    return answer["target"]["mem_gib"], answer["evidence"]["measured_runs"]


@pytest.mark.parametrize("named", [False, True])
def test_two_hundred_forged_reports_in_one_call_move_no_target(make_service: Make, tmp_path: Path, named: bool) -> None:
    service = make_service(store=f"sqlite:///{tmp_path}/a.db", tokens=TOKENS)
    service.take_feedback(body([report(2 * number, 9.0 + number % 5) for number in range(40)]), ACCOUNTING)
    client = TestClient(create_app(service))
    before = recommended(client)
    asked = {"jobs": [job(f"r{2 * number + 1}", submit_ts=LATE) for number in range(200)]}
    said = client.post("/v1/recommendations", json=asked, headers=bearer("predictor"))
    prefix = client.post("/v1/feedback", json={}).headers["x-request-id"].rpartition("-")[0]
    ids = [said.json()["answer_id"]] if named else [f"{prefix}-{number}" for number in range(200)]

    lies = [report(2 * number + 1, 0.5, ids[number % len(ids)]) for number in range(200)]
    taken = client.post("/v1/feedback", json={"feedback": lies}, headers=bearer("reporter"))

    assert {each["trust"] for each in taken.json()["results"]} == {"shown"}
    assert recommended(client) == before
    assert not said.json()["answer_id"].startswith(prefix)
    assert said.json()["answer_id"] not in said.headers.values()
