"""Calls about jobs over HTTP: answers, and every way in which a body can be wrong."""

import json
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from tests.modelserve.api.conftest import TOKENS, bearer, job
from tests.modelserve.api.test_gate import check_problem

Make = Callable[..., TestClient]

CLUSTER = {
    "machines": [{"machine": "m1", "cpu_cores": 4, "mem_gib": 8}],
    "jobs": [{"job_id": "a1", "request": {"cpu_cores": 6}}],
}
ROUTES = {
    "sites": [
        {
            "site": name,
            "gpus": 8,
            "free": 8,
            "gpu_kw": 0.5,
            "price_usd_per_kwh": [usd] * 24,
            "carbon_g_per_kwh": [0] * 24,
        }
        for name, usd in (("a", 0.2), ("b", 0.05))
    ],
    "jobs": [{"job_id": "a1", "site": "a", "gpus": 4, "run_time_s": 14400, "due_in_s": 50000, "data_gb": 1.0}],
}
CALLS = {
    "/v1/predictions": {"jobs": [job()]},
    "/v1/recommendations": {"jobs": [job()]},
    "/v1/reservations": {"jobs": [job(age_s=60.0)]},
    "/v1/placements": CLUSTER,
    "/v1/schedule": {**CLUSTER, "cluster": "pai", "jobs": [job(instances=1)]},
    "/v1/explain-pending": CLUSTER,
    "/v1/route": ROUTES,
    "/v1/plan": {
        "objective": "carbon",
        "jobs": [job(request={"gpus": 2}, run_s=3600.0)],
        "nodes": [{"name": "a", "gpu_type": "V100", "gpus": 8, "gpu_idle_w": 30.0, "gpu_full_w": 300.0}],
        "g_per_kwh": 300.0,
        "budget_g": 500.0,
    },
    "/v1/hold": {
        "jobs": [job(request={"gpus": 2}, run_s=3600.0, slack_s=7200.0)],
        "by": "carbon",
        "hours": {"start_ts": "2023-06-01T00:00:00Z", "values": [300.0, 200.0, 100.0]},
        "now_ts": "2023-06-01T00:10:00Z",
    },
    "/v1/explanations": {"job": job()},
    "/v1/what-if": {"job": job(), "resource": "cpu_cores"},
}
OF_JOBS = ("/v1/predictions", "/v1/recommendations", "/v1/reservations")
LOGGED = (*OF_JOBS, "/v1/placements", "/v1/schedule", "/v1/explain-pending", "/v1/route", "/v1/plan", "/v1/hold")
DEEP = b"[" * 100_000
HUGE = b'{"jobs":' + b"9" * 5000 + b"}"


@pytest.mark.parametrize("path", CALLS)
def test_a_call_is_answered_under_its_own_name(client: TestClient, path: str) -> None:
    first, second = [client.post(path, json=CALLS[path], headers={"x-request-id": "mine"}) for _ in range(2)]

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.headers["x-request-id"] == "mine"
    ids = [answer.json().get("answer_id") for answer in (first, second)]
    # Answers that are not logged have no name to be made again by.
    assert ids[0] != ids[1] if path in LOGGED else ids == [None, None]


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize(
    "body", [b"", b"{", DEEP, HUGE, b'{"jobs":"\xff"}', b'{"trace":"\\ud800"}', b"\xff\xfe{\x00}\x00"]
)
def test_what_is_no_json_is_a_bad_request(client: TestClient, path: str, body: bytes) -> None:
    answer = client.post(path, content=body, headers={"content-type": "application/json"})

    check_problem(answer, 400)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"request": {"gpus": -1}}, "jobs.0.request.gpus"),
        ({"request": {"gpus": "many"}}, "jobs.0.request.gpus"),
        ({"instances": 0}, "jobs.0.instances"),
        ({"instances": 1e999}, "jobs.0.instances"),
        ({"request": {"mem_gib": float("nan")}}, "jobs.0.request.mem_gib"),
        ({"submit_ts": "yesterday"}, "jobs.0.submit_ts"),
        ({"surplus": 1}, "jobs.0.surplus"),
        ({"user": ""}, "jobs.0.user"),
        ({"request": {"mem_gib": True}}, "jobs.0.request.mem_gib"),
        ({"request": {"mem_gib": "6"}}, "jobs.0.request.mem_gib"),
        ({"opted_out": "yes"}, "jobs.0.opted_out"),
        ({"submit_ts": 1596274200}, "jobs.0.submit_ts"),
    ],
)
def test_a_field_at_fault_is_named(client: TestClient, changes: dict[str, object], field: str) -> None:
    body = json.dumps({"jobs": [job(**changes)]}).encode()

    said = check_problem(
        client.post("/v1/predictions", content=body, headers={"content-type": "application/json"}), 422
    )

    assert said["errors"][0]["field"] == field
    assert said["errors"][0]["expected"]


def test_too_many_jobs_are_refused_by_their_field(serve: Make) -> None:
    client = serve(rows_limit=3)

    said = check_problem(client.post("/v1/predictions", json={"jobs": [job()] * 4}), 422)

    assert said["errors"][0]["field"] == "jobs"
    assert "at most 3" in said["detail"]


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_too_large_is_refused(serve: Make, declared: bool) -> None:
    client = serve(body_limit_bytes=2000)
    chunks = [b" " * 1000] * 5

    answer = client.post(
        "/v1/predictions",
        content=b"".join(chunks) if declared else iter(chunks),
        headers={"content-type": "application/json"},
    )

    check_problem(answer, 413)
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    "headers", [{"content-type": "text/plain"}, {"content-type": "application/json", "content-encoding": "gzip"}]
)
def test_a_body_of_another_type_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    check_problem(client.post("/v1/predictions", content=b"{}", headers=headers), 415)


@pytest.mark.parametrize(
    ("path", "name"), [("/v1/feedback", "predictor"), ("/v1/mode", "predictor"), ("/v1/mode", "reporter")]
)
def test_a_token_without_the_scope_changes_nothing(serve: Make, path: str, name: str) -> None:
    body = {"trace": "pai", "mode": "enforce"}

    assert serve(tokens=TOKENS).post(path, json=body, headers=bearer(name)).status_code == 403


def test_what_was_predicted_is_counted(serve: Make) -> None:
    client = serve()

    client.post("/v1/predictions", json={"jobs": [job(), job("b"), job("c", task_type="new")]})
    client.post("/v1/recommendations", json={"jobs": [job()]})
    page = client.get("/metrics").text

    counted = 'taut_predictions_total{model="runtime.pai.ctr",outcome="predicted",version="1"} 2.0'
    assert counted in page
    assert 'taut_recommendations_total{reason="' in page
    assert 'taut_model_info{alias="champion",model="usage.pai.ctr",version="1"} 1.0' in page
    assert 'user="' not in page
    assert "job_id" not in page


MANY = b'{"jobs":[' + b"{}," * 90_000 + b"{}]}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((path, MANY) for path in (*CALLS, "/v1/feedback", "/v1/mode")),
        ("/v1/predictions", b'{"jobs":[' + b"0," * 700_000 + b"0]}"),
        ("/v1/predictions", b'{"jobs":[' + b"[]," * 200_000 + b"0]}"),
        ("/v1/predictions", b'{"jobs":[{' + b",".join(b'"%d":0' % i for i in range(100_000)) + b"}]}"),
        ("/v1/predictions", b"{" + b",".join(b'"%d":0' % i for i in range(100_000)) + b"}"),
    ],
)
def test_a_body_with_too_much_in_it_is_refused_at_once(client: TestClient, path: str, body: bytes) -> None:
    said = check_problem(client.post(path, content=body, headers={"content-type": "application/json"}), 422)

    assert said["errors"][0]["field"] == "body"
    assert len(said["errors"]) == 1


def test_of_many_bad_rows_the_first_is_named(client: TestClient) -> None:
    body = {"jobs": [job(instances=0)] * 5000}

    said = check_problem(client.post("/v1/predictions", json=body), 422)

    assert [each["field"] for each in said["errors"]] == ["jobs.0.instances"]


def test_ten_thousand_jobs_are_answered(client: TestClient) -> None:
    body = {"jobs": [job(str(i), user=f"user, {i}") for i in range(10_000)], "outputs": ["run_time"]}

    answer = client.post("/v1/predictions", json=body)

    assert answer.status_code == 200
    assert [row["job_id"] for row in answer.json()["predictions"]] == [str(i) for i in range(10_000)]
