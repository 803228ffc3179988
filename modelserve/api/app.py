"""The application: the routes of every noun behind one gate.

Nothing is answered here. Made by `modelserve.server` for each worker, and by tests.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from typing import Final

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from modelserve.api import answers, explaining, front, health, inference, learning, models, pages, scoring, users
from modelserve.api.access_log import AccessLog
from modelserve.api.calls import Desk, Held, Ids
from modelserve.api.gate import Endpoint, Gate
from modelserve.api.metrics import Metrics
from modelserve.api.operations import Operation, add_operations, methods_of
from modelserve.api.rates import Rates
from modelserve.api.slots import Slots
from modelserve.api.upkeep import upkeep
from modelserve.service import Service
from modelserve.tokens import Tokens

OPERATIONS: Final[Sequence[Operation]] = (
    *answers.OPERATIONS,
    *explaining.OPERATIONS,
    *models.OPERATIONS,
    *learning.OPERATIONS,
    *users.OPERATIONS,
    *inference.OPERATIONS,
    *scoring.OPERATIONS,
    *health.OPERATIONS,
)
"""Everything that the service does."""


class ServiceApp(FastAPI):
    """FastAPI with one gate around its router, in the place of its own layers: those cost more than an answer."""

    gate: Gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call to the gate."""
        scope["app"] = self
        await self.gate(scope, receive, send)


def create_app(service: Service) -> FastAPI:
    """Make the application that answers for a service; `app.state.draining` makes it say that it is not ready."""
    settings = service.settings
    desk = Desk(
        service=service,
        tokens=Tokens.of(settings.tokens),
        rates=Rates(settings.calls_per_s, clock=time.monotonic),
        slots=Slots(limit=settings.busy_limit, answer_limit_s=settings.answer_limit_s),
        metrics=Metrics(),
        log=AccessLog(settings.log_format),
        ids=Ids(),
        held=Held(),
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with upkeep(desk, draining=lambda: app.state.draining):
            yield

    app = ServiceApp(
        title="taut", version=version("taut"), docs_url=None, redoc_url=None, lifespan=lifespan,
        summary="How long AI jobs run, what they use at most, and how far their requests can shrink.",
    )  # fmt: skip
    app.state.draining = False
    app.state.desk = desk
    add_operations(app, OPERATIONS)
    pages.add_pages(app)
    front.add_front(app)
    quick: dict[tuple[str, str], Endpoint] = {
        (each.method, each.path): each.strict_endpoint() for each in OPERATIONS if "{" not in each.path
    }
    quick.update({("GET", path): front.front for path in front.PATHS})
    app.gate = Gate(app.router, desk, quick, methods_of(OPERATIONS) | dict.fromkeys(front.PATHS, "GET, HEAD"))
    return app
