"""The application under uvicorn on a socket: many callers at once, models that change, bodies that never come."""

import asyncio
import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any  # JSON is as deep as it likes

import httpx2
import pytest

from modelserve.api.app import create_app
from modelserve.service import Service
from tests.modelserve.api.conftest import job
from tests.modelserve.mirrored import NAME, Folder
from tests.modelserve.running import serving

CALLERS = 32
CALLS = 20
VARIANTS = 60
PATHS = ("/v1/predictions", "/v1/recommendations")
DEADLINE_S = 20.0


def connected(place: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(place.rsplit(":", 1)[1])), timeout=DEADLINE_S)


def wait_until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end_s, "not within the deadline"
        time.sleep(0.005)


@pytest.fixture
def listen(make_service: Callable[..., Service]) -> Iterator[Callable[..., str]]:
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(serving(create_app(make_service(**settings))))


def variant(number: int, job_id: str) -> dict[str, object]:
    """Return one of the jobs that are asked about: no two of them are alike, and their answers seldom."""
    return job(
        job_id,
        user=f"u{number % 9}",
        group=f"g{number % 4}",
        instances=1 + number % 5,
        request={"cpu_cores": 1 + number % 12, "mem_gib": 4.0 + number, "gpus": 0.25 * (1 + number % 8)},
    )


def rows_of(answer: httpx2.Response) -> list[dict[str, Any]]:
    """Return what is said of each job, but for how old the history is, which the time of day tells."""
    said = answer.json()
    rows: list[dict[str, Any]] = said.get("predictions") or said["recommendations"]
    for row in rows:
        row.get("evidence", {}).pop("history_age_s", None)
    return rows


def alone(place: str) -> dict[tuple[str, int], dict[str, Any]]:
    """Ask about every variant by itself, one after another."""
    found = {}
    with httpx2.Client(timeout=DEADLINE_S) as client:
        for path, number in product(PATHS, range(VARIANTS)):
            [row] = rows_of(client.post(place + path, json={"jobs": [variant(number, "alone")]}))
            found[path, number] = row
    return found


@dataclass(frozen=True, kw_only=True)
class Asked:
    path: str
    name: str
    numbers: list[int]
    job_ids: list[str]
    answer: httpx2.Response


async def many_calls(place: str) -> list[Asked]:
    rng = random.Random(5)

    async def caller(number: int, client: httpx2.AsyncClient) -> list[Asked]:
        done = []
        for turn in range(CALLS):
            numbers = [rng.randrange(VARIANTS) for _ in range(rng.choice([1, 1, 1, 3, 40]))]
            ids = [f"{number}-{turn}-{rng.getrandbits(64):x}" for _ in numbers]
            path, name = rng.choice(PATHS), f"call-{number}-{turn}"
            body = {"jobs": [variant(each, job_id) for each, job_id in zip(numbers, ids, strict=True)]}
            answer = await client.post(place + path, json=body, headers={"x-request-id": name})
            done.append(Asked(path=path, name=name, numbers=numbers, job_ids=ids, answer=answer))
        return done

    limits = httpx2.Limits(max_connections=CALLERS)
    async with httpx2.AsyncClient(timeout=DEADLINE_S, limits=limits) as client:
        found = await asyncio.gather(*(caller(number, client) for number in range(CALLERS)))
    return [each for calls in found for each in calls]


@pytest.mark.slow
def test_nobody_gets_somebody_elses_answer(listen: Callable[..., str]) -> None:
    place = listen(busy_limit=1000)
    expected = alone(place)

    done = asyncio.run(many_calls(place))

    for path in PATHS:  # swapped values would be seen
        assert len({json.dumps(expected[path, number]) for number in range(VARIANTS)}) > VARIANTS * 0.9
    assert len(done) == CALLERS * CALLS
    for call in done:
        assert call.answer.status_code == 200
        assert call.answer.headers["x-request-id"] == call.name
        assert rows_of(call.answer) == [
            {**expected[call.path, number], "job_id": job_id}
            for number, job_id in zip(call.numbers, call.job_ids, strict=True)
        ]
    assert len({call.answer.json()["answer_id"] for call in done}) == len(done)


@pytest.mark.slow
def test_a_model_that_moves_fails_no_answer_and_mixes_no_versions(
    listen: Callable[..., str], folder: Folder, other_version: Path
) -> None:
    folder.add(NAME, "2", source=other_version)
    folder.point(NAME, "1")
    place = listen(reload_every_s=0.05)
    body = {"jobs": [job(str(i)) for i in range(8)], "outputs": ["run_time"]}
    seen: dict[str, set[float]] = {}
    mixed = []

    with httpx2.Client(timeout=DEADLINE_S) as client:
        end_s = time.monotonic() + DEADLINE_S
        moves = 0
        while moves < 6 and time.monotonic() < end_s:
            folder.point(NAME, "2" if moves % 2 == 0 else "1")
            wanted = f"{NAME}@{2 if moves % 2 == 0 else 1}"
            while time.monotonic() < end_s:
                answer = client.post(place + "/v1/predictions", json=body)
                assert answer.status_code == 200
                rows = answer.json()["predictions"]
                cited = {row["models"]["run_time"] for row in rows}
                mixed += [cited] if len(cited) != 1 else []
                seen.setdefault(cited.pop(), set()).add(rows[0]["run_time_s"]["p50"])
                if wanted in seen and rows[0]["models"]["run_time"] == wanted:
                    break
            moves += 1

    assert moves == 6
    assert not mixed
    assert set(seen) == {f"{NAME}@1", f"{NAME}@2"}
    assert all(len(values) == 1 for values in seen.values())
    assert seen[f"{NAME}@1"] != seen[f"{NAME}@2"]


def test_after_a_head_the_connection_goes_on(listen: Callable[..., str]) -> None:
    with httpx2.Client(base_url=listen(), timeout=DEADLINE_S) as client:
        answers = [client.request(method, "/readyz") for method in ("GET", "HEAD", "GET")]

    assert [answer.status_code for answer in answers] == [200] * 3
    assert [len(answer.content) > 0 for answer in answers] == [True, False, True]
    assert answers[1].headers["content-length"] == answers[0].headers["content-length"]


def test_a_body_that_does_not_arrive_is_given_up(listen: Callable[..., str]) -> None:
    place = listen(body_read_limit_s=0.2)

    with connected(place) as caller:
        caller.sendall(
            b"POST /v1/predictions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
            b'content-length: 1000\r\n\r\n{"jobs":'
        )
        said = b"".join(iter(lambda: caller.recv(4096), b""))

    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408")
    assert json.loads(body)["status"] == 408


def test_a_caller_who_leaves_is_no_failure(listen: Callable[..., str], caplog: pytest.LogCaptureFixture) -> None:
    place = listen()

    with connected(place) as caller:
        caller.sendall(b"POST /v1/predictions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{")

    counted = 'taut_requests_total{method="POST",route="/v1/predictions",status="499"} 1.0'
    with httpx2.Client() as client:
        wait_until(lambda: counted in client.get(place + "/metrics").text)
    assert not caplog.records
