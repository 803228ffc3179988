"""Open the applications of this folder with what they need. Called by `modelserve.server.kubernetes`."""

from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette

from modelserve.api.kubernetes.config import read_config
from modelserve.api.kubernetes.webhook import DEADLINE_S, Webhook, webhook_app
from modelserve.client import AsyncClient, Retries, Timeouts

__all__ = ["open_webhook"]


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
