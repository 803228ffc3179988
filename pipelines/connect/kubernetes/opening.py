"""Open the applications of this folder with what they need, or ask one of them once."""

import base64
import json
import logging
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from starlette.applications import Starlette

from modelserve.client import AsyncClient, Retries, Timeouts
from pipelines.connect.kubernetes.config import read_config
from pipelines.connect.kubernetes.extender import extender_app
from pipelines.connect.kubernetes.nodes import NodeView
from pipelines.connect.kubernetes.pod_templates import Json, mapping, text
from pipelines.connect.kubernetes.webhook import DEADLINE_S, Webhook, webhook_app

__all__ = ["open_extender", "open_webhook", "review_object"]

REVIEW_DEADLINE_S: Final = 10.0
"""Longest time for the answer to a person; no pod waits for it."""

log = logging.getLogger("taut.kubernetes")


def open_webhook(config: Path, urls: Sequence[str], token: str | None) -> Starlette:
    """Return the webhook's application, which asks the service at `urls`."""
    return webhook_app(Webhook(config=read_config(config), ask=_client(urls, token).recommend))


def _client(urls: Sequence[str], token: str | None, deadline_s: float = DEADLINE_S) -> AsyncClient:
    # The webhook has the deadline. The client's is longer, so that a late service is seen as late.
    return AsyncClient(
        *urls,
        token=token,
        timeouts=Timeouts(connect_s=deadline_s, answer_s=2 * deadline_s, total_s=2 * deadline_s),
        retries=Retries(tries=1),
    )


async def review_object(config: Path, urls: Sequence[str], token: str | None, found: Json) -> dict[str, object]:
    """Return what the webhook would answer if an object were created: the reason, warnings and the patch.

    `found` is the object, or a recorded AdmissionReview with it. The wait for the service is longer than the webhook's.
    """
    request = mapping(found.get("request")) if found.get("kind") == "AdmissionReview" else _request_of(found)
    request = {**request, "uid": str(uuid4()), "operation": "CREATE", "subResource": None, "dryRun": False}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    settings = read_config(config)
    async with _client(urls, token, REVIEW_DEADLINE_S) as client:
        webhook = Webhook(config=settings, ask=client.recommend, deadline_s=REVIEW_DEADLINE_S)
        answer = await webhook.answer(json.dumps(review).encode())
    response = json.loads(answer)["response"]
    return {
        "reason": response["auditAnnotations"]["reason"],
        "warnings": response.get("warnings", []),
        "patch": json.loads(base64.b64decode(response.get("patch", "W10="))),
    }


def _request_of(found: Json) -> Json:
    """Return the part of an AdmissionReview that the API server would send about an object."""
    group, _, version = str(found.get("apiVersion")).rpartition("/")
    return {
        "kind": {"group": group, "version": version, "kind": found.get("kind")},
        "namespace": text(mapping(found.get("metadata")).get("namespace")) or "default",
        "object": found,
    }


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
