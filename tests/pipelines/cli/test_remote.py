"""`taut recommend` and `taut predict` against a running service, and its logged answers made again."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from tests.modelserve.running import running

LOG_LIMIT_S = 20.0

JOBS = [
    {
        "job_id": f"j{i}",
        "task_type": task_type,
        "user": f"u{i % 3}",
        "group": "g0",
        "cluster": "pai",
        "role": "worker",
        "gpu_type": "T4",
        "instances": 2,
        "submit_ts": "2020-08-01T09:30:00Z",
        "request": {"cpu_cores": 6, "mem_gib": 29.3, "gpus": 0.5},
    }
    for i, task_type in enumerate(["ctr", "ctr", "speech", "ctr"])
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def service(place: Path) -> Iterator[str]:
    (place / "jobs.jsonl").write_text("\n".join(map(json.dumps, JOBS)))
    with running(place) as address:
        yield address


def taut(*arguments: object, **variables: str) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments], env=variables)


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("options", [[], ["--theta", "0.2"], ["--guard", "none"], ["--alpha0", "0.6"]])
def test_a_service_recommends_the_rows_of_this_process(place: Path, service: str, options: list[str]) -> None:
    there = rows(taut("recommend", place / "jobs.jsonl", "--url", service, "--trace", "pai", *options))
    here = rows(
        taut("recommend", place / "jobs.jsonl", "--lake", place / "lake", "--trace", "pai", "--offline", *options)
    )

    beside = {"mode", "answer_id"}
    assert [list(row) for row in there] == [[*row, "mode", "answer_id"] for row in here]
    assert [{k: v for k, v in row.items() if k not in beside} for row in there] == here


def test_requests_go_no_further_than_the_least_share(place: Path, service: str) -> None:
    usual, held = (
        rows(taut("recommend", place / "jobs.jsonl", "--url", service, "--trace", "pai", *options))[0]
        for options in ([], ["--alpha0", "0.9"])
    )

    assert float(usual["mem_gib_target"]) < 0.9 * float(usual["mem_gib"])  # type: ignore[arg-type]  # of JSON
    assert float(held["mem_gib_target"]) >= 0.9 * float(held["mem_gib"])  # type: ignore[arg-type]  # of JSON


def test_how_many_runs_are_sure_is_the_services_own_setting(place: Path, service: str) -> None:
    result = taut("recommend", place / "jobs.jsonl", "--url", service, "--trace", "pai", "--sure-runs", "9")

    assert result.exit_code == 2
    assert "TAUT_SERVE_TYPES" in result.stderr


def test_a_service_predicts_the_rows_of_this_process(place: Path, service: str) -> None:
    there = rows(taut("predict", place / "jobs.jsonl", "--url", service, "--trace", "pai"))
    here = rows(taut("predict", place / "jobs.jsonl", "--lake", place / "lake", "--trace", "pai", "--offline"))

    assert [{k: pytest.approx(v) if isinstance(v, float) else v for k, v in row.items()} for row in here] == [
        {k: v for k, v in row.items() if k in here[0]} for row in there
    ]
    assert [row["reason"] for row in there] == [None, None, "no_model", None]
    for each in (there, here):
        assert [(row["basis"], row["ended_jobs"]) for row in each] == [("model", 0)] * 2 + [(None, None), ("model", 0)]


def explained(place: Path, answer_id: object) -> Result:
    store = f"sqlite:///{place}/serve.db"
    return taut("recommend", "--explain", answer_id, "--store", store, "--bundles", place / "bundles")


def logged(place: Path, service: str) -> str:
    """Return the id of an answer that is in the log."""
    answer_id = str(rows(taut("recommend", place / "jobs.jsonl", "--url", service, "--trace", "pai"))[0]["answer_id"])
    until = time.monotonic() + LOG_LIMIT_S
    while "is not in" in explained(place, answer_id).stderr:
        assert time.monotonic() < until, f"{answer_id} was not logged in time"
    return answer_id


def test_a_logged_answer_is_shown_with_its_evidence(place: Path, service: str) -> None:
    answer_id = logged(place, service)

    result = explained(place, answer_id)

    found = rows(result)
    assert [row["job_id"] for row in found] == [job["job_id"] for job in JOBS]
    assert found[0]["runtime_history"] == found[0]["usage_history"] == 0
    assert str(found[0]["contributions"]).startswith("base ")
    assert found[2]["contributions"] is None
    assert "of the XGBoost member alone" in result.stderr


def test_an_answer_that_is_not_kept_fails(place: Path, service: str) -> None:
    result = explained(place, "nobody-1")

    assert result.exit_code == 1
    assert "nobody-1" in result.stderr


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = explained(tmp_path, "a-1")

    assert result.exit_code == 1
    assert "found no file" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["jobs.jsonl", "--explain", "a-1"]])
def test_jobs_and_explain_are_one_or_the_other(arguments: list[str]) -> None:
    result = taut("recommend", *arguments)

    assert result.exit_code == 2
    assert "--explain" in result.stderr


@pytest.mark.parametrize("command", ["recommend", "predict"])
def test_a_service_that_is_away_fails_in_one_line(place: Path, service: str, command: str) -> None:
    result = taut(command, place / "jobs.jsonl", "--url", "http://127.0.0.1:9")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert "http://127.0.0.1:9" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_token_is_read_from_a_file_or_the_environment_and_never_shown(place: Path, service: str) -> None:
    (place / "token").write_text("s3cret token\n")
    asked = ["recommend", place / "jobs.jsonl", "--url", service]

    by_file = taut(*asked, "--token-file", place / "token")
    by_variable = taut(*asked, TAUT_TOKEN="s3cret token")
    missing = taut(*asked, "--token-file", place / "nowhere")
    (place / "bytes").write_bytes(b"\xff")
    garbled = taut(*asked, "--token-file", place / "bytes")

    assert by_file.exit_code == by_variable.exit_code == 1
    assert "visible ASCII" in by_file.stderr
    assert "s3cret" not in by_file.stderr + by_variable.stderr
    assert missing.exit_code == garbled.exit_code == 2
    assert "it is not UTF-8 text; expected a file" in garbled.stderr
