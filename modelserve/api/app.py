"""The ASGI application: all routes, behind the gate that checks and logs every call.

Created by `modelserve.server` in each worker process, and by tests.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from typing import Final

from fastapi import FastAPI

from modelserve.api import health, inference, pages, routes
from modelserve.api.calls import UNKNOWN_PER_S, Desk, Rates, Slots
from modelserve.api.gate import AccessLog, Endpoint, Gate, ServiceApp
from modelserve.api.metrics import Metrics
from modelserve.api.operations import Operation, add_operations, methods_of
from modelserve.api.upkeep import upkeep
from modelserve.callers import Tokens
from modelserve.service import Service

__all__ = ["create_app"]

OPERATIONS: Final[Sequence[Operation]] = (
    *routes.OPERATIONS,
    *inference.OPERATIONS,
    *health.OPERATIONS,
)
"""All operations (method and path) of the HTTP interface."""


def create_app(service: Service) -> FastAPI:
    """Create the application of a service; while `app.state.draining` is true, `/readyz` reports not ready."""
    settings = service.settings
    desk = Desk(
        service=service,
        tokens=Tokens.of(settings.tokens),
        rates=Rates(settings.calls_per_s, clock=time.monotonic),
        unknown=Rates(UNKNOWN_PER_S, clock=time.monotonic),
        slots=Slots(limit=settings.busy_limit, answer_limit_s=settings.answer_limit_s),
        metrics=Metrics(),
    )

    log = AccessLog(settings.log_format)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with upkeep(desk, log, draining=lambda: app.state.draining):
            yield

    app = ServiceApp(
        title="taut", version=version("taut"), docs_url=None, redoc_url=None, lifespan=lifespan,
        summary="How long AI jobs run, what they use at most, and how far their requests can shrink.",
    )  # fmt: skip
    app.state.draining = False
    app.state.desk = desk
    add_operations(app, OPERATIONS)
    pages.add_pages(app)
    quick: dict[tuple[str, str], Endpoint] = {
        (each.method, each.path): each.strict_endpoint() for each in OPERATIONS if "{" not in each.path
    }
    quick.update({("GET", path): pages.page_file for path in pages.PATHS})
    app.gate = Gate(app.router, desk, log, quick, methods_of(OPERATIONS) | dict.fromkeys(pages.PATHS, "GET, HEAD"))
    return app
