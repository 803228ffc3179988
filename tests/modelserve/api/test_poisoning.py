"""Forged reports over HTTP: no memory target falls below what the honest reports alone give."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from modelserve.api.app import create_app
from modelserve.callers import ANYONE
from modelserve.service import Service
from tests.modelserve.api.conftest import job
from tests.modelserve.feedback_cases import answered, body, row

Make = Callable[..., Service]
BEGIN = datetime(2020, 7, 25, tzinfo=UTC)
LATE = "2020-08-20T00:00:00Z"


def report(number: int, gib: float, answer_id: str | None) -> dict[str, object]:
    begin = BEGIN + timedelta(minutes=number)
    times = {"submit_ts": begin, "start_ts": begin, "end_ts": begin + timedelta(seconds=300)}
    used = {"cpu_cores": 2.0, "gpus": 0.1, "mem_max_gib": gib, "gpu_mem_max_gib": 3.0}
    return row(f"r{number}", **{name: at.isoformat() for name, at in times.items()}, used=used, answer_id=answer_id)


def recommended(service: Service) -> tuple[float, int]:
    """Return the memory target of the next job, and the number of measured runs behind it."""
    said = TestClient(create_app(service)).post("/v1/recommendations", json={"jobs": [job(submit_ts=LATE)]}).json()
    [answer] = said["recommendations"]
    return answer["target"]["mem_gib"], answer["evidence"]["measured_runs"]


def take(service: Service, reports: list[dict[str, object]]) -> None:
    service.take_feedback(body(reports), ANYONE)


@pytest.mark.parametrize("tied", [False, True])
def test_a_fifth_of_forged_reports_lowers_no_target(make_service: Make, tmp_path: Path, tied: bool) -> None:
    honest, poisoned = (make_service(store=f"sqlite:///{tmp_path}/{name}.db") for name in "ab")
    for service in (honest, poisoned):
        answered(service, "true", jobs=40)
        answered(service, "lies", jobs=10)
    true = [report(2 * number, 9.0 + number % 5, "true") for number in range(40)]
    lies = [report(2 * number + 1, 0.5, "lies" if tied else None) for number in range(10 if tied else 200)]

    take(honest, true)
    take(poisoned, true[:20] + lies[:4] + true[20:] + lies[4:])

    # The model of the tests reads little from the history; that no lie is among the measured runs it cannot hide.
    assert recommended(poisoned) == recommended(honest)
