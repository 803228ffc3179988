"""What holds for every call that is logged: tokens, erasure of a user, and the answer shown by the command."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from modelserve.contract.calls import CALLS as TABLE
from pipelines.cli import app
from tests.modelserve.api.conftest import TOKENS, bearer
from tests.modelserve.api.test_answers import CALLS, LOGGED

Make = Callable[..., TestClient]
OF_CALL = {of.path for of in TABLE if of.of_call}
ROWS = {of.path: of.rows or "pending" for of in TABLE if of.kind}


def body_of(path: str, *, cluster: str | None = "pai") -> dict[str, object]:
    """Return the body of a call whose jobs are in a cluster."""
    body = dict(CALLS[path])
    changes = {"cluster": cluster} if path not in OF_CALL else {}
    jobs = [{name: value for name, value in each.items() if name != "cluster"} | changes for each in body["jobs"]]
    return {**body, "jobs": jobs, **({"cluster": cluster} if path in OF_CALL else {})}


def test_the_table_says_which_calls_are_logged() -> None:
    assert set(LOGGED) == set(ROWS)


@pytest.mark.parametrize(
    ("name", "where", "status"),
    [
        ("predictor", "c2", 200), ("chief", "c2", 200), ("reporter", "c2", 403), ("bound", "c1", 200),
        ("bound", "c2", 403), ("bound", None, 403),
    ],
)  # fmt: skip
def test_a_token_does_what_its_scopes_and_bounds_allow(serve: Make, name: str, where: str | None, status: int) -> None:
    client = serve(tokens=TOKENS)
    for path in LOGGED:
        answer = client.post(path, json=body_of(path, cluster=where), headers=bearer(name))

        assert answer.status_code == status, path
        if name == "bound" and status == 403:
            field = "call.cluster" if path in OF_CALL else "jobs.0.cluster"
            assert answer.json()["errors"][0]["field"] == field, path


def test_the_command_shows_every_logged_answer_as_it_was(serve: Make) -> None:
    client = serve()
    answers = {path: client.post(path, json=body_of(path)).json() for path in LOGGED}
    service = client.app.state.desk.service  # type: ignore[attr-defined]
    service.log.flush()
    where = ["--store", service.settings.store]

    for path, said in answers.items():
        done = CliRunner().invoke(app, ["recommend", "--explain", said["answer_id"], *where])
        assert done.exit_code == 0, done.output
        rows = json.loads(done.stdout)
        assert [row["job_id"] for row in rows] == [row["job_id"] for row in said[ROWS[path]]], path
    listed = client.get("/v1/recommendations").json()["recommendations"]
    shrunk = [answers[path]["answer_id"] for path in ("/v1/schedule", "/v1/recommendations")]
    assert [row["answer_id"] for row in listed] == shrunk

    lost = CliRunner().invoke(app, ["recommend", "--explain", "lost-1", *where])
    assert (lost.exit_code, lost.stderr.count("\n")) == (1, 1)
    assert "lost-1" in lost.stderr


def test_a_store_that_does_not_exist_is_not_made_to_show_an_answer(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["recommend", "--explain", "a-1", "--store", f"sqlite:///{tmp_path}/serve.db"])

    assert done.exit_code == 1
    assert "found no file" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["jobs.jsonl", "--explain", "a-1"]])
def test_a_command_takes_jobs_or_the_id_of_an_answer(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["recommend", *arguments])

    assert result.exit_code == 2
    assert "--explain" in result.stderr
