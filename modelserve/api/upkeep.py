"""Periodic tasks of a worker: reload models, read feedback, update gauges.

If a task fails, the error is logged and the task runs again at its next time.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from modelserve.api.calls import Desk
from modelserve.api.gate import AccessLog
from modelserve.loading.sync import read_mirror_state

ERRORS_EVERY_S: Final = 30.0
"""Seconds between two measurements of the models' prediction errors."""

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def upkeep(desk: Desk, log: AccessLog, *, draining: Callable[[], bool]) -> AsyncIterator[None]:
    """Run the periodic tasks during the `with` block, then write the waiting log records."""
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
    """Load the models whose alias points to another version now, and count the results."""
    for reload in desk.service.models.refresh():
        desk.metrics.reloads.labels(reload.result).inc()
        outcome = f"{reload.result}: {reload.detail}" if reload.detail else reload.result
        level = logging.WARNING if reload.result == "failed" else logging.INFO
        logger.log(level, "model %s@%s (%s): %s", reload.name, reload.version, reload.alias, outcome)
    set_gauges(desk, ready=ready)


def follow_errors(desk: Desk) -> None:
    """Set each model's gauge of its recent error divided by the error on its card."""
    for name, error in desk.service.champion_errors().items():
        if error.mean_absolute_log is not None and error.expected_mean_absolute_log:
            desk.metrics.error_ratio.labels(name).set(error.mean_absolute_log / error.expected_mean_absolute_log)


def set_gauges(desk: Desk, *, ready: bool) -> None:
    """Set the gauges: loaded models and their ages, readiness, age of the registry's copy, dropped answers."""
    service, metrics = desk.service, desk.metrics
    now_s = service.clock()
    snapshot = service.models.current
    metrics.serving(
        {
            (name, str(model.bundle.version), alias): now_s - model.bundle.card.until.timestamp()
            for alias, models in (("champion", snapshot.champions), ("challenger", snapshot.challengers))
            for name, model in models.items()
        }
    )
    metrics.ready.set(1 if ready and snapshot.champions else 0)
    if service.settings.tracking_uri is not None:
        mirror = read_mirror_state(service.settings.bundles, now_s=now_s)
        # If the registry was never mirrored, report the time since the worker started.
        never_s = now_s - metrics.began_s
        metrics.sync_age.set(never_s if mirror is None or mirror.age_s is None else mirror.age_s)
    metrics.dropped(service.log.dropped)
