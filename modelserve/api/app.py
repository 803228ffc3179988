"""The ASGI application: all routes behind the gate that checks and logs every call, and the periodic tasks of a worker.

Created by `modelserve.server` in each worker process, and by tests.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import version
from typing import Final

from fastapi import FastAPI

from modelserve.api import health, inference, pages, routes
from modelserve.api.calls import UNKNOWN_PER_S, Desk, Rates, Slots
from modelserve.api.gate import AccessLog, Endpoint, Gate, ServiceApp
from modelserve.api.metrics import Metrics
from modelserve.loading.sync import read_mirror_state
from modelserve.service import Service

__all__ = ["create_app"]

OPERATIONS: Final[Sequence[routes.Operation]] = (*routes.OPERATIONS, *inference.OPERATIONS, *health.OPERATIONS)
"""All operations (method and path) of the HTTP interface."""
ERRORS_EVERY_S: Final = 30.0
"""Seconds between two measurements of the models' prediction errors."""

logger = logging.getLogger(__name__)


def create_app(service: Service) -> FastAPI:
    """Create the application of a service; while `app.state.draining` is true, `/readyz` reports not ready."""
    settings = service.settings
    desk = Desk(
        service=service,
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
    routes.add_operations(app, OPERATIONS)
    pages.add_pages(app)
    quick: dict[tuple[str, str], Endpoint] = {
        (each.method, each.path): each.strict_endpoint() for each in OPERATIONS if "{" not in each.path
    }
    quick.update({("GET", path): pages.page_file for path in pages.PATHS})
    app.gate = Gate(
        app.router, desk, log, quick, routes.methods_of(OPERATIONS) | dict.fromkeys(pages.PATHS, "GET, HEAD")
    )
    return app


@contextlib.asynccontextmanager
async def upkeep(desk: Desk, log: AccessLog, *, draining: Callable[[], bool]) -> AsyncIterator[None]:
    """Run the periodic tasks during the `with` block, then write the waiting log records.

    They reload models, read feedback and update gauges. If one fails, the error is logged and it runs again at its next
    time.
    """
    service, settings = desk.service, desk.settings
    log.start()
    service.log.start()
    set_gauges(desk, ready=True)
    tasks = [
        asyncio.create_task(_repeat(work, every_s))
        for work, every_s in (
            (lambda: follow_pointers(desk, ready=not draining()), settings.reload_every_s),
            (service.feed.poll, settings.feedback_every_s),
            (lambda: follow_errors(desk), ERRORS_EVERY_S),
        )
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        desk.slots.close()
        await asyncio.to_thread(service.log.stop)
        log.stop()


async def _repeat(work: Callable[[], object], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await asyncio.to_thread(work)
        except Exception:
            logger.exception("upkeep failed; next round in %g s", every_s)


def follow_pointers(desk: Desk, *, ready: bool) -> None:
    """Load the models whose pointer names another version now, and count the results."""
    for reload in desk.service.models.refresh():
        desk.metrics.reloads.labels(reload.result).inc()
        outcome = f"{reload.result}: {reload.detail}" if reload.detail else reload.result
        level = logging.WARNING if reload.result == "failed" else logging.INFO
        logger.log(level, "model %s@%s: %s", reload.name, reload.version, outcome)
    set_gauges(desk, ready=ready)


def follow_errors(desk: Desk) -> None:
    """Set each model's gauge of its recent error divided by the error on its card."""
    for name, error in desk.service.champion_errors().items():
        if error.mean_absolute_log is not None and error.expected_mean_absolute_log:
            desk.metrics.error_ratio.labels(name).set(error.mean_absolute_log / error.expected_mean_absolute_log)


def set_gauges(desk: Desk, *, ready: bool) -> None:
    """Set the gauges: loaded models and their ages, readiness, age of the registry's copy, dropped answers."""
    service, metrics = desk.service, desk.metrics
    now_s, snapshot = service.clock(), service.models.current
    metrics.serving(
        {
            (name, str(model.bundle.version)): now_s - model.bundle.card.until.timestamp()
            for name, model in snapshot.champions.items()
        }
    )
    metrics.ready.set(1 if ready and snapshot.champions else 0)
    if service.settings.tracking_uri is not None:
        mirror = read_mirror_state(service.settings.bundles, now_s=now_s)
        # If the registry was never mirrored, report the time since the worker started.
        never_s = now_s - metrics.began_s
        metrics.sync_age.set(never_s if mirror is None or mirror.age_s is None else mirror.age_s)
    scopes = [
        ("type", "user", "group")[bool(user) + 2 * bool(group)] for *_, user, group in service.feed.learned.brakes
    ]
    for of in ("group", "user", "type"):
        metrics.brakes.labels(of).set(scopes.count(of))
    metrics.dropped(service.log.dropped)
