"""Reservations over HTTP: limits, fields at fault, floors of tenants, and counts."""

import json
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from modelserve.contract.reservations import MAX_RUNNING, MAX_SAMPLES
from tests.modelserve.api.conftest import job
from tests.modelserve.api.test_gate import check_problem

Make = Callable[..., TestClient]
PATH = "/v1/reservations"


def running(job_id: str = "a1", count: int = 30, **changes: object) -> dict[str, object]:
    samples = {
        "at_s": [60.0 * (i + 1) for i in range(count)],
        "cpu_cores": [1.0 + i % 3 / 10 for i in range(count)],
        "gpus": [0.1] * count,
        "mem_gib": [4.0] * count,
        "gpu_mem_gib": [2.0] * count,
    }
    return {**job(job_id), "age_s": 60.0 * count + 30.0, "samples": samples, **changes}


def posted(client: TestClient, *jobs: object) -> object:
    body = json.dumps({"jobs": list(jobs)}).encode()
    return client.post(PATH, content=body, headers={"content-type": "application/json"})


AT_FAULT: tuple[tuple[dict[str, object], str], ...] = (
    ({"samples": {"at_s": ["60"]}}, "samples.at_s.0"),
    ({"samples": {"at_s": [True]}}, "samples.at_s.0"),
    ({"samples": {"cpu_cores": [1.0]}}, "samples.at_s"),
    ({"samples": {"at_s": [0.0], "watts": [1.0]}}, "samples.watts"),
    ({"samples": {"at_s": [0.0] * (MAX_SAMPLES + 1)}}, "samples.at_s"),
    ({"statistics": {"count": -1}}, "statistics.count"),
    ({"statistics": {"count": 1, "gpus": {"mean": 1.0}}}, "statistics.gpus.recent"),
    ({"age_s": -1.0}, "age_s"),
    ({"age_s": float("nan")}, "age_s"),
    ({"held": "yes"}, "held"),
    ({"device_mem_gib": 0.0}, "device_mem_gib"),
    ({"request": {"gpus": float("inf")}}, "request.gpus"),
)


@pytest.mark.parametrize("others", [0, 30], ids=["small", "large"])
def test_a_field_at_fault_is_named(serve: Make, others: int) -> None:
    client = serve()
    more = [running(f"b{i}") for i in range(others)]

    for changes, field in AT_FAULT:
        said = check_problem(posted(client, running(**changes), *more), 422)
        assert said["errors"][0]["field"] == f"jobs.0.{field}"


def test_a_thousand_jobs_of_sixty_samples_are_answered_in_order(serve: Make) -> None:
    answer = posted(serve(), *(running(f"j{i}", MAX_SAMPLES) for i in range(MAX_RUNNING)))

    rows = answer.json()["reservations"]
    assert [row["job_id"] for row in rows] == [f"j{i}" for i in range(MAX_RUNNING)]
    assert {row["reason"] for row in rows} == {"measured"}


def test_whole_numbers_count_as_any_other(serve: Make) -> None:
    whole = running(instances=2.0, age_s=1830)

    assert posted(serve(), whole).json()["reservations"] == posted(serve(), running()).json()["reservations"]


def test_reservations_are_counted_and_named_in_the_metrics(serve: Make) -> None:
    client = serve()
    spoilt = running("b")
    spoilt["samples"]["gpus"][4] = float("nan")

    assert posted(client, running(), spoilt).status_code == 200
    page = client.get("/metrics").text

    assert 'taut_reservations_total{reason="measured"} 1.0' in page
    assert 'taut_reservations_total{reason="refused"} 1.0' in page
    assert 'taut_samples_refused_total{why="out_of_range"} 1.0' in page
    assert 'taut_running_amount_total{resource="cpu_cores"} 24.0' in page
    assert 'taut_reserved_amount_total{resource="mem_gib"}' in page
