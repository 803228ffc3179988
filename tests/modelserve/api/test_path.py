"""How many files of ours one recommendation enters, from the application to the response."""

import threading
from collections.abc import Callable
from types import FrameType

from starlette.testclient import TestClient

from tests.modelserve.api.conftest import job

PACKAGES = ("/modelserve/", "/scheduler_core/", "/features/")
MOST_FILES = 27


def test_one_recommendation_enters_few_files(serve: Callable[..., TestClient]) -> None:
    entered: set[str] = set()

    def enter(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    threading.setprofile(enter)  # for the threads that begin from here on: the event loop and the slots
    try:
        client = serve(reload_every_s=86_400, feedback_every_s=86_400)  # no upkeep meanwhile
        client.post("/v1/recommendations", json={"jobs": [job()]})
        entered.clear()
        assert client.post("/v1/recommendations", json={"jobs": [job()]}).status_code == 200
    finally:
        threading.setprofile(None)
    ours = sorted(name for name in entered if any(part in name for part in PACKAGES) and "/tests/" not in name)
    assert 0 < len(ours) <= MOST_FILES, "\n".join(ours)
