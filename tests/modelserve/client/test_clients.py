"""Both clients against a scripted service: feedback, calls sent once, tokens, closed and forked clients, imports."""

import inspect
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from modelserve.client import AsyncClient, Client
from modelserve.errors import BadRequest, ClientError, ServiceUnavailable
from scheduler_core.types import Recommendation
from tests.modelserve.client.conftest import job, recommending, reply, reset, rows
from tests.modelserve.client.services import Row, Service, silent

Serve = Callable[..., Service]
HEAVY = ("polars", "xgboost", "fastapi", "starlette", "pandas", "sqlalchemy", "mlflow", "numba", "scipy", "uvicorn")


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


def taking(connection: socket.socket, body: Row, service: Service) -> None:
    names = [row["job_id"] for row in body["feedback"]]
    results = [{"job_id": name, "status": "accepted"} for name in names]
    said = {"accepted": len(names), "duplicates": 0, "conflicts": 0, "results": results}
    reply(200, said)(connection, body, service)


def test_feedback_is_sent_again_in_parts_and_summed_up(serve: Serve, client_of: Callable[..., Client]) -> None:
    service = serve(taking, reset, taking)

    with client_of(service.address, jobs_per_call=2) as client:
        taken = client.feedback([finished(name) for name in "abc"])

    assert taken.accepted == 3
    assert [result.job_id for result in taken.results] == ["a", "b", "c"]
    assert len(service.seen) == 3


def test_feedback_that_cannot_be_meant_is_refused_before_it_is_sent(
    serve: Serve, client_of: Callable[..., Client]
) -> None:
    service = serve(taking)

    with client_of(service.address) as client, pytest.raises(BadRequest, match=r"feedback\.1\.end_ts"):
        client.feedback([finished("a"), finished("b", end_ts="2026-11-19T00:00:00Z")])

    assert service.seen == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.set_mode("enforce"),
        lambda c: c.set_mode(None),
        lambda c: c.release_brake(),
    ],
)
def test_what_changes_something_is_sent_once(
    serve: Serve, client_of: Callable[..., Client], ask: Callable[[Client], object]
) -> None:
    service = serve(reply(503))

    with client_of(service.address) as client, pytest.raises(ServiceUnavailable):
        ask(client)

    assert len(service.seen) == 1


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_leads_elsewhere_is_refused(client_of: Callable[..., Client], name: str) -> None:
    with client_of("http://127.0.0.1:9") as client, pytest.raises(BadRequest, match="path"):
        client.card(name)


def calls_of(kind: type) -> dict[str, inspect.Signature]:
    own = ("advise", "wait")
    return {name: inspect.signature(value) for name, value in vars(kind).items() if name[0] != "_" and name not in own}


def test_both_clients_take_the_same_calls() -> None:
    assert calls_of(Client) == calls_of(AsyncClient)


def test_a_closed_client_says_so_and_closes_once() -> None:
    client = Client("http://127.0.0.1:9")
    client.close()
    client.close()

    with pytest.raises(ClientError, match="closed"):
        client.recommendations(rows(1))
    assert "closed" in client.recommend([job()])[0].note


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_process_makes_connections_of_its_own(serve: Serve) -> None:
    service = serve(recommending())
    code = (
        "import os, sys; from modelserve.client import Client\n"
        f"client = Client({service.address!r})\n"
        "ask = lambda: client.recommendations([{'job_id': 'j', 'task_type': 't', 'request': {}}])\n"
        "ask(); child = os.fork()\n"
        "if child == 0: os._exit(0 if ask()[0].job_id == 'j' else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )

    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_closing_breaks_off_what_others_wait_for(serve: Serve) -> None:
    service = serve(silent)
    client = Client(service.address)
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
