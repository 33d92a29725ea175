"""Figures for Prometheus: requests, latency, the queue, tokens, how full batches are."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from transduce.serving.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """The figures of one server process."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "transduce_requests", "Requests answered.", ("path", "status"), registry=self._registry
        )
        self._latency = Histogram(
            "transduce_request_seconds",
            "Time from request to answer.",
            ("path",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._registry.register(_SchedulerFigures(service))

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a request; ``path`` is the route, without what the client filled in."""
        self._requests.labels(path, str(status)).inc()
        self._latency.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Return all figures in the text format of Prometheus."""
        return generate_latest(self._registry)


class _SchedulerFigures:
    """Reads what the scheduler counts, when it is asked."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the present figures."""
        scheduler, counted = self._service.scheduler, self._service.scheduler.statistics
        for name, text, value in (
            ("sentences_pending", "Sentences accepted and not yet translated.", self._service.pending),
            ("sentences_waiting", "Sentences that wait for a place in a batch.", scheduler.waiting),
            ("sentences_running", "Sentences in batches.", scheduler.running),
            (
                "batch_fill",
                "Mean share of places taken in batches.",
                counted.occupied / max(1, counted.places),
            ),
        ):
            yield GaugeMetricFamily(f"transduce_{name}", text, value)
        for name, text, value in (
            ("sentences", "Sentences translated.", counted.sentences),
            ("sentences_shared", "Sentences not computed because the same was under way.", counted.shared),
            ("tokens", "Target tokens of finished sentences.", counted.tokens),
            ("steps", "Steps of all batches.", counted.steps),
        ):
            yield CounterMetricFamily(f"transduce_{name}", text, value)
