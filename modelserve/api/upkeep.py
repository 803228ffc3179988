"""Upkeep: what a worker does between calls: follow moved pointers, read others' feedback, keep its gauges true.

No call is answered here. A round that fails is logged and the next one comes all the same. Run by the application for
as long as it lives.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from modelserve.api.calls import Desk
from modelserve.api.mirror_state import read_mirror_state

ERRORS_EVERY_S: Final = 30.0
"""How often errors are measured: over hundreds of jobs, which do not end in a moment."""

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def upkeep(desk: Desk, *, draining: Callable[[], bool]) -> AsyncIterator[None]:
    """Keep a worker up to date while the block lasts, then write what waits to be written."""
    service, settings = desk.service, desk.settings
    desk.log.start()
    service.log.start()
    rounds = (
        (lambda: follow_pointers(desk, ready=not draining()), settings.reload_every_s),
        (lambda: follow_feedback(desk), settings.feedback_every_s),
        (lambda: follow_errors(desk), ERRORS_EVERY_S),
    )
    set_gauges(desk, ready=True)
    tasks = [asyncio.create_task(_again_and_again(work, every_s)) for work, every_s in rounds]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        desk.slots.close()
        await asyncio.to_thread(service.log.stop)
        desk.log.stop()


def follow_pointers(desk: Desk, *, ready: bool) -> None:
    """Load the models whose pointers moved, and count what became of each."""
    for reload in desk.service.models.refresh():
        desk.metrics.reloads.labels(reload.result).inc()
        say = logger.warning if reload.result == "failed" else logger.info
        say("model %s@%s (%s): %s %s", reload.name, reload.version, reload.alias, reload.result, reload.detail)
    set_gauges(desk, ready=ready)


def follow_feedback(desk: Desk) -> None:
    """Take in what was reported to any worker."""
    desk.service.feed.poll()


def follow_errors(desk: Desk) -> None:
    """Say in metrics how large the errors of late are beside those on each model's card."""
    for name, error in desk.service.champion_errors().items():
        if error.mean_absolute_log is not None and error.expected_mean_absolute_log:
            desk.metrics.error_ratio.labels(name).set(error.mean_absolute_log / error.expected_mean_absolute_log)


def set_gauges(desk: Desk, *, ready: bool) -> None:
    """Say in metrics which models serve, how old they are, and how long ago the registry was mirrored."""
    service, metrics = desk.service, desk.metrics
    now_s = service.clock()
    snapshot = service.models.current
    aliased = {"champion": snapshot.champions, "challenger": snapshot.challengers}
    metrics.serving(
        {
            (name, str(model.bundle.version), alias): now_s - model.bundle.card.until.timestamp()
            for alias, models in aliased.items()
            for name, model in models.items()
        }
    )
    metrics.ready.set(1 if ready and snapshot.champions else 0)
    mirror = read_mirror_state(service.settings.bundles, now_s=now_s)
    if service.settings.tracking_uri is not None:
        # A registry that was never mirrored has been away since the worker began.
        never_s = now_s - metrics.began_s
        metrics.sync_age.set(never_s if mirror is None or mirror.age_s is None else mirror.age_s)
    metrics.dropped(service.log.dropped)


async def _again_and_again(work: Callable[[], None], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await asyncio.to_thread(work)
        except Exception:
            logger.exception("a round of upkeep failed; the next comes in %g s", every_s)
