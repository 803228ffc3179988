"""Open the service: store, models, stored feedback and answer log, put together from the settings.

Called by `modelserve.server` in each worker process, and by tests.
"""

import time
from collections.abc import Callable
from functools import partial

from modelserve.bundle.routing_policy import read_routing_policy
from modelserve.calls.shadow import Shadow
from modelserve.learning.erasure import strike_late
from modelserve.learning.feed import Feed
from modelserve.loading.histories import Forgotten
from modelserve.loading.models import ModelSet
from modelserve.service import Service
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.answer_log import AnswerLog
from modelserve.store.answer_writing import StoreWriter
from modelserve.store.comparisons import write_comparisons
from modelserve.store.writer_process import WriterProcess

__all__ = ["open_service"]


def open_service(
    settings: ServeSettings,
    *,
    clock: Callable[[], float] = time.time,
    log_apart: bool = False,
    store_inode: int | None = None,
) -> Service:
    """Open the store, load the models in the folder, and read the stored feedback.

    With `log_apart`, a separate process writes the answer log to the store. `store_inode` as in `Store.open`.

    Raises
    ------
    StoreError
        The store cannot be opened.
    BundleError
        The file of the policy of sites cannot be read.
    """

    def forgotten(trace: str) -> list[Forgotten]:
        return [
            Forgotten(each.user, frozenset({each.cluster}) if each.cluster else None, each.before_us)
            for each in feeds[0].tombstones(trace)
        ]

    store = Store.open(settings.store, inode=store_inode)
    feeds: list[Feed] = []
    models = ModelSet(
        settings.bundles,
        past=lambda trace: feeds[0].past(trace),  # called later: the feed needs the models, so it is created below
        clock=clock,
        challengers=settings.challengers,
        forgotten=forgotten,
    )
    bounds = settings.answers_kept, settings.answers_kept_bytes
    writer = WriterProcess(settings.store, *bounds) if log_apart else StoreWriter(store, *bounds)
    log = AnswerLog(writer if settings.answers_kept else None)
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
