"""A store that is deleted, replaced or full while the service runs: said at once, and nothing is accepted and lost."""

from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from modelserve.store import Store
from tests.modelserve.api.conftest import job
from tests.modelserve.feedback_cases import row

Make = Callable[..., TestClient]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_deleted_store_accepts_nothing_and_the_worker_is_not_ready(
    serve: Make, tmp_path: Path, replaced: bool
) -> None:
    path = tmp_path / "own.db"
    client = serve(store=f"sqlite:///{path}")
    assert client.post("/v1/feedback", json={"feedback": [row("a")]}).status_code == 200
    path.rename(tmp_path / "gone.db")
    if replaced:
        Store.open(f"sqlite:///{path}").close()

    answer = client.post("/v1/feedback", json={"feedback": [row("b")]})
    ready = client.get("/readyz")

    assert answer.status_code == 503
    assert "was removed or replaced" in answer.json()["detail"]
    assert client.post("/v1/mode", json={"trace": "pai", "mode": "enforce"}).status_code == 503
    assert (ready.status_code, ready.json()["status"]) == (503, "no store")
    assert client.post("/v1/recommendations", json={"jobs": [job()]}).status_code == 200


def test_a_full_disk_is_said_until_a_write_succeeds(serve: Make) -> None:
    client = serve()
    limit = client.app.state.desk.service.store.engine.connect  # type: ignore[attr-defined]
    with limit() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    many = {"feedback": [row(f"full{number}", user=f"u{number}" * 10) for number in range(500)]}
    assert client.post("/v1/feedback", json=many).status_code == 503
    assert "full" in client.get("/readyz").json()["store"]

    with limit() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    assert client.post("/v1/feedback", json={"feedback": [row("a")]}).status_code == 200
    assert client.get("/readyz").json()["store"] is None
