"""The Prometheus metrics of the service.

Users and jobs are never labels. Workers share their counts if `PROMETHEUS_MULTIPROC_DIR` is set.
"""

import os
import time
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from modelserve.calls.context import Answered

MULTIPROCESS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
BUCKETS_S: Final = (
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip

ANSWERED: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "prediction": ("taut_predictions", "Jobs predicted.", ("model", "version", "outcome")),
    "recommendation": ("taut_recommendations", "Resources recommended on.", ("resource", "reason")),
    "reservation": ("taut_reservations", "Reservations of running jobs.", ("reason",)),
    "placement": ("taut_placements", "Waiting jobs decided on.", ("reason",)),
    "route": ("taut_routes", "Waiting jobs routed among sites.", ("reason",)),
    "plan": ("taut_plans", "Jobs planned.", ("reason",)),
    "hold": ("taut_holds", "Jobs held or started at once.", ("reason",)),
    "refused_sample": ("taut_samples_refused", "Samples of running jobs refused.", ("why",)),
}
"""Name, text and labels of the counter of each kind in `Answered.counts`."""

# Leave out the creation time of each counter, which would double the size of the page.
disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in prometheus_client


class Metrics:
    """The metrics of one worker, in their own Prometheus registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("taut_requests", "Calls ended.", "route", "method", "status")
        self.durations = Histogram(
            "taut_prediction_duration_seconds", "How long answers took.", ("endpoint",),
            buckets=BUCKETS_S, registry=self.registry,
        )  # fmt: skip
        self._families = {kind: self._counter(name, text, *labels) for kind, (name, text, labels) in ANSWERED.items()}
        self.asked = self._counter("taut_asked_amount", "What jobs with a recommendation asked for.", "resource")
        self.given = self._counter("taut_given_amount", "What jobs were recommended.", "resource")
        self.running = self._counter(
            "taut_running_amount", "Sum over calls of what running jobs requested.", "resource"
        )
        self.reserved = self._counter(
            "taut_reserved_amount", "Sum over calls of what was reserved for them.", "resource"
        )
        self.feedback = self._counter("taut_feedback", "Finished jobs reported.", "outcome")
        self.trust = self._counter("taut_feedback_trust", "Reports, by trust.", "trust")
        self.reloads = self._counter("taut_model_reload", "Models read anew.", "result")
        self.answers_dropped = self._counter("taut_answers_dropped", "Answers that the log had no room for.")
        self.model_info = self._gauge("taut_model_info", "1 for each model that serves.", "model", "version", "alias")
        self.model_age = self._gauge("taut_model_age_seconds", "Time since a model's data ends.", "model")
        self.sync_age = self._gauge("taut_sync_age_seconds", "Time since the registry was last mirrored.")
        self.error_ratio = self._gauge(
            "taut_prediction_error_ratio", "Recent error over the card's, by model.", "model"
        )
        self.brakes = self._gauge("taut_brakes", "Groups, users and types that are not shrunk after harm.", "of")
        self.ready = Gauge(
            "taut_ready", "1 where every worker is ready.", registry=self.registry, multiprocess_mode="livemin"
        )
        self._info: frozenset[tuple[str, str]] = frozenset()
        self._dropped = 0
        self.began_s = time.time()
        self._ended: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry, multiprocess_mode="livemax")

    def ended(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count a finished call and its duration."""
        key = (route, method if method in METHODS else "other", status)
        if key not in self._ended:
            self._ended[key] = self.requests.labels(*map(str, key)), self.durations.labels(route)
        count, timed = self._ended[key]
        count.inc()
        timed.observe(duration_s)

    def answered(self, answered: Answered) -> None:
        """Count jobs of an answer by outcome or reason, and the requested, recommended and reserved amounts."""
        for key, number in answered.counts.items():
            self._families[key[0]].labels(*key[1:]).inc(number)
        for amounts, first, second in (
            (answered.reclaimed, self.asked, self.given),
            (answered.reserved, self.running, self.reserved),
        ):
            for resource, (before, after) in amounts.items():
                first.labels(resource).inc(before)
                second.labels(resource).inc(after)

    def dropped(self, answers: int) -> None:
        """Set the number of answers that the answer log has dropped since the worker started."""
        self.answers_dropped.inc(answers - self._dropped)
        self._dropped = answers

    def serving(self, models: Mapping[tuple[str, str], float]) -> None:
        """Set the gauges of the loaded models; `models` maps (name, version) to an age in seconds.

        The gauges of models that are no longer loaded become 0: info, age and error ratio.
        """
        for name, version in self._info - models.keys():
            self.model_info.labels(name, version, "champion").set(0)
            self.model_age.labels(name).set(0)
            self.error_ratio.labels(name).set(0)
        for (name, version), age_s in models.items():
            self.model_info.labels(name, version, "champion").set(1)
            self.model_age.labels(name).set(age_s)
        self._info = frozenset(models)

    def page(self) -> bytes:
        """Return the metrics in Prometheus's text format, of all workers if they share a folder."""
        registry = self.registry
        if os.environ.get(MULTIPROCESS_FOLDER):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # untyped in prometheus_client
        return generate_latest(registry)
