"""The admission webhook: an application that asks the service about new pods, and always answers in time.

The API server creates a pod as requested if the webhook fails, so every error leads to an answer without a patch.
`reviews.py` decides; `Counts` are its metrics.
"""

import asyncio
import base64
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from modelserve.client import Advice, AsyncClient, Retries, Timeouts
from modelserve.client.policy import Breaker
from pipelines.connect.kubernetes.api import LIMIT_RANGES, ApiServer, in_cluster, open_api_server
from pipelines.connect.kubernetes.config import KubernetesConfig, read_config
from pipelines.connect.kubernetes.objects import Json, mapping, text
from pipelines.connect.kubernetes.pods import LeftAlone
from pipelines.connect.kubernetes.reviews import Decision, Review, allowed, decided, planned, read_review
from pipelines.connect.kubernetes.serving import app_of
from pipelines.errors import ConnectError
from scheduler_core.types import Job

__all__ = ["open_webhook", "review_object"]

BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
OUTCOMES: Final = ("left alone", "failed", "unchanged", "would shrink", "shrunk")


class Counts:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._reviews = Counter(
            "taut_webhook_reviews", "AdmissionReviews by what was decided.", ["outcome"], registry=self.registry
        )
        for outcome in OUTCOMES:
            self._reviews.labels(outcome)
        self._seconds = Histogram(
            "taut_webhook_review_duration_seconds", "Time to an answer.", buckets=BOUNDS_S, registry=self.registry
        )

    def answered(self, decision: Decision, duration_s: float) -> None:
        """Count an answered review."""
        outcome = next((each for each in OUTCOMES if decision.reason.startswith(each)), "unchanged")
        self._reviews.labels(outcome).inc()
        self._seconds.observe(duration_s)


DEADLINE_S: Final = 0.2
"""Longest time for an answer; the API server waits for at least one second."""
REVIEW_DEADLINE_S: Final = 10.0
"""Longest time for the answer to a person; no pod waits for it."""

EVERY_S: Final = 5.0
"""Seconds between two readings of the LimitRanges."""

Ask = Callable[[Sequence[Job]], Awaitable[Sequence[Advice]]]
log = logging.getLogger("taut.kubernetes")


@dataclass(slots=True, kw_only=True)
class Webhook:
    """Decides on AdmissionReviews with the advice of the service.

    Attributes
    ----------
    config
        None until the LimitRanges are read. Until then pods stay as they are, since a smaller one might be refused.
    ask
        Coroutine that returns advice for each job, such as `AsyncClient.recommend`.
    deadline_s
        Longest wait for the advice; then the pod is created as requested.
    breaker
        After several late answers in a row, the service is not asked for a while.
    """

    config: KubernetesConfig | None
    ask: Ask
    deadline_s: float = DEADLINE_S
    counts: Counts = field(default_factory=Counts)
    breaker: Breaker = field(default_factory=lambda: Breaker(clock=time.monotonic))

    async def answer(self, body: bytes) -> bytes:
        """Return the AdmissionReview that answers the one in `body`; it always allows the object."""
        started_s = time.perf_counter()
        review = read_review(body)
        try:
            decision = await self._decision(review)
        except LeftAlone as reason:
            decision = Decision(reason=f"left alone: {reason}")
        except Exception as error:  # any error: the pod must be created
            log.exception("review %s failed", review.uid[:64])
            decision = Decision(reason=f"failed: {type(error).__name__}")
        answer = allowed(review.uid, decision)
        self.counts.answered(decision, time.perf_counter() - started_s)
        if not decision.reason.startswith("left alone"):
            log.info("%s %s/%s: %s", review.uid[:64], review.namespace[:64], review.kind[:64], decision.reason[:300])
        return answer

    async def _decision(self, review: Review) -> Decision:
        if self.config is None:
            raise LeftAlone("the LimitRanges are not read yet")
        plan = planned(review, self.config)
        if not self.breaker.admits():
            return Decision(reason=f"failed: the service was late, and rests {self.breaker.rest_s:.0f} s")
        try:
            async with asyncio.timeout(self.deadline_s):
                advice = await self.ask(plan.jobs)
        except TimeoutError:
            self.breaker.failed()
            return Decision(reason=f"failed: no advice within {self.deadline_s:g} s")
        self.breaker.succeeded()
        return decided(plan, advice)


def webhook_app(webhook: Webhook) -> Starlette:
    """Return the application: `/kubernetes/mutate`, `/healthz` and `/metrics`."""

    async def metrics(_: Request) -> Response:
        page = generate_latest(webhook.counts.registry)
        return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    return app_of({"/kubernetes/mutate": webhook.answer}, Route("/metrics", metrics))


def open_webhook(config: Path, urls: Sequence[str], token: str | None, api_server: str | None) -> Starlette:
    """Return the webhook's application, which asks the service at `urls`.

    LimitRanges are read at `api_server`; without it, from the cluster that this pod runs in, if any.
    """
    settings = read_config(config)
    server = open_api_server(api_server) if api_server or in_cluster() else None
    webhook = Webhook(config=settings if server is None else None, ask=_client(urls, token).recommend)
    if server is not None:
        threading.Thread(target=_follow_limit_ranges, args=(webhook, settings, server), daemon=True).start()
    return webhook_app(webhook)


def _follow_limit_ranges(webhook: Webhook, settings: KubernetesConfig, server: ApiServer) -> None:
    while True:
        try:
            webhook.config = settings.with_limit_ranges(server.listed(LIMIT_RANGES)[0])
        except (ConnectError, ValueError) as error:
            log.warning("the LimitRanges stay as they were: %s", error)
        server.sleep(EVERY_S)


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
