"""Figures for Prometheus: requests, latency, the queue, tokens, how full batches are.

With several worker processes, ``PROMETHEUS_MULTIPROC_DIR`` names a folder in which prometheus_client shares
the figures of all of them; it must be set before this module is imported.
"""

import asyncio
import os
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from transduce.serving.service import Service

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_EVERY = 1.0  # seconds between two looks at the scheduler
_GAUGES = {
    "sentences_pending": "Sentences accepted and not yet translated.",
    "sentences_waiting": "Sentences that wait for a place in a batch.",
    "sentences_running": "Sentences in batches.",
}
_COUNTERS = {
    "sentences": "Sentences translated.",
    "sentences_shared": "Sentences not computed because the same was under way.",
    "tokens": "Target tokens of finished sentences.",
    "steps": "Steps of all batches.",
    "batch_places": "Places in batches, summed over all steps.",
    "batch_places_taken": "Places taken in batches, summed over all steps.",
    "computing_seconds": "Time of computing, summed over all threads.",
}


class Metrics:
    """The figures of one server process, or of all if they share them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "transduce_requests", "Requests answered.", ("path", "status"), registry=registry
        )
        self._latency = Histogram(
            "transduce_request_seconds",
            "Time from request to answer.",
            ("path",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._gauges = {
            name: Gauge(f"transduce_{name}", text, multiprocess_mode="livesum", registry=registry)
            for name, text in _GAUGES.items()
        }
        self._counters = {
            name: Counter(f"transduce_{name}", text, registry=registry) for name, text in _COUNTERS.items()
        }
        self._counted = dict.fromkeys(_COUNTERS, 0.0)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a request; ``path`` is the route, without what the client filled in."""
        self._requests.labels(path, str(status)).inc()
        self._latency.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Return all figures in the text format of Prometheus."""
        self._refresh()
        if SHARED_FOLDER not in os.environ:
            return generate_latest(self._registry)
        registry: Any = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    async def keep_fresh(self) -> None:
        """Look at the scheduler again and again: another process may be asked for the figures of this one."""
        while True:
            self._refresh()
            await asyncio.sleep(_EVERY)

    def _refresh(self) -> None:
        scheduler, counted = self._service.scheduler, self._service.scheduler.statistics
        self._gauges["sentences_pending"].set(self._service.pending)
        self._gauges["sentences_waiting"].set(scheduler.waiting)
        self._gauges["sentences_running"].set(scheduler.running)
        for name, value in (
            ("sentences", counted.sentences),
            ("sentences_shared", counted.shared),
            ("tokens", counted.tokens),
            ("steps", counted.steps),
            ("batch_places", counted.places),
            ("batch_places_taken", counted.occupied),
            ("computing_seconds", counted.seconds),
        ):
            self._counters[name].inc(value - self._counted[name])
            self._counted[name] = value
