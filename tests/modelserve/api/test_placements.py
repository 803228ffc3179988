"""Placements and explanations of waiting jobs over HTTP: fields at fault, limits, tokens, and log."""

import json
from collections.abc import Callable
from typing import get_args

import pytest
from starlette.testclient import TestClient

from modelserve.contract.placements import (
    MAX_EXPLAINED,
    MAX_MACHINES,
    MAX_QUEUED,
    MAX_RUNNING_JOBS,
    PlaceAnswer,
    PlacementName,
    Policy,
)
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queueing import QUEUE_POLICIES
from tests.modelserve.api.test_gate import check_problem

Make = Callable[..., TestClient]
PLACE, EXPLAIN, SCHEDULE = "/v1/placements", "/v1/explain-pending", "/v1/schedule"

MACHINE = {"machine": "m1", "cpu_cores": 16, "mem_gib": 64, "gpus": 4}
RUNNING = {"job_id": "r1", "request": {"cpu_cores": 8, "gpus": 3}, "on": [{"machine": "m1"}], "ends_in_s": 60.0}
JOB = {"job_id": "a1", "request": {"cpu_cores": 4, "gpus": 1}}
WAITS = {"job_id": "a2", "request": {"cpu_cores": 4, "gpus": 2}, "user": "u2"}


def cluster(**changes: object) -> dict[str, object]:
    return {"machines": [MACHINE], "running": [RUNNING], "jobs": [JOB, WAITS], "cluster": "c1", **changes}


def posted(client: TestClient, path: str, body: object) -> object:
    return client.post(path, content=json.dumps(body).encode(), headers={"content-type": "application/json"})


def test_the_names_of_the_contract_are_those_of_the_decisions() -> None:
    assert set(get_args(Policy)) == set(QUEUE_POLICIES)
    assert set(get_args(PlacementName)) == set(PLACEMENTS)


def test_each_job_gets_a_place_or_a_reason(serve: Make) -> None:
    client = serve()
    said = PlaceAnswer.model_validate(posted(client, PLACE, cluster()).json())

    first, second = said.placements
    assert (first.starts, first.on[0].machine, first.reason.code) == (True, "m1", "least_free")
    assert (second.starts, second.reason.code, second.reason.short) == (False, "room", {"gpus": 1})
    page = client.get("/metrics").text
    assert 'taut_placements_total{reason="least_free"} 1.0' in page
    assert 'taut_placements_total{reason="room"} 1.0' in page


AT_FAULT: tuple[tuple[dict[str, object], str], ...] = (
    ({"machines": []}, "machines"),
    ({"machines": [MACHINE, MACHINE]}, "machines.1.machine"),
    ({"machines": [{**MACHINE, "cpu_cores": -1}]}, "machines.0.cpu_cores"),
    ({"machines": [{**MACHINE, "mem_gib": float("nan")}]}, "machines.0.mem_gib"),
    ({"machines": [{**MACHINE, "gpus": 1.5}]}, "machines.0.gpus"),
    ({"machines": [{**MACHINE, "gpu_type": "T4|P100"}]}, "machines.0.gpu_type"),
    ({"running": [{**RUNNING, "on": [{"machine": "m9"}]}]}, "running.0.on.0.machine"),
    ({"running": [{**RUNNING, "request": {"cpu_cores": 17}}]}, "running.0"),
    ({"running": [{**RUNNING, "on": []}]}, "running.0.on"),
    ({"running": [{**RUNNING, "job_id": "a1"}]}, "jobs.0.job_id"),
    ({"running": [{**RUNNING, "ends_in_s": -1.0}]}, "running.0.ends_in_s"),
    ({"jobs": [JOB, JOB]}, "jobs.1.job_id"),
    ({"jobs": [{**JOB, "instances": 0}]}, "jobs.0.instances"),
    ({"jobs": [{**JOB, "machines": ["m9"]}]}, "jobs.0.machines.0"),
    ({"jobs": [{**JOB, "job_id": f"j{i}", "instances": 10_000} for i in range(3)]}, "jobs"),
    ({"jobs": [{**JOB, "surplus": 1}]}, "jobs.0.surplus"),
    ({"jobs": [JOB, {**WAITS, "cluster": "c2"}]}, "jobs.1.cluster"),
    ({"jobs": [JOB, {**WAITS, "trace": "helios"}]}, "jobs.1.trace"),
    ({"policy": "lifo"}, "policy"),
    ({"placement": "fgd", "sharing": "pooled"}, "sharing"),
    ({"overtakes": 1, "backfill": "easy"}, "discipline"),
)


@pytest.mark.parametrize("path", [PLACE, EXPLAIN, SCHEDULE])
def test_a_field_at_fault_is_named(serve: Make, path: str) -> None:
    client = serve()

    for changes, field in AT_FAULT:
        said = check_problem(posted(client, path, cluster(**changes)), 422)
        assert said["errors"][0]["field"] == field, changes
        assert "\n" not in said["detail"]


def test_lists_that_are_too_long_are_refused_by_their_field(serve: Make) -> None:
    client = serve()
    lists = {
        "machines": [{**MACHINE, "machine": f"m{i}"} for i in range(MAX_MACHINES + 1)],
        "running": [{**RUNNING, "job_id": f"r{i}"} for i in range(MAX_RUNNING_JOBS)] + [RUNNING],
        "jobs": [{**JOB, "job_id": f"j{i}"} for i in range(MAX_QUEUED + 1)],
        "explain": ["a1"] * (MAX_EXPLAINED + 1),
    }

    for field, rows in lists.items():
        said = check_problem(posted(client, EXPLAIN, cluster(**{field: rows})), 422)
        assert said["errors"][0]["field"] in (field, "body")
