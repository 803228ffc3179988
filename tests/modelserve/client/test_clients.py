"""Both clients against a scripted service: parts and their order, other jobs' answers, and requests that stand."""

import asyncio
import inspect
import json
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelserve.client import AsyncClient, Client
from modelserve.client.calls import parts
from modelserve.client.exchange import Surroundings
from modelserve.contract.fields import Minimums
from modelserve.errors import BadRequest, ClientError, Refused, ServiceUnavailable, WrongAnswer
from scheduler_core.types import Job, Reason, Recommendation, Request
from tests.modelserve.client.conftest import FakeService, hang, recommending, reply, reset

Serve = Callable[..., FakeService]
HEAVY = ("polars", "xgboost", "fastapi", "starlette", "pandas", "sqlalchemy", "mlflow", "numba", "scipy", "uvicorn")


def job(name: str = "a", **changes: object) -> Job:
    asked = Request(cpu_cores=6.0, mem_gib=29.0, gpus=math.nan)
    return Job(**{"job_id": name, "trace": "pai", "task_type": "ctr", "request": asked, **changes})


def rows(count: int) -> list[dict[str, object]]:
    return [{"job_id": f"j{i}", "task_type": "ctr", "request": {"cpu_cores": 4.0}} for i in range(count)]


@pytest.fixture
def client_of(surroundings: Surroundings) -> Callable[..., Client]:
    return lambda *addresses, **options: Client(*addresses, surroundings=surroundings, **options)


@given(st.lists(st.integers(), max_size=50), st.integers(1, 60))
def test_parts_hold_every_item_once_and_in_order(items: list[int], most: int) -> None:
    pieces = list(parts(items, most))

    assert [item for piece in pieces for item in piece] == items
    assert all(len(piece) <= most for piece in pieces)
    assert all(len(piece) == most for piece in pieces[:-1])


@pytest.mark.parametrize(("count", "calls"), [(0, 0), (1, 1), (7, 1), (8, 2), (20, 3)])
def test_a_long_list_is_sent_in_parts_and_answered_as_one(
    serve: Serve, client_of: Callable[..., Client], count: int, calls: int
) -> None:
    service = serve(recommending())

    with client_of(service.url, jobs_per_call=7) as client:
        found = client.recommendations(rows(count))

    assert [row.job_id for row in found] == [f"j{i}" for i in range(count)]
    assert len(service.seen) == calls
    assert len({row.answer_id for row in found}) == calls


TOO_MANY = reply(422, {"errors": [{"field": "jobs", "expected": "at most 5"}]})


@pytest.mark.parametrize("refusal", [reply(413), TOO_MANY])
def test_a_part_that_is_too_large_is_sent_in_halves(
    serve: Serve, client_of: Callable[..., Client], refusal: object
) -> None:
    service = serve(refusal, refusal, recommending())

    with client_of(service.url) as client:
        found = client.recommendations(rows(9))

    assert [row.job_id for row in found] == [f"j{i}" for i in range(9)]
    assert len(service.seen) == 5


def test_one_job_that_is_too_large_is_refused(serve: Serve, client_of: Callable[..., Client]) -> None:
    service = serve(reply(413))

    with client_of(service.url) as client, pytest.raises(Refused, match="413"):
        client.recommendations(rows(2))

    assert len(service.seen) == 2


def swapped(said: dict[str, object]) -> None:
    said["recommendations"].reverse()


def short(said: dict[str, object]) -> None:
    said["recommendations"].pop()


def without_target(said: dict[str, object]) -> None:
    said["recommendations"][0].pop("target")


def unknown_reason(said: dict[str, object]) -> None:
    said["recommendations"][0]["reasons"]["cpu_cores"] = "because"


@pytest.mark.parametrize("spoil", [swapped, short, without_target, unknown_reason])
def test_an_answer_to_something_else_is_an_error(
    serve: Serve, client_of: Callable[..., Client], spoil: Callable[[dict[str, object]], None]
) -> None:
    service = serve(recommending(spoil))

    with client_of(service.url) as client, pytest.raises(WrongAnswer, match="expected"):
        client.recommendations(rows(3))


@pytest.mark.parametrize("said", [b"", b"<html>", b"[]", b'{"answer_id":"a"}', b'{"recommendations":[]}'])
def test_what_is_no_answer_is_an_error(serve: Serve, client_of: Callable[..., Client], said: bytes) -> None:
    service = serve(reply(200, said))

    with client_of(service.url) as client, pytest.raises(WrongAnswer, match="taut service"):
        client.recommendations(rows(1))


def test_a_job_that_cannot_be_meant_is_refused_before_it_is_sent(
    serve: Serve, client_of: Callable[..., Client]
) -> None:
    service = serve(recommending())

    with client_of(service.url) as client, pytest.raises(BadRequest, match="instances"):
        client.recommendations([{**rows(1)[0], "instances": 0}])

    assert service.seen == []


def test_a_scheduler_gets_its_own_nouns_back(serve: Serve, client_of: Callable[..., Client]) -> None:
    service = serve(recommending())

    with client_of(service.url) as client:
        [found] = client.recommend([job()])

    assert (found.target.cpu_cores, found.target.mem_gib) == (3.0, 14.5)
    assert math.isnan(found.target.gpus)
    assert found.reasons == {"cpu_cores": Reason.SHRUNK, "mem_gib": Reason.SHRUNK}
    assert (found.run_time_p50_s, found.run_time_change, found.runs) == (60.0, 0.01, 12)


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ([reset], "ReadError"),
        ([reply(503, {"detail": "busy"})], "503 busy"),
        ([reply(401, {"title": "Unauthorized"})], "401 Unauthorized"),
        ([reply(500)], "500"),
        ([reply(200, b"{")], "found no JSON in the answer, read 1 bytes"),
        ([recommending(swapped)], "found job 'b'"),
    ],
)
def test_whatever_fails_the_requests_stand_and_say_why(
    serve: Serve, client_of: Callable[..., Client], script: list[object], note: str
) -> None:
    asked = [job("a"), job("b", opted_out=True)]

    with client_of(serve(*script).url) as client:
        found = client.recommend(asked)

    assert [each.job_id for each in found] == ["a", "b"]
    assert all(each.target is each.request for each in found)
    assert all(set(each.reasons.values()) == {Reason.PREDICTOR_UNAVAILABLE} for each in found)
    assert note in found[0].note


def test_a_part_without_an_answer_takes_no_other_part_along(serve: Serve, client_of: Callable[..., Client]) -> None:
    service = serve(recommending(), reply(500), recommending())

    with client_of(service.url, jobs_per_call=2) as client:
        found = client.recommend([job(name) for name in "abcdef"])

    assert [each.reasons["cpu_cores"] is Reason.SHRUNK for each in found] == [True, True, False, False, True, True]


@pytest.mark.parametrize("said", [7.0, -1.0, 1e-9, None])
def test_a_target_that_cannot_be_meant_is_not_taken(
    serve: Serve, client_of: Callable[..., Client], said: float | None
) -> None:
    def spoil(answer: dict[str, object]) -> None:
        answer["recommendations"][0]["target"]["cpu_cores"] = said

    with client_of(serve(recommending(spoil)).url) as client:
        wrong, right = client.recommend([job("a"), job("b")])

    assert wrong.target is wrong.request
    assert "cpu_cores" in wrong.note
    assert right.reasons["cpu_cores"] is Reason.SHRUNK


def test_a_job_that_cannot_be_asked_about_stands_alone(serve: Serve, client_of: Callable[..., Client]) -> None:
    odd = job("odd", request=Request(cpu_cores=math.inf, mem_gib=1.0, gpus=0.0))

    with client_of(serve(recommending()).url) as client:
        first, stood, last = client.recommend([job("a"), odd, job("b")])

    assert stood.target is odd.request
    assert "cpu_cores" in stood.note
    assert [first.job_id, last.job_id] == ["a", "b"]
    assert first.reasons["cpu_cores"] is last.reasons["cpu_cores"] is Reason.SHRUNK


def test_the_least_a_job_is_given_goes_along(serve: Serve, client_of: Callable[..., Client]) -> None:
    service = serve(recommending())
    least = Request(cpu_cores=4.0, mem_gib=math.nan, gpus=math.nan)

    with client_of(service.url) as client:
        client.recommend([job(minimum=least)])
        client.recommendations([{**rows(1)[0], "floors": {"gpus": 0.25}}], floors=Minimums(mem_gib=8.0))

    by_job, by_call = (json.loads(body) for _, _, body in service.seen)
    assert by_job["jobs"][0]["floors"] == {"cpu_cores": 4.0}
    assert by_call["jobs"][0]["floors"] == {"gpus": 0.25}
    assert by_call["floors"] == {"mem_gib": 8.0}


@pytest.mark.parametrize(("mode", "given"), [("enforce", 3.0), ("observe", 6.0)])
def test_only_what_is_enforced_is_given(
    serve: Serve, client_of: Callable[..., Client], mode: str, given: float
) -> None:
    def say(answer: dict[str, object]) -> None:
        answer["recommendations"][0]["mode"] = mode

    with client_of(serve(recommending(say)).url) as client:
        [found] = client.recommend([job()])

    assert found.given.cpu_cores == given
    assert found.target.cpu_cores == 3.0
    assert found.answer_id == "a-1"


def finished(name: str, **changes: object) -> dict[str, object]:
    said = {
        "job_id": name,
        "task_type": "ctr",
        "submit_ts": "2026-11-20T03:00:00Z",
        "start_ts": "2026-11-20T03:01:00Z",
        "end_ts": "2026-11-20T04:00:00Z",
        "outcome": "completed",
        "request": {"cpu_cores": 6},
    }
    return {**said, **changes}


def taking(service: FakeService, connection: socket.socket) -> None:
    names = [row["job_id"] for row in json.loads(service.seen[-1][2])["feedback"]]
    results = [{"job_id": name, "status": "accepted"} for name in names]
    said = {"accepted": len(names), "duplicates": 0, "conflicts": 0, "results": results}
    reply(200, said)(service, connection)


def test_feedback_is_sent_again_in_parts_and_summed_up(serve: Serve, client_of: Callable[..., Client]) -> None:
    service = serve(taking, reset, taking)

    with client_of(service.url, jobs_per_call=2) as client:
        taken = client.feedback([finished(name) for name in "abc"])

    assert taken.accepted == 3
    assert [result.job_id for result in taken.results] == ["a", "b", "c"]
    assert len(service.seen) == 3


def test_feedback_that_cannot_be_meant_is_refused_before_it_is_sent(
    serve: Serve, client_of: Callable[..., Client]
) -> None:
    service = serve(taking)

    with client_of(service.url) as client, pytest.raises(BadRequest, match=r"feedback\.1\.end_ts"):
        client.feedback([finished("a"), finished("b", end_ts="2026-11-19T00:00:00Z")])

    assert service.seen == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.set_mode("enforce"),
        lambda c: c.set_mode(None),
        lambda c: c.release_brake(),
        lambda c: c.erase_user("u", trace="pai"),
    ],
)
def test_what_changes_something_is_sent_once(
    serve: Serve, client_of: Callable[..., Client], ask: Callable[[Client], object]
) -> None:
    service = serve(reply(503))

    with client_of(service.url) as client, pytest.raises(ServiceUnavailable):
        ask(client)

    assert len(service.seen) == 1


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_leads_elsewhere_is_refused(client_of: Callable[..., Client], name: str) -> None:
    with client_of("http://127.0.0.1:9") as client, pytest.raises(BadRequest, match="path"):
        client.erase_user(name, trace="pai")


def test_nobody_gets_somebody_elses_answer(serve: Serve) -> None:
    service = serve(recommending())
    found: dict[int, list[str]] = {}

    with Client(service.url) as client:

        def ask(n: int) -> None:
            found[n] = [each.job_id for each in client.recommend([job(f"{n}-{i}") for i in range(3)])]

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert found == {n: [f"{n}-{i}" for i in range(3)] for n in range(12)}


def test_the_async_client_answers_alike(serve: Serve, surroundings: Surroundings) -> None:
    service = serve(recommending())

    async def ask() -> list[str]:
        async with AsyncClient(service.url, surroundings=surroundings) as client:
            return [row.job_id for row in await client.recommendations(rows(3))]

    assert asyncio.run(ask()) == ["j0", "j1", "j2"]


def calls_of(kind: type) -> dict[str, inspect.Signature]:
    return {name: inspect.signature(value) for name, value in vars(kind).items() if name[0] != "_"}


def test_both_clients_take_the_same_calls() -> None:
    assert calls_of(Client) == calls_of(AsyncClient)


def test_a_token_is_never_shown(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    service = serve(reply(401, {"title": "Unauthorized"}))
    caplog.set_level("DEBUG")

    with Client(service.url, token="s3cret-token") as client:
        with pytest.raises(Refused) as caught:
            client.recommendations(rows(1))
        shown = [repr(client), str(caught.value), repr(caught.value), caplog.text]

    assert service.seen[0][1]["authorization"] == "Bearer s3cret-token"
    assert not any("s3cret" in text for text in shown)


def test_a_closed_client_says_so_and_closes_once() -> None:
    client = Client("http://127.0.0.1:9")
    client.close()
    client.close()

    with pytest.raises(ClientError, match="closed"):
        client.recommendations(rows(1))
    assert "closed" in client.recommend([job()])[0].note


def test_jobs_per_call_has_bounds() -> None:
    with pytest.raises(BadRequest, match="jobs_per_call"):
        Client("http://127.0.0.1:9", jobs_per_call=10_001)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_process_makes_connections_of_its_own(serve: Serve) -> None:
    service = serve(recommending())
    code = (
        "import os, sys; from modelserve.client import Client\n"
        f"client = Client({service.url!r})\n"
        "ask = lambda: client.recommendations([{'job_id': 'j', 'task_type': 't', 'request': {}}])\n"
        "ask(); child = os.fork()\n"
        "if child == 0: os._exit(0 if ask()[0].job_id == 'j' else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )

    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_closing_breaks_off_what_others_wait_for(serve: Serve) -> None:
    service = serve(hang)
    client = Client(service.url)
    found: list[Recommendation] = []
    waiting = threading.Thread(target=lambda: found.extend(client.recommend([job()])))

    waiting.start()
    while not service.seen and waiting.is_alive():
        threading.Event().wait(0.01)
    client.close()
    waiting.join(10.0)

    assert not waiting.is_alive()
    assert "closed" in found[0].note


def test_the_client_imports_nothing_heavy() -> None:
    code = f"import sys, modelserve.client; print([m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "[]"
