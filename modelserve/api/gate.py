"""The gate: every call passes here once on its way in and once on its way out.

On the way in it is named, its token looked up and its rate counted; on the way out it is counted and logged, and what
went wrong is put into the shape of its protocol. No call is answered here. Pure ASGI, around the router of the
application: a path without variables goes straight to its route. HEAD is answered as GET, without the body.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from modelserve.api.calls import KEY, Call, Desk
from modelserve.api.front import PATHS
from modelserve.api.problems import Refusal, refusal_of, refuse

Endpoint = Callable[[Request], Awaitable[Response]]

OPEN: Final = frozenset(
    {
        *("/healthz", "/readyz", "/ping", "/version", "/v2/health/live", "/v2/health/ready", "/docs", "/openapi.json"),
        *PATHS,
    }
)
"""Paths that need no token: they say how the service is, and what it is, not what it knows."""

UNKNOWN_ROUTE: Final = "unknown"
CLIENT_LEFT: Final = 499
"""Logged where the caller left before the answer; nobody sees it."""

logger = logging.getLogger(__name__)


class Gate:
    """The outermost layer of the application.

    `quick` holds the endpoint of every path without variables, by method and path; `allowed` the methods of a path
    that the router knows by its variables.
    """

    def __init__(
        self, router: ASGIApp, desk: Desk, quick: Mapping[tuple[str, str], Endpoint], methods: Mapping[str, str]
    ) -> None:
        self._router, self._desk, self._quick, self._methods = router, desk, quick, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one call in, and its answer out."""
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        scope[KEY] = call = Call(self._desk, scope, receive)

        bodiless = call.method == "HEAD"
        # The server looks up the method in its own scope: that stays as it is.
        asked = {**scope, "method": "GET"} if bodiless else scope

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                call.status = message["status"]
                message["headers"].append((b"x-request-id", call.request_id.encode()))
            elif bodiless:
                message["body"] = b""
            await send(message)

        endpoint = self._quick.get((asked["method"], call.path))
        if endpoint is not None:
            call.route = call.path
        try:
            self._admit(call)
            if endpoint is None:
                await self._router(asked, receive, reply)
                call.route = getattr(asked.get("route"), "path_format", UNKNOWN_ROUTE)
            else:
                response = await endpoint(Request(asked, receive))
                await response(asked, receive, reply)
        except ClientDisconnect:
            call.status = CLIENT_LEFT
        except Exception as error:
            if call.status:
                raise  # the answer has begun: all that is left is to cut it off
            call.route = call.route or getattr(asked.get("route"), "path_format", UNKNOWN_ROUTE)
            response = refuse(self._refusal(error, call), path=call.path, request_id=call.request_id)
            await response(asked, receive, reply)
        finally:
            # The server's scope and the call hold each other: taken apart, they need no collector to go.
            del scope[KEY]
            call.release()
            duration_s = time.perf_counter() - call.started_s
            self._desk.metrics.ended(call.route or UNKNOWN_ROUTE, call.method, call.status, duration_s)
            self._desk.log.put(call, duration_s)

    def _admit(self, call: Call) -> None:
        desk = self._desk
        call.caller = desk.tokens.caller_of(call.headers.get(b"authorization"))
        if call.caller is not None:
            if call.path not in OPEN:
                desk.rates.take(call.caller.name)
        elif call.path not in OPEN:
            given = b"authorization" in call.headers
            why = "the token is not known, or not sent as Bearer" if given else "no token"
            challenge = 'Bearer realm="taut"' + (', error="invalid_token"' if given else "")
            raise Refusal(
                401, f"{why}; expected Authorization: Bearer <token>", headers={"www-authenticate": challenge}
            )

    def _refusal(self, error: Exception, call: Call) -> Refusal:
        refusal = refusal_of(error)
        if refusal is None:
            logger.error("request %s to %s failed", call.request_id, call.route, exc_info=error)
            return Refusal(500, "the service failed on this call; its log says why under this request id")
        if refusal.status == 405:
            refusal.headers = {"allow": self._methods.get(call.route) or self._methods.get(call.path, "")}
            refusal.detail = f"method {call.method[:16]}, expected {refusal.headers['allow']}"
        elif refusal.status == 404 and call.route == UNKNOWN_ROUTE:
            refusal.detail = "no such path; /openapi.json lists those there are"
        return refusal
