"""The Prometheus metrics of the service.

Users and jobs are never labels. Workers share their counts if `PROMETHEUS_MULTIPROC_DIR` is set. Called by the gate,
the routes and `modelserve.api.upkeep`.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from modelserve.calls.context import Answered

MULTIPROCESS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"

METRIC_NAMES: Final = (
    "taut_answers_dropped_total",
    "taut_asked_amount_total",
    "taut_feedback_total",
    "taut_feedback_trust_total",
    "taut_given_amount_total",
    "taut_holds_total",
    "taut_model_age_seconds",
    "taut_model_info",
    "taut_model_reload_total",
    "taut_placements_total",
    "taut_plans_total",
    "taut_prediction_duration_seconds",
    "taut_prediction_error_ratio",
    "taut_predictions_total",
    "taut_ready",
    "taut_reclaimed_ratio",
    "taut_recommendations_total",
    "taut_requests_total",
    "taut_reservations_total",
    "taut_reserved_amount_total",
    "taut_routes_total",
    "taut_running_amount_total",
    "taut_samples_refused_total",
    "taut_sync_age_seconds",
)
"""The names of all metrics."""

BUCKETS_S: Final = (
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip

# Leave out the creation time of each counter, which would double the size of the page.
disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in prometheus_client

METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class Metrics:
    """The metrics of one worker, in their own Prometheus registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("taut_requests_total", "Calls ended.", ("route", "method", "status"), registry=registry)
        self.durations = Histogram(
            "taut_prediction_duration_seconds", "How long answers took.", ("endpoint",),
            buckets=BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.predictions = Counter(
            "taut_predictions_total", "Jobs predicted.", ("model", "version", "outcome"), registry=registry
        )
        self.recommendations = Counter(
            "taut_recommendations_total", "Resources recommended on.", ("resource", "reason"), registry=registry
        )
        self.asked = Counter(
            "taut_asked_amount_total", "What jobs with a recommendation asked for.", ("resource",), registry=registry
        )
        self.given = Counter("taut_given_amount_total", "What jobs were recommended.", ("resource",), registry=registry)
        self.reservations = Counter(
            "taut_reservations_total", "Reservations of running jobs.", ("reason",), registry=registry
        )
        self.placements = Counter("taut_placements_total", "Waiting jobs decided on.", ("reason",), registry=registry)
        self.routes = Counter("taut_routes_total", "Waiting jobs routed among sites.", ("reason",), registry=registry)
        self.plans = Counter("taut_plans_total", "Jobs planned.", ("reason",), registry=registry)
        self.holds = Counter("taut_holds_total", "Jobs held or started at once.", ("reason",), registry=registry)
        self.samples_refused = Counter(
            "taut_samples_refused_total", "Samples of running jobs refused.", ("why",), registry=registry
        )
        self.running = Counter(
            "taut_running_amount_total", "Sum over calls of what running jobs requested.", ("resource",),
            registry=registry,
        )  # fmt: skip
        self.reserved = Counter(
            "taut_reserved_amount_total", "Sum over calls of what was reserved for them.", ("resource",),
            registry=registry,
        )  # fmt: skip
        self.feedback = Counter("taut_feedback_total", "Finished jobs reported.", ("outcome",), registry=registry)
        self.trust = Counter("taut_feedback_trust_total", "Reports, by trust.", ("trust",), registry=registry)
        self.reloads = Counter("taut_model_reload_total", "Models read anew.", ("result",), registry=registry)
        self.answers_dropped = Counter(
            "taut_answers_dropped_total", "Answers that the log had no room for.", registry=registry
        )
        self.model_info = _gauge(
            "taut_model_info", "1 for each model that serves.", ("model", "version", "alias"), registry, "livemax"
        )
        self.model_age = _gauge(
            "taut_model_age_seconds", "Time since a model's data ends.", ("model",), registry, "livemax"
        )
        self.sync_age = _gauge(
            "taut_sync_age_seconds", "Time since the registry was last mirrored.", (), registry, "livemax"
        )
        self.error_ratio = _gauge(
            "taut_prediction_error_ratio", "Recent error over the card's, by model.", ("model",), registry, "livemax"
        )
        self.ready = _gauge("taut_ready", "1 where every worker is ready.", (), registry, "livemin")
        self._info: frozenset[tuple[str, str, str]] = frozenset()
        self._dropped = 0
        self.began_s = time.time()
        self._ended: dict[tuple[str, str, int], Counter] = {}
        self._timed: dict[str, Histogram] = {}
        self._counted: dict[tuple[str, ...], Counter] = {}
        self._families = {
            "prediction": self.predictions,
            "recommendation": self.recommendations,
            "reservation": self.reservations,
            "plan": self.plans,
            "hold": self.holds,
            "placement": self.placements,
            "route": self.routes,
            "refused_sample": self.samples_refused,
        }

    def ended(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count a finished call and its duration."""
        key = (route, method, status)
        count = self._ended.get(key)
        if count is None:
            known = method if method in METHODS else "other"
            count = self.requests.labels(route, known, str(status))
            if known == method:
                self._ended[key] = count
        count.inc()
        timed = self._timed.get(route)
        if timed is None:
            timed = self._timed[route] = self.durations.labels(route)
        timed.observe(duration_s)

    def answered(self, answered: Answered) -> None:
        """Count jobs of an answer by outcome or reason, and the requested, recommended and reserved amounts."""
        for key, number in answered.counts.items():
            count = self._counted.get(key)
            if count is None:
                count = self._counted[key] = self._families[key[0]].labels(*key[1:])
            count.inc(number)
        for resource, (asked, given) in answered.reclaimed.items():
            self.asked.labels(resource).inc(asked)
            self.given.labels(resource).inc(given)
        for resource, (asked, reserved) in answered.reserved.items():
            self.running.labels(resource).inc(asked)
            self.reserved.labels(resource).inc(reserved)

    def dropped(self, answers: int) -> None:
        """Set the number of answers that the answer log has dropped since the worker started."""
        self.answers_dropped.inc(answers - self._dropped)
        self._dropped = answers

    def serving(self, models: Mapping[tuple[str, str, str], float]) -> None:
        """Set the gauges of the loaded models; `models` maps (name, version, alias) to an age in seconds.

        The gauges of models that are no longer loaded become 0: info, age and error ratio.
        """
        for labels in self._info - models.keys():
            self.model_info.labels(*labels).set(0)
            if labels[2] == "champion":
                self.model_age.labels(labels[0]).set(0)
                self.error_ratio.labels(labels[0]).set(0)
        for labels, age_s in models.items():
            self.model_info.labels(*labels).set(1)
            if labels[2] == "champion":
                self.model_age.labels(labels[0]).set(age_s)
        self._info = frozenset(models)

    def page(self) -> bytes:
        """Return the metrics in Prometheus's text format, of all workers if they share a folder."""
        registry: CollectorRegistry = self.registry
        if os.environ.get(MULTIPROCESS_FOLDER):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # untyped in prometheus_client
        page = CollectorRegistry()
        page.register(_WithRatio(list(registry.collect())))
        return generate_latest(page)


class _WithRatio:
    """A Prometheus collector that adds the reclaimed ratio, computed from sums over all workers, to other metrics."""

    def __init__(self, collected: Sequence[Metric]) -> None:
        self._collected = collected

    def collect(self) -> list[Metric]:
        """Return the metrics, and the share of each requested resource that was reclaimed."""
        sums = {metric.name: _by_resource(metric) for metric in self._collected}
        asked, given = sums.get("taut_asked_amount", {}), sums.get("taut_given_amount", {})
        ratio = GaugeMetricFamily(
            "taut_reclaimed_ratio", "Share of requested resources that was freed.", labels=["resource"]
        )
        for resource, amount in asked.items():
            if amount > 0:
                ratio.add_metric([resource], 1.0 - given.get(resource, 0.0) / amount)
        return [*self._collected, ratio]


def _by_resource(metric: Metric) -> dict[str, float]:
    return {
        sample.labels["resource"]: sample.value
        for sample in metric.samples
        if sample.name.endswith("_total") and "resource" in sample.labels
    }


def _gauge(name: str, text: str, labels: Sequence[str], registry: CollectorRegistry, mode: str) -> Gauge:
    return Gauge(name, text, labels, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]  # `mode` is a Literal in prometheus_client
