"""What a worker does between calls, and how it says that it is about to end."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from tests.modelserve.api.conftest import TOKENS, bearer
from tests.modelserve.mirrored import NAME, Folder

DEADLINE_S = 20.0


def eventually(holds: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + DEADLINE_S
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.01)
    return holds()


def test_a_worker_that_drains_is_not_ready_and_answers_all_the_same(call: Callable[..., TestClient]) -> None:
    client = call()
    client.app.state.draining = True

    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["status"] == "draining"
    assert "retry-after" in answer.headers
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/healthz").status_code == 200
    assert client.get("/metrics").status_code == 200


def test_readiness_names_what_is_in_reach_and_nothing_more(call: Callable[..., TestClient]) -> None:
    client = call(tokens=TOKENS)

    nobody, bound, chief = [
        client.get("/readyz", headers=headers).json() for headers in ({}, bearer("bound"), bearer("chief"))
    ]

    assert (nobody["serving"], nobody["failing"]) == (2, 1)
    assert (nobody["models"], nobody["failures"], nobody["mirror"]) == ([], {}, None)
    assert bound["models"] == ["runtime.pai.ctr@7"]
    assert chief["models"] == ["runtime.pai.ctr@7", "usage.other.ctr@7"]
    assert list(chief["failures"]) == ["runtime.pai.cv"]


def test_a_service_without_a_model_is_not_ready(serve: Callable[..., TestClient], folder: Folder) -> None:
    for name in (NAME, "usage.pai.ctr"):
        (folder.path / name / "champion.json").unlink()

    answer = serve().get("/readyz")

    assert (answer.status_code, answer.json()["status"]) == (503, "no model")


def test_the_state_of_the_mirror_is_told(serve: Callable[..., TestClient], folder: Folder) -> None:
    said = {"at": 0.0, "attempted_at": 5.0, "error": "registry away", "failing": [NAME]}
    (folder.path / ".sync.json").write_text(json.dumps(said))

    mirror = serve().get("/readyz").json()["mirror"]

    assert mirror == {"age_s": None, "error": "registry away", "failing": [NAME]}


def test_a_registry_that_was_never_mirrored_has_been_away_since_the_start(
    serve: Callable[..., TestClient], folder: Folder
) -> None:
    client = serve(tracking_uri="http://127.0.0.1:9", reload_every_s=0.02)
    (folder.path / ".sync.json").write_text(json.dumps({"attempted_at": 5.0, "error": "registry away"}))

    def age_s() -> float:
        [line] = [each for each in client.get("/metrics").text.splitlines() if each.startswith("taut_sync_age_seconds")]
        return float(line.split()[-1])

    assert eventually(lambda: age_s() > 0)


def test_a_broken_bundle_shows_in_readiness_and_metrics_and_the_old_one_serves(
    serve: Callable[..., TestClient], folder: Folder, tmp_path: Path
) -> None:
    broken = shutil.copytree(folder.sources["runtime"], tmp_path / "broken")
    (broken / "card.json").write_text("{}")
    client = serve(reload_every_s=0.02)

    folder.add(NAME, "2", source=broken)

    assert eventually(lambda: NAME in client.get("/readyz").json()["failures"])
    assert f"{NAME}@1" in client.get("/readyz").json()["models"]
    assert 'taut_model_reload_total{result="failed"}' in client.get("/metrics").text


def test_a_round_that_fails_is_followed_by_the_next(
    hollow: Callable[..., FastAPI], caplog: pytest.LogCaptureFixture
) -> None:
    app = hollow(feedback_every_s=0.01)
    polled = []

    def poll() -> int:
        polled.append(1)
        raise RuntimeError("the store fell over")

    app.state.desk.service.feed.poll = poll
    with TestClient(app):
        assert eventually(lambda: len(polled) >= 3)

    assert "the store fell over" in caplog.text
