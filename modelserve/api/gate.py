"""The gate, which every HTTP call passes before and after its route; and the access log.

Before the route, the gate checks the token and the call rate. After it, the gate turns errors into responses, and
counts and logs the call. It is plain ASGI around the application's router; a path without variables is looked up in a
table instead of the router. HEAD is answered as GET without the body.
"""

import contextlib
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from modelserve.api.calls import KEY, Call, Desk
from modelserve.api.pages import PATHS
from modelserve.api.problems import Refusal, refusal_of, refuse
from modelserve.callers import caller_of

WAITING_LIMIT: Final = 50_000
"""Maximum number of log lines waiting to be written; further lines are dropped and counted."""
TOGETHER_S: Final = 0.05
"""Seconds for which log lines are collected before they are written together."""

NICENESS: Final = 10
"""Niceness of the thread: about a tenth of the CPU time that a normal thread gets on a busy core."""

LINUX: Final = sys.platform == "linux"
"""Whether the system is Linux, which alone has a niceness per thread."""

HEALTH: Final = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
OPEN: Final = frozenset({*HEALTH, "/docs", "/openapi.json", *PATHS})
"""Paths that need no token: health, documentation and the web page."""
UNKNOWN_ROUTE: Final = "unknown"
CLIENT_LEFT: Final = 499
"""Status that is logged if the caller closed the connection before the response."""

Endpoint = Callable[[Request], Awaitable[Response]]
Line = dict[str, Any]  # Any: the values of a log line
logger = logging.getLogger(__name__)


class AccessLog:
    """The access log of one worker: one line for each call, written by a thread; `dropped` counts lost lines."""

    def __init__(self, form: Literal["json", "console"]) -> None:
        self.dropped = 0
        self._text = _json_line if form == "json" else _console_line
        self._waiting: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that writes the log."""
        self._thread = threading.Thread(target=self._write, name="access-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write the waiting lines, and end the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(timeout=5.0)
            self._thread = None

    def put(self, call: Call, duration_s: float) -> None:
        """Queue the line of a finished call; never blocks."""
        if self._thread is None or self._waiting.qsize() >= WAITING_LIMIT:
            self.dropped += 1
            return
        line = {
            "ts": time.time(),
            "level": "info",
            "event": "request",
            "request_id": call.request_id,
            "answer_id": call.answer_id,
            "method": call.method[:16],
            "route": call.route,
            "status": call.status,
            "duration_s": duration_s,
            "caller": None if call.caller is None else call.caller.name,
            "rows": call.rows,
            "models": call.models,
        }
        self._waiting.put(line)

    def _write(self) -> None:
        if LINUX:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        going = True
        while going:
            lines = [self._waiting.get()]
            time.sleep(TOGETHER_S)
            while not self._waiting.empty():
                lines.append(self._waiting.get())
            going = None not in lines
            try:
                sys.stderr.write("".join(self._text(line) for line in lines if line is not None))
                sys.stderr.flush()
            except (OSError, ValueError):  # nothing reads stderr: drop the lines and go on
                self.dropped += len(lines)


def _json_line(line: Line) -> str:
    shown = {**line, "ts": _moment(line["ts"]), "duration_s": round(line["duration_s"], 6)}
    return json.dumps(shown, separators=(",", ":")) + "\n"


def _console_line(line: Line) -> str:
    return (
        f"{_moment(line['ts'])} {line['status']} {line['method']} {line['route']} {line['duration_s'] * 1e3:.2f} ms "
        f"rows={line['rows']} caller={line['caller'] or '-'} models={','.join(line['models']) or '-'} "
        f"id={line['request_id']}\n"
    )


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")


class Gate:
    """The outermost layer of the application, which every HTTP call passes.

    `quick` holds the endpoint of every path without variables, by method and path. `methods` holds the allowed methods
    of every path, as the text of an `Allow` header.
    """

    def __init__(
        self,
        router: ASGIApp,
        desk: Desk,
        log: AccessLog,
        quick: Mapping[tuple[str, str], Endpoint],
        methods: Mapping[str, str],
    ) -> None:
        self._router, self._desk, self._log, self._quick, self._methods = router, desk, log, quick, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one call, run its route, and count and log the call."""
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        scope[KEY] = call = Call(self._desk, scope, receive)
        bodiless = call.method == "HEAD"
        # Change a copy, since uvicorn reads the method from the original scope.
        inner = {**scope, "method": "GET"} if bodiless else scope

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                call.status = message["status"]
                message["headers"].append((b"x-request-id", call.request_id.encode()))
            elif bodiless:
                message["body"] = b""
            await send(message)

        endpoint = self._quick.get((inner["method"], call.path))
        if endpoint is not None:
            call.route = call.path
        try:
            self._admit(call)
            if endpoint is None:
                await self._router(inner, receive, reply)
                call.route = getattr(inner.get("route"), "path_format", UNKNOWN_ROUTE)
            else:
                response = await endpoint(Request(inner, receive))
                await response(inner, receive, reply)
        except ClientDisconnect:
            call.status = CLIENT_LEFT
        except Exception as error:
            if call.status:
                raise  # the response has begun and can only be cut off
            call.route = call.route or getattr(inner.get("route"), "path_format", UNKNOWN_ROUTE)
            response = refuse(self._refusal(error, call), path=call.path, request_id=call.request_id)
            await response(inner, receive, reply)
        finally:
            # Break the reference cycle between scope and call, so that both are freed without garbage collection.
            del scope[KEY]
            call.release()
            call.route = call.route or UNKNOWN_ROUTE
            duration_s = time.perf_counter() - call.started_s
            self._desk.metrics.ended(call.route, call.method, call.status, duration_s)
            self._log.put(call, duration_s)

    def _admit(self, call: Call) -> None:
        desk = self._desk
        call.caller = caller_of(call.headers.get(b"authorization"), desk.settings.tokens)
        if call.path in OPEN:
            return
        if call.caller is not None:
            desk.rates.take(call.caller.name)
            return
        desk.unknown.take(call.address)
        given = b"authorization" in call.headers
        why = "the token is not known, or not sent as Bearer" if given else "no token"
        challenge = 'Bearer realm="taut"' + (', error="invalid_token"' if given else "")
        raise Refusal(401, f"{why}; expected Authorization: Bearer <token>", headers={"www-authenticate": challenge})

    def _refusal(self, error: Exception, call: Call) -> Refusal:
        refusal = refusal_of(error)
        if refusal is None:
            logger.error("request %s to %s failed", call.request_id, call.route, exc_info=error)
            return Refusal(500, "the service failed on this call; see its log under this request id")
        if refusal.status == 405:
            refusal.headers = {"allow": self._methods.get(call.route) or self._methods.get(call.path, "")}
            refusal.detail = f"method {call.method[:16]}, expected {refusal.headers['allow']}"
        elif refusal.status == 404 and call.route == UNKNOWN_ROUTE:
            refusal.detail = "no such path; /openapi.json lists all paths"
        return refusal


class ServiceApp(FastAPI):
    """FastAPI with the gate instead of its own middleware, which would take longer than a prediction."""

    gate: Gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an ASGI call to the gate."""
        scope["app"] = self
        await self.gate(scope, receive, send)
