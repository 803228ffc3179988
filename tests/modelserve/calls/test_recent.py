"""Recent recommendations: within reach, newest first, with what they freed and what became of their jobs."""

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from modelserve.calls import catalogue
from tests.modelserve.api.conftest import TOKENS, bearer, hollow, job, make_service, serve

__all__ = ["hollow", "make_service", "serve"]

Make = Callable[..., TestClient]
RUN = {
    "job_id": "a1", "task_type": "ctr", "user": "u1", "group": "g0", "cluster": "pai", "role": "worker",
    "instances": 2, "submit_ts": "2020-08-01T09:30:00Z", "start_ts": "2020-08-01T09:30:00Z",
    "end_ts": "2020-08-01T10:30:00Z", "outcome": "completed",
    "request": {"cpu_cores": 6, "mem_gib": 29.3, "gpus": 0.5},
    "allocation": {"cpu_cores": 4.2, "mem_gib": 20.51, "gpus": 0.45},
}  # fmt: skip


def recommend(client: TestClient, *jobs: dict[str, object], **headers: dict[str, str]) -> dict[str, object]:
    answer = client.post("/v1/recommendations", json={"jobs": list(jobs)}, **headers)
    assert answer.status_code == 200
    client.app.state.desk.service.log.flush()
    return answer.json()


def seen(client: TestClient, **asked: object) -> list[dict[str, object]]:
    answer = client.get("/v1/recommendations", **asked)
    assert answer.status_code == 200
    return answer.json()["recommendations"]


def test_the_newest_answer_comes_first_as_it_was_given(serve: Make) -> None:
    client = serve()
    recommend(client, job("a0"))
    said = recommend(client, job("a1"), job("a2", task_type="speech"))

    rows = seen(client)

    assert [row["job_id"] for row in rows] == ["a1", "a2", "a0"]
    given = said["recommendations"][0]
    assert rows[0]["answer_id"] == said["answer_id"]
    assert {name: rows[0][name] for name in ("request", "target", "reasons", "mode")} == {
        name: given[name] for name in ("request", "target", "reasons", "mode")
    }
    for resource, less in rows[0]["freed"].items():
        assert less == pytest.approx(2 * (given["request"][resource] - given["target"][resource]))
    assert rows[1]["reasons"]["gpus"] == "cold_start"
    assert rows[1]["freed"] == {"cpu_cores": 0.0, "mem_gib": 0.0, "gpus": 0.0}
    assert "user" not in rows[0]


def test_feedback_says_what_became_of_the_job(serve: Make) -> None:
    client = serve()
    said = recommend(client, job("a1"))
    assert client.post("/v1/feedback", json={"feedback": [{**RUN, "answer_id": said["answer_id"]}]}).status_code == 200
    recommend(client, job("a1"))

    again, first = seen(client)

    assert first["finished"]["outcome"] == "completed"
    assert first["finished"]["applied"] is True
    assert first["finished"]["run_s"] == 3600.0
    assert first["finished"]["saved_hours"]["cpu_cores"] == pytest.approx(2 * 1.8)
    assert again["finished"] is None, "the job followed the first answer"


def test_trace_and_type_choose(serve: Make) -> None:
    client = serve()
    recommend(client, job("a1"), job("a2", task_type="speech"), job("a3", trace="other"))

    assert [row["job_id"] for row in seen(client, params={"task_type": "ctr"})] == ["a1", "a3"]
    assert [row["job_id"] for row in seen(client, params={"trace": "other"})] == ["a3"]
    assert seen(client, params={"trace": "pai\u2019"}) == []


def test_nobody_sees_beyond_the_token(serve: Make) -> None:
    client = serve(tokens=TOKENS)
    jobs = [job("a1", cluster="c1"), job("a2", cluster="c2"), job("a3", cluster=None), job("a4", trace="other")]
    recommend(client, *jobs, headers=bearer("predictor"))

    assert [row["job_id"] for row in seen(client, headers=bearer("bound"))] == ["a1"]
    assert len(seen(client, headers=bearer("predictor"))) == 4
    assert client.get("/v1/recommendations", headers=bearer("reporter")).status_code == 403
    assert client.get("/v1/recommendations").status_code == 401


def test_what_is_shown_is_bounded(serve: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "RECENT_SHOWN", 3)
    client = serve()
    recommend(client, *[job(f"a{i}") for i in range(5)])

    assert [row["job_id"] for row in seen(client)] == ["a0", "a1", "a2"]
