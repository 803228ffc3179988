"""The gate: names, tokens, rates, and failures in the shape of their protocol."""

import json
import sys
from collections.abc import Callable

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from tests.modelserve.api.conftest import TOKENS, bearer, job

Make = Callable[..., TestClient]

PROBLEM = {"type", "title", "status", "detail", "instance", "request_id", "errors"}


def check_problem(answer: object, status: int) -> dict[str, object]:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert set(said) == PROBLEM
    assert said["status"] == status
    assert said["request_id"] == answer.headers["x-request-id"]
    return said


@pytest.mark.parametrize("path", ["/v2/nothing", "/v2/models/a/b/c/d"])
def test_an_unknown_path_of_the_protocol_is_an_error_of_the_protocol(call: Make, path: str) -> None:
    answer = call().get(path)

    assert answer.status_code == 404
    assert set(answer.json()) == {"error"}
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v2/health/ready", "/v1/nothing"])
def test_head_is_answered_as_get_without_the_body(call: Make, path: str) -> None:
    client = call()

    asked, answer = client.get(path), client.head(path)

    assert answer.status_code == asked.status_code
    assert answer.headers["content-type"] == asked.headers["content-type"]
    assert answer.content == b""


def test_head_passes_no_token_by_and_no_method(call: Make) -> None:
    client = call(tokens=TOKENS)

    assert client.head("/metrics").status_code == 401
    refused = client.head("/v1/predictions", headers=bearer("predictor"))
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("given", ["a1", "A.b_c-9", "x" * 64])
def test_a_sane_request_id_comes_back(call: Make, given: str) -> None:
    assert call().get("/healthz", headers={"x-request-id": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", 'a"b', "a\u00e9".encode("latin-1")])
def test_any_other_request_id_is_replaced(call: Make, given: str | bytes) -> None:
    client = call()

    found = [client.get("/healthz", headers={"x-request-id": given}).headers["x-request-id"] for _ in range(3)]

    assert len(set(found)) == 3
    assert given not in found


def test_a_call_without_a_token_is_challenged(call: Make) -> None:
    answer = call(tokens=TOKENS).get("/metrics")

    check_problem(answer, 401)
    assert answer.headers["www-authenticate"] == 'Bearer realm="taut"'


@pytest.mark.parametrize(
    "given", ["Bearer nonsense", "Bearer ", "Basic dGV4dA==", "text-of-chief", "Bearer " + "x" * 9999]
)
def test_an_unknown_token_is_refused(call: Make, given: str) -> None:
    answer = call(tokens=TOKENS).get("/metrics", headers={"authorization": given})

    check_problem(answer, 401)
    assert "invalid_token" in answer.headers["www-authenticate"]


def test_metrics_are_for_tokens_that_reach_everything(call: Make) -> None:
    client = call(tokens=TOKENS)

    assert client.get("/metrics", headers=bearer("predictor")).status_code == 200
    check_problem(client.get("/metrics", headers=bearer("bound")), 403)


def test_calls_beyond_the_rate_are_told_when_to_come_again(call: Make) -> None:
    client = call(tokens=TOKENS, calls_per_s=2.0)

    answers = [client.get("/metrics", headers=bearer("predictor")) for _ in range(10)]

    late = [answer for answer in answers if answer.status_code != 200]
    assert late
    for answer in late:
        check_problem(answer, 429)
        assert int(answer.headers["retry-after"]) >= 1
    assert client.get("/metrics", headers=bearer("chief")).status_code == 200


def test_what_nobody_foresaw_is_a_failure_that_tells_nothing(call: Make, caplog: pytest.LogCaptureFixture) -> None:
    client = call()

    async def fall_over(_: Request) -> Response:
        raise RuntimeError("the password is 1234")

    client.app.add_route("/falls", fall_over)
    answer = client.get("/falls")

    check_problem(answer, 500)
    assert "1234" not in answer.text
    assert "1234" in caplog.text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/healthz", "no parameters here"),
        ("/v1/mode", "no parameters here"),
        ("/v1/drift", "one of trace, task_type"),
        ("/v1/models/runtime.pai.ctr/card", "no parameters here"),
    ],
)
def test_an_unknown_parameter_is_refused_with_those_that_are_known(call: Make, path: str, expected: str) -> None:
    said = check_problem(call().get(f"{path}?tarce=pai"), 422)

    assert said["errors"] == [{"field": "query.tarce", "expected": expected}]


@pytest.mark.parametrize("path", ["/v2", "/v2/health/live", "/v2/models/runtime.pai.ctr/ready"])
def test_an_unknown_parameter_of_the_protocol_is_an_error_of_the_protocol(call: Make, path: str) -> None:
    answer = call().get(f"{path}?x=1")

    assert (answer.status_code, answer.json()) == (400, {"error": "query.x: expected no parameters here"})


@pytest.mark.parametrize("path", ["/metrics", "/docs", "/openapi.json"])
def test_pages_take_any_parameter(call: Make, path: str) -> None:
    assert call().get(f"{path}?x=1").status_code == 200


def test_a_line_is_logged_for_each_call(
    hollow: Callable[..., FastAPI], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelserve.api.gate.sys", sys)
    with TestClient(hollow(tokens=TOKENS)) as client:
        client.get("/metrics?secret=s1", headers={**bearer("predictor"), "x-request-id": "r1"})
        client.get("/v1/n\u00f6thing")

    first, second = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert first["request_id"] == "r1"
    assert (first["route"], first["status"], first["caller"]) == ("/metrics", 200, "predictor")
    assert "s1" not in str(first)
    assert (second["route"], second["status"], second["caller"]) == ("unknown", 401, None)


def test_bodies_of_all_calls_together_are_bounded(hollow: Callable[..., FastAPI]) -> None:
    app = hollow(body_limit_bytes=100_000)
    large = {"jobs": [job(f"a{i}") for i in range(100)]}
    others = 8 * 100_000 - 1000

    with TestClient(app) as client:
        app.state.desk.held_bytes += others
        refused = client.post("/v1/predictions", json=large)
        small = client.post("/v1/predictions", json={"jobs": []})

    assert (refused.status_code, refused.headers["retry-after"].isdigit()) == (503, True)
    assert small.status_code == 422
    assert app.state.desk.held_bytes == others
