"""MLflow's scoring formats: the payloads that its documentation shows, with our columns, and its clients' own."""

import json
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from tests.modelserve.api.conftest import TOKENS, bearer
from tests.modelserve.mirrored import Folder

Make = Callable[..., TestClient]

COLUMNS = ["submit_ts", "user", "cluster", "instances", "req_gpus"]
ROWS = [["2020-08-01T09:30:00", "u1", "pai", 1, 0.5], ["2020-08-01 09:30:00", "u2", "pai", 2, None]]
RECORDS = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
FORMATS = {
    "dataframe_split": {"columns": COLUMNS, "data": ROWS},
    "dataframe_split with index": {"index": [0, 1], "columns": COLUMNS, "data": ROWS},
    "dataframe_records": RECORDS,
    "instances": RECORDS,
    "inputs": {name: [row[i] for row in ROWS] for i, name in enumerate(COLUMNS)},
}
CSV = "submit_ts,user,cluster,instances,req_gpus\n2020-08-01T09:30:00,u1,pai,1,0.5\n2020-08-01 09:30:00,u2,pai,2,\n"
INVOKE = "/invocations?model=runtime.pai.ctr"


def check_error(answer: object, status: int, code: str) -> str:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    said = answer.json()
    assert set(said) == {"error_code", "message"}
    assert said["error_code"] == code
    return said["message"]


def test_a_serving_process_answers_ping_and_version(client: TestClient) -> None:
    assert (client.get("/ping").status_code, client.get("/ping").text) == (200, "\n")
    assert client.get("/version").status_code == 200


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_brings_the_same_answer(client: TestClient, form: str) -> None:
    answer = client.post(INVOKE, json={form.split()[0]: FORMATS[form]})
    from_csv = client.post(INVOKE, content=CSV, headers={"content-type": "text/csv"})

    assert answer.status_code == 200
    assert answer.json() == from_csv.json()
    assert [set(each) for each in answer.json()["predictions"]] == [{"run_s_p50", "run_s_p90"}] * 2


@pytest.mark.slow
def test_the_answer_is_that_of_the_model_loaded_by_mlflow(serve: Make, folder: Folder) -> None:
    import pandas as pd

    from modelserve.bundle.flavor import _load_pyfunc

    frame = pd.DataFrame(RECORDS)
    frame["submit_ts"] = pd.to_datetime(frame["submit_ts"], format="ISO8601")
    expected = _load_pyfunc(str(folder.path / "runtime.pai.ctr" / "1")).predict(frame)

    answer = serve().post(INVOKE, json={"dataframe_records": RECORDS}).json()["predictions"]

    assert pd.DataFrame(answer).to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-6)


def test_a_frame_as_mlflows_client_writes_it_is_taken(client: TestClient) -> None:
    body = {"dataframe_split": {"columns": ["submit_ts", "user"], "index": [0], "data": [[1596274200000, "u1"]]}}
    headers = {"content-type": "application/json; charset=utf-8"}

    assert client.post(INVOKE, content=json.dumps(body), headers=headers).status_code == 200


def test_a_model_may_be_named_by_params(client: TestClient) -> None:
    body = {"inputs": {"user": ["u1"]}, "params": {"model": "usage.pai.ctr"}}

    said = client.post("/invocations", json=body).json()["predictions"]

    assert set(said[0]) == {"used_cpu_cores", "used_mem_gib", "used_gpus", "used_gpu_mem_gib"}


def test_of_several_models_one_has_to_be_named(client: TestClient) -> None:
    message = check_error(client.post("/invocations", json={"inputs": {"user": ["u1"]}}), 400, "BAD_REQUEST")

    assert "runtime.pai.ctr, usage.pai.ctr" in message


def test_the_only_model_needs_no_name(serve: Make, folder: Folder) -> None:
    (folder.path / "usage.pai.ctr" / "champion.json").unlink()

    assert serve().post("/invocations", json={"inputs": {"user": "u1"}}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"inputs": {"user": ["u1"]}, "instances": [{"user": "u1"}]},
        {"inputs": {}},
        {"inputs": {"user": []}},
        {"inputs": {"user": ["a", "b"], "role": ["a"]}},
        {"inputs": {"nothing": [1]}},
        {"instances": [[1, 2]]},
        {"dataframe_records": []},
        {"dataframe_split": {"columns": ["user", "user"], "data": [["a", "b"]]}},
        {"dataframe_split": {"columns": ["user"], "data": [["a", "b"]]}},
        {"inputs": {"instances": ["many"]}},
        {"inputs": {"user": ["u1"]}, "params": {"model": 1}},
    ],
)
def test_what_cannot_be_meant_is_a_bad_request(client: TestClient, body: object) -> None:
    assert check_error(client.post(INVOKE, json=body), 400, "BAD_REQUEST")


@pytest.mark.parametrize(
    ("column", "value", "found"),
    [("req_cpu_cores", -1, "-1"), ("instances", 0, "0"), ("user", "u" * 300, "'uuu"), ("submit_ts", "noon", "'noon'")],
)
def test_a_value_at_fault_is_named_by_its_column_and_row(
    client: TestClient, column: str, value: object, found: str
) -> None:
    records = [{"user": "u1"}, {"user": "u2", column: value}]

    message = check_error(client.post(INVOKE, json={"dataframe_records": records}), 400, "BAD_REQUEST")

    assert message.startswith(f"column {column!r}, row 1: ")
    assert f"found {found}" in message


def test_a_row_out_of_reach_is_named(serve: Make) -> None:
    records = [{"cluster": "c1"}, {"cluster": "c2"}]
    answer = serve(tokens=TOKENS).post(INVOKE, json={"dataframe_records": records}, headers=bearer("bound"))

    assert check_error(answer, 403, "PERMISSION_DENIED").startswith("row 1.cluster: ")


@pytest.mark.parametrize("body", [b"", b"user\n", b"user\n\xff\n", b'user\n"a', b"user,user\na,b\n", b"user\na,b\n"])
def test_what_is_no_csv_is_a_bad_request(client: TestClient, body: bytes) -> None:
    assert check_error(client.post(INVOKE, content=body, headers={"content-type": "text/csv"}), 400, "BAD_REQUEST")


def test_failures_of_every_kind_have_mlflows_shape(serve: Make) -> None:
    client = serve(tokens=TOKENS, body_limit_bytes=1024)
    mine = bearer("predictor")

    check_error(client.post(INVOKE, json={}), 401, "UNAUTHENTICATED")
    check_error(client.post(INVOKE, json={}, headers=bearer("reporter")), 403, "PERMISSION_DENIED")
    check_error(client.post("/invocations?model=no", json=FORMATS, headers=mine), 400, "BAD_REQUEST")
    named = {"inputs": {"user": ["u1"]}}
    check_error(client.post("/invocations?model=no", json=named, headers=mine), 404, "RESOURCE_DOES_NOT_EXIST")
    check_error(client.post(INVOKE, content=b" " * 2000, headers=mine), 413, "BAD_REQUEST")
    check_error(client.post(INVOKE, content=b"", headers={**mine, "content-type": "text/plain"}), 415, "BAD_REQUEST")
