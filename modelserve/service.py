"""The service put together: settings, models, store, log of answers and feed.

No HTTP here, and nothing is started: what runs in the background is started by whoever serves.
Opened by `modelserve.server`; handed to every call of the logic.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from modelserve.settings import ServeSettings

if TYPE_CHECKING:
    from modelserve.answer_log import AnswerLog
    from modelserve.calls.shadow import Shadow
    from modelserve.learning.feed import Feed
    from modelserve.loading.models import ModelSet
    from modelserve.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What answers calls; `clock` tells Unix time in seconds."""

    settings: ServeSettings
    models: "ModelSet"
    store: "Store"
    log: "AnswerLog"
    feed: "Feed"
    shadow: "Shadow | None" = None
    clock: Callable[[], float] = time.time

    def close(self) -> None:
        """Let go of the store, once nothing compares any more."""
        if self.shadow is not None:
            self.shadow.stop()
        self.store.close()


def open_service(
    settings: ServeSettings, *, clock: Callable[[], float] = time.time, log_apart: bool = False
) -> Service:
    """Open the store, load the models that the folder holds, and read the feedback that there is.

    With `log_apart`, answers are written by a process of their own once the log is started.

    Raises
    ------
    StoreError
        The store cannot be opened.
    """
    from modelserve.answer_log import AnswerLog
    from modelserve.answer_writer import StoreWriter, WriterProcess
    from modelserve.calls.shadow import Shadow
    from modelserve.learning.erasure import strike_late
    from modelserve.learning.feed import Feed
    from modelserve.loading.histories import Forgotten
    from modelserve.loading.models import ModelSet
    from modelserve.store import Store
    from modelserve.store.comparisons import write_comparisons

    def forgotten(trace: str) -> list[Forgotten]:
        return [
            Forgotten(each.user, frozenset({each.cluster}) if each.cluster else None, each.before_us)
            for each in feeds[0].tombstones(trace)
        ]

    store = Store.open(settings.store)
    feeds: list[Feed] = []
    models = ModelSet(
        settings.bundles,
        past=lambda trace: feeds[0].past(trace),  # models need the feed's past, the feed the models to teach
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
        shadow=Shadow(partial(write_comparisons, store, kept=settings.answers_kept)) if settings.challengers else None,
        clock=clock,
    )
