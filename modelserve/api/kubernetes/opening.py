"""Open the applications of this folder with what they need. Called by `modelserve.server.kubernetes`."""

import logging
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from starlette.applications import Starlette

from modelserve.api.kubernetes.config import read_config
from modelserve.api.kubernetes.extender import extender_app
from modelserve.api.kubernetes.nodes import NodeView
from modelserve.api.kubernetes.templates import Json
from modelserve.api.kubernetes.webhook import DEADLINE_S, Webhook, webhook_app
from modelserve.client import AsyncClient, Retries, Timeouts

__all__ = ["open_extender", "open_webhook"]

log = logging.getLogger("taut.kubernetes")


def open_webhook(config: Path, urls: Sequence[str], token: str | None) -> Starlette:
    """Return the webhook's application, which asks the service at `urls`.

    Raises
    ------
    BadSettings, BadRequest
        The configuration, or an address of the service, is not valid.
    """
    settings = read_config(config)
    # The webhook has the deadline. The client's is longer, so that a late service is seen as late.
    client = AsyncClient(
        *urls,
        token=token,
        timeouts=Timeouts(connect_s=DEADLINE_S, answer_s=2 * DEADLINE_S, total_s=2 * DEADLINE_S),
        retries=Retries(tries=1),
    )
    return webhook_app(Webhook(config=settings, ask=client.recommend))


def open_extender(gpus: Sequence[str], changes: Sequence[Iterable[tuple[str, Json]]]) -> Starlette:
    """Return the extender's application, whose view follows streams of changes of nodes and pods, each in a thread."""
    view = NodeView(gpus)

    def follow(stream: Iterable[tuple[str, Json]]) -> None:
        for change, found in stream:
            try:
                view.apply(change, found)
            except Exception:  # any error: one object must not stop the stream
                log.exception("a change of a node or pod was not understood")

    for each in changes:
        threading.Thread(target=follow, args=(each,), daemon=True).start()
    return extender_app(view)
