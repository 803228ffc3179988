"""The Open Inference Protocol's own rules, and the requests of its specification in our terms."""

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from tests.modelserve.api.conftest import TOKENS, bearer, job

Make = Callable[..., TestClient]

INFER = "/v2/models/runtime.pai.ctr/infer"


def tensor(name: str, datatype: str, data: list[object], shape: list[int] | None = None) -> dict[str, object]:
    return {"name": name, "shape": shape or [len(data)], "datatype": datatype, "data": data}


TWO = [
    tensor("user", "BYTES", ["u1", "u2"]),
    tensor("cluster", "BYTES", ["pai", "pai"]),
    tensor("instances", "INT64", [2, 1]),
    tensor("req_gpus", "FP64", [0.5, None]),
    tensor("submit_ts", "BYTES", ["2020-08-01T09:30:00", "2020-08-01T09:30:00Z"]),
]


def check_error(answer: object, status: int) -> str:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    said = answer.json()
    assert list(said) == ["error"]
    assert isinstance(said["error"], str)
    return said["error"]


@pytest.mark.parametrize(
    "path", ["/v2/models/nobody", "/v2/models/runtime.pai.ctr/versions/99", "/v2/models/nobody/ready", INFER + "s"]
)
def test_what_does_not_serve_is_not_found(client: TestClient, path: str) -> None:
    check_error(client.get(path), 404)


def test_an_id_that_is_sent_comes_back(client: TestClient) -> None:
    sent = client.post(INFER, json={"id": "call-1", "inputs": TWO}).json()
    unsent = client.post(INFER, json={"inputs": TWO}).json()

    assert sent["id"] == "call-1"
    assert unsent["id"] == unsent["parameters"]["answer_id"]


def test_outputs_are_columns_of_one_row_a_job(client: TestClient) -> None:
    said = client.post(INFER, json={"inputs": TWO}).json()

    assert (said["model_name"], said["model_version"]) == ("runtime.pai.ctr", "1")
    for output in said["outputs"]:
        assert output["datatype"] == "FP64"
        assert output["shape"] == [2, 1]
        assert len(output["data"]) == 2
        assert all(value > 0 for value in output["data"])


def test_the_outputs_wanted_are_given_and_no_others(client: TestClient) -> None:
    said = client.post(INFER, json={"inputs": TWO, "outputs": [{"name": "run_s_p90"}]}).json()

    assert [each["name"] for each in said["outputs"]] == ["run_s_p90"]


def test_the_answer_is_that_of_a_prediction(client: TestClient) -> None:
    whole = {key: value for key, value in job().items() if key not in ("job_id", "task_type", "request")}
    requests = {f"req_{key}": value for key, value in job()["request"].items()}
    types = {str: "BYTES", int: "INT64", float: "FP64"}
    inputs = [tensor(name, types[type(value)], [value]) for name, value in {**whole, **requests}.items()]

    inferred = client.post(INFER, json={"inputs": inputs}).json()
    predicted = client.post("/v1/predictions", json={"jobs": [job()]}).json()

    p50, p90 = [each["data"][0] for each in inferred["outputs"]]
    assert predicted["predictions"][0]["run_time_s"] == {"p50": p50, "p90": p90}


@pytest.mark.parametrize("shape", [[2], [2, 1]])
@pytest.mark.parametrize("nested", [False, True])
def test_data_may_be_flat_or_a_list_a_row(client: TestClient, shape: list[int], nested: bool) -> None:
    data = [["u1"], ["u2"]] if nested else ["u1", "u2"]

    assert client.post(INFER, json={"inputs": [tensor("user", "BYTES", data, shape)]}).status_code == 200


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([tensor("nothing", "BYTES", ["a"])], "no such input"),
        ([tensor("user", "FP64", [1.0])], "expected text, found 1.0"),
        ([tensor("instances", "BOOL", [True])], "expected a whole number, found True"),
        ([tensor("instances", "INT64", [True])], "True"),
        ([tensor("instances", "INT64", [1.5])], "1.5"),
        ([tensor("instances", "INT64", [0])], "instances"),
        ([tensor("user", "BYTES", [1])], "expected text"),
        ([tensor("req_gpus", "BYTES", ["1"])], "expected a number"),
        ([tensor("user", "TEXT", ["a"])], "datatype"),
        ([tensor("user", "BYTES", ["a", "b"], [3])], "expected 3"),
        ([tensor("user", "BYTES", ["a", "b"], [1, 2])], "expected [n] or [n, 1]"),
        ([tensor("user", "BYTES", ["a", "b"], [-1])], "expected -1"),
        ([tensor("user", "BYTES", [], [0])], "expected 1 to"),
        ([tensor("user", "BYTES", ["a"]), tensor("role", "BYTES", ["a", "b"])], "as many as user has"),
        ([tensor("user", "BYTES", ["a"]), tensor("user", "BYTES", ["a"])], "there twice"),
        ([tensor("submit_ts", "BYTES", ["yesterday"])], "submit_ts"),
        ([], "inputs"),
    ],
)
def test_what_cannot_be_meant_is_refused(client: TestClient, inputs: list[object], said: str) -> None:
    assert said in check_error(client.post(INFER, json={"inputs": inputs}), 400)


def test_an_output_that_is_not_there_is_refused(client: TestClient) -> None:
    answer = client.post(INFER, json={"inputs": TWO, "outputs": [{"name": "nothing"}]})

    assert "no such output" in check_error(answer, 400)


@pytest.mark.parametrize(
    ("extra", "headers"),
    [
        ({"parameters": {"binary_data_output": True}}, {}),
        ({"outputs": [{"name": "run_s_p50", "parameters": {"binary_data": True}}]}, {}),
        ({}, {"inference-header-content-length": "10"}),
    ],
)
def test_the_binary_extension_is_refused_by_name(
    client: TestClient, extra: dict[str, object], headers: dict[str, str]
) -> None:
    answer = client.post(INFER, json={"inputs": TWO, **extra}, headers=headers)

    assert "binary" in check_error(answer, 400)


def test_failures_of_every_kind_have_the_shape_of_the_protocol(serve: Make) -> None:
    client = serve(tokens=TOKENS, body_limit_bytes=1024)

    check_error(client.get("/v2/models/runtime.pai.ctr"), 401)
    check_error(client.post(INFER, json={"inputs": []}, headers=bearer("reporter")), 403)
    check_error(client.post(INFER, content=b"{", headers=bearer("predictor")), 400)
    check_error(client.post(INFER, content=b" " * 2000, headers=bearer("predictor")), 413)
    check_error(client.post(INFER, content=b"a", headers={**bearer("predictor"), "content-type": "text/plain"}), 415)
    check_error(client.delete("/v2", headers=bearer("predictor")), 405)


def test_a_job_of_another_cluster_is_out_of_reach(serve: Make) -> None:
    client = serve(tokens=TOKENS)

    check_error(client.post(INFER, json={"inputs": TWO}, headers=bearer("bound")), 403)
