"""Open the service: store, models, stored feedback and answer log, put together from the settings."""

import time
from collections.abc import Callable
from functools import partial

from modelserve.bundle.routing_policy import read_routing_policy
from modelserve.calls.shadow import Shadow
from modelserve.learning.erasure import strike_late
from modelserve.learning.feed import Feed
from modelserve.loading.models import ModelSet
from modelserve.service import Service
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.answer_log import AnswerLog
from modelserve.store.answers import write_comparisons

__all__ = ["open_service"]


def open_service(
    settings: ServeSettings,
    *,
    clock: Callable[[], float] = time.time,
    store_inode: int | None = None,
) -> Service:
    """Open the store, load the models in the folder, and read the stored feedback.

    `store_inode` is as in `Store.open`.

    Raises
    ------
    StoreError
        The store cannot be opened.
    BundleError
        The file of the policy of sites cannot be read.
    """
    store = Store.open(settings.store, inode=store_inode)
    feeds: list[Feed] = []
    models = ModelSet(
        settings.bundles,
        past=lambda trace: feeds[0].past(trace),  # called later: the feed needs the models, so it is created below
        clock=clock,
        challengers=settings.challengers,
        forgotten=lambda trace: feeds[0].tombstones(trace),
    )
    log = AnswerLog(store, settings.answers_kept, settings.answers_kept_bytes)
    feed = Feed(store, models, settings, erased=partial(strike_late, store, log))
    feeds.append(feed)
    models.refresh()
    feed.poll()
    return Service(
        settings=settings,
        models=models,
        store=store,
        log=log,
        feed=feed,
        routing=None if settings.sites_policy is None else read_routing_policy(settings.sites_policy),
        shadow=Shadow(partial(write_comparisons, store, kept=settings.answers_kept)) if settings.challengers else None,
        clock=clock,
    )
