"""Metrics of the webhook: reviews by outcome, and how long they took. Called by `modelserve.api.kubernetes.webhook`."""

from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.kubernetes.reviews import Decision

__all__ = ["Counts", "counts_page"]

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

    def of(self, outcome: str) -> float:
        """Return the number of reviews with an outcome."""
        return self.registry.get_sample_value("taut_webhook_reviews_total", {"outcome": outcome}) or 0.0


def counts_page(counts: Counts) -> Callable[[Request], Awaitable[Response]]:
    """Return a page of the metrics, as Prometheus reads them."""

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(counts.registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    return metrics
