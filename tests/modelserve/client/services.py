"""A recommendation service on loopback that answers as told: well, wrongly, slowly, or not at all.

Raw sockets, so that every fault of a connection can be made. Imported by the tests of the HTTP scale.
"""

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pipelines.simulation.advice import ConstantPredictor
from scheduler_core.shrink import shrink
from scheduler_core.types import RESOURCES, Job, Recommendation, Request

PAUSE_S = 0.01
"""Between the bytes of an answer that trickles."""
LONGEST_S = 20.0
"""When a connection that says nothing is given up, should a test never end."""

Row = dict[str, Any]  # JSON is as deep as it likes
NAN = float("nan")
ANSWER_ID = "x-1"

PREDICTOR = ConstantPredictor(run_s=60.0, peak=Request(cpu_cores=3.0, mem_gib=4.0, gpus=0.1))


@dataclass
class Service:
    """What the tests see of the service: its address, what it was asked, and how often it was connected to."""

    address: str = ""
    bodies: list[Row] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    """Request line, headers and body of every call, in order."""
    over: threading.Event = field(default_factory=threading.Event)


Answer = Callable[[socket.socket, Row, Service], None]


def job_of(row: Row) -> Job:
    """Return the job that a row asks about."""
    return Job(
        job_id=row["job_id"],
        trace=row.get("trace", "pai"),
        task_type=row["task_type"],
        request=request_of(row["request"]),
        instances=row.get("instances", 1),
        role=row.get("role", "job"),
        opted_out=row.get("opted_out", False),
        minimum=request_of(row["floors"]) if "floors" in row else None,
    )


def request_of(amounts: Row) -> Request:
    """Return amounts as a request, NaN where none is said."""
    return Request(**{name: amounts.get(name, NAN) for name in RESOURCES})


def rows_of(body: Row) -> list[Row]:
    """Answer a body as the service does, over a predictor that always says the same."""
    return [row_of(answer) for answer in shrink([job_of(row) for row in body["jobs"]], PREDICTOR)]


def row_of(answer: Recommendation) -> Row:
    """Return one recommendation in the shape of the contract."""
    return {
        "job_id": answer.job_id,
        "request": amounts_of(answer.request),
        "target": amounts_of(answer.target),
        "lower_bound": amounts_of(answer.lower_bound),
        "run_time_s": {"p50": _known(answer.run_time_p50_s), "p90": _known(answer.run_time_p90_s)},
        "run_time_change": _known(answer.run_time_change),
        "reasons": {name: answer.reasons.get(name) for name in RESOURCES},
        "models": {"run_time": "runtime.toy.ctr@7", "usage": "usage.toy.ctr@5"},
        "history": "2026-11-20T03:00:00Z",
        "measured_runs": answer.runs,
        "evidence": {"measured_runs": answer.runs, "history_age_s": 60.0},
        "raise_to": amounts_of(answer.raise_to),
        "note": answer.note or None,
        "mode": "enforce",
        "alpha": answer.alpha,
        "model_decided": answer.model_decided,
    }


def amounts_of(request: Request) -> Row:
    """Return a request as JSON says it."""
    return {name: _known(value) for name, value in zip(RESOURCES, request.row(), strict=True)}


def answering(change: Callable[[list[Row]], object] = lambda rows: rows) -> Answer:
    """Answer as the service does, after `change` of the rows; what it returns is sent as the answer."""

    def answer(connection: socket.socket, body: Row, service: Service) -> None:
        rows = change(rows_of(body))
        said = {"answer_id": ANSWER_ID, "recommendations": rows} if isinstance(rows, list) else rows
        connection.sendall(http(json.dumps(said).encode()))

    return answer


def each(**changes: object) -> Answer:
    """Answer with fields of every row replaced; a field within a field is named `target.gpus`."""

    def change(rows: list[Row]) -> list[Row]:
        for row in rows:
            for path, value in changes.items():
                *outer, last = path.split("__")
                part = row
                for name in outer:
                    part = part[name]
                part[last] = value
        return rows

    return answering(change)


def replying(reply: bytes) -> Answer:
    """Send these bytes, whatever was asked, and close the connection."""
    return lambda connection, body, service: connection.sendall(reply)


def http(content: bytes, status: str = "200 OK", *, length: int | None = None, **headers: str) -> bytes:
    """Return a reply as it goes over the wire."""
    said = {"content-type": "application/json", "content-length": len(content) if length is None else length}
    lines = [
        f"HTTP/1.1 {status}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in {**said, **headers}.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + content


def silent(connection: socket.socket, body: Row, service: Service) -> None:
    """Never answer."""
    service.over.wait(LONGEST_S)


def dripping(connection: socket.socket, body: Row, service: Service) -> None:
    """Answer well, one byte at a time, without end for all who wait."""
    connection.sendall(http(b"", length=1_000_000))
    drip(connection, service)


def dripping_head(connection: socket.socket, body: Row, service: Service) -> None:
    """Begin a head that goes on and on."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-more: ")
    drip(connection, service)


def drip(connection: socket.socket, service: Service) -> None:
    """Send a blank every moment until nobody listens."""
    with suppress(OSError):
        for _ in range(int(LONGEST_S / PAUSE_S)):
            connection.sendall(b" ")
            if service.over.wait(PAUSE_S):
                return


@contextmanager
def serving(*answers: Answer, without_body: bytes | None = None) -> Iterator[Service]:
    """Serve on a free port: the n-th body is answered by the n-th answer, those after by the last.

    With `without_body`, a GET, as of readiness or models, gets this reply, and is not counted.
    """
    service = Service()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                head, content = _received(self.request)
                if without_body is not None and head.startswith("GET"):
                    self.request.sendall(without_body)
                    return
                first, *lines = head.split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = json.loads(content or b"{}")
                service.heads.append(head)
                service.bodies.append(body)
                service.seen.append((first, headers, content))
                answers[min(len(service.bodies), len(answers)) - 1](self.request, body, service)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        service.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.over.set()
            server.shutdown()
            thread.join(LONGEST_S)


def _received(connection: socket.socket) -> tuple[str, bytes]:
    connection.settimeout(LONGEST_S)
    said = b""
    while b"\r\n\r\n" not in said:
        said += _some(connection)
    head, _, body = said.partition(b"\r\n\r\n")
    text = head.decode()
    lengths = [int(line.split(":")[1]) for line in text.lower().split("\r\n") if line.startswith("content-length")]
    while len(body) < sum(lengths):
        body += _some(connection)
    return text, body


def _some(connection: socket.socket) -> bytes:
    found = connection.recv(65_536)
    if not found:
        raise OSError("closed")
    return found


def _known(value: float) -> float | None:
    return None if value != value else value
