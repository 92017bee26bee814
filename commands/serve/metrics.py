"""Figures of a server, as Prometheus reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from rankslice.commands.serve.protocol.refusal import RefusalError

CONTENT_TYPE = CONTENT_TYPE_LATEST
_BUCKETS_S = tuple(round(size * 10**power, 4) for power in range(-3, 2) for size in (1, 2, 5))
NO_MODEL = ""
"""The label of requests that name no model of the server."""


class _RankTimes(Collector):
    """Processor times of ranks, read whenever they are asked for."""

    def __init__(self) -> None:
        self.read: dict[str, Callable[[], Mapping[int, float]]] = {}
        """By model."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the figures."""
        family = CounterMetricFamily(
            "rankslice_rank_cpu_seconds",
            "Processor time of the ranks of the running job.",
            labels=("model", "rank"),
        )
        for model, read in self.read.items():
            for rank, seconds in sorted(read().items()):
                family.add_metric((model, str(rank)), seconds)
        yield family


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._rank_times = _RankTimes()
        self._registry.register(self._rank_times)
        labels = ("model", "protocol")
        self._requests = Counter(
            "rankslice_requests",
            "Requests for inference that have ended.",
            (*labels, "outcome"),
            registry=self._registry,
        )
        self._refusals = Counter(
            "rankslice_refusals",
            "Requests that were refused.",
            (*labels, "reason"),
            registry=self._registry,
        )
        self._latency = Histogram(
            "rankslice_request_seconds",
            "Time from a request to its answer, of those that were answered.",
            labels,
            buckets=_BUCKETS_S,
            registry=self._registry,
        )

    def watch(self, model: str, figures: dict[str, tuple[str, Callable[[], float]]]) -> None:
        """Have figures of a model read whenever they are asked for.

        Args:
            model: its name.
            figures: by name: what it is, and what returns it.
        """
        for name, (told, read) in figures.items():
            if name not in self._gauges:
                self._gauges[name] = Gauge(name, told, ("model",), registry=self._registry)
            self._gauges[name].labels(model).set_function(read)

    def watch_ranks(self, model: str, read: Callable[[], Mapping[int, float]]) -> None:
        """Have the processor time of each rank of a model read whenever it is asked for."""
        self._rank_times.read[model] = read

    @contextmanager
    def request(self, model: str, protocol: str) -> Iterator[None]:
        """Count what comes of a request, and how long it takes, while the block lasts."""
        began, outcome = time.monotonic(), "cancelled"
        try:
            yield
            outcome = "answered"
            self._latency.labels(model, protocol).observe(time.monotonic() - began)
        except RefusalError as error:
            outcome = "refused"
            self.refused(model, protocol, error)
            raise
        finally:
            self._requests.labels(model, protocol, outcome).inc()

    def refused(self, model: str, protocol: str, error: RefusalError) -> None:
        """Count a refusal."""
        self._refusals.labels(model, protocol, error.reason.label).inc()

    def text(self) -> bytes:
        """Return all figures in the text form."""
        return generate_latest(self._registry)
