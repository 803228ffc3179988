"""A worker that serves a small application of its own: what the server's tests ask, without a model.

Started by the supervisor under test as `python standin.py SLOT FD`.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from modelserve.server.worker import Opened, run
from modelserve.settings import ServeSettings


@contextmanager
def application(settings: ServeSettings) -> Iterator[Opened]:
    from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest, multiprocess
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    calls = Counter("taut_calls", "Calls answered.")
    live = Gauge("taut_live", "Workers.", multiprocess_mode="livesum")
    live.set(1)

    async def readyz(request: Request) -> Response:
        draining = request.app.state.draining
        return JSONResponse({"draining": draining}, 503 if draining else 200)

    async def pid(request: Request) -> Response:
        calls.inc()
        return JSONResponse({"pid": os.getpid(), "id": request.query_params.get("id")})

    async def slow(request: Request) -> Response:
        await request.body()
        await asyncio.sleep(float(request.query_params["s"]))
        return JSONResponse({"pid": os.getpid()})

    async def large(request: Request) -> Response:
        return Response(b"x" * int(request.query_params["bytes"]))

    async def metrics(request: Request) -> Response:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
        return Response(generate_latest(registry))

    async def refused(request: Request) -> Response:
        return JSONResponse({"detail": "too large"}, 413, {"connection": "close"} if request.query_params else None)

    if os.environ.get("STANDIN_BREAKS"):
        raise SystemExit("broken on purpose")
    routes = [
        Route("/readyz", readyz), Route("/pid", pid), Route("/slow", slow, methods=["GET", "POST"]),
        Route("/large", large), Route("/metrics", metrics), Route("/refused", refused, methods=["POST"]),
    ]  # fmt: skip
    yield Starlette(routes=routes), lambda: {"models": ["runtime.pai.ctr@7"], "failures": {}}


if __name__ == "__main__":
    run(sys.argv[1:], application)
