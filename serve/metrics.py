"""Figures of a server, as Prometheus reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rankslice.serve.models import Model, Models
from rankslice.serve.protocol.tensors import RefusalError

CONTENT_TYPE = CONTENT_TYPE_LATEST
_BUCKETS_S = tuple(round(size * 10**power, 4) for power in range(-3, 2) for size in (1, 2, 5))
NO_MODEL = ""
"""The label of requests that name no model of the server."""

_GAUGES: dict[str, tuple[str, Callable[[Model], float]]] = {
    "frames_per_second": ("Results per second, over ten seconds.", lambda model: model.fps),
    "frames": ("Frames without a result.", lambda model: model.pipeline.kept),
    "frames_limit": ("Most frames without a result.", lambda model: model.pipeline.limit),
    "ready": ("Whether the model accepts requests.", lambda model: model.is_ready),
    "restarts": ("Jobs that have taken over.", lambda model: model.pipeline.restarts),
}
_RANK_GAUGES = {
    "compute_share": "Share of the last second in which a rank of the running job computed.",
    "wait_share": "Share of the last second in which a rank of the running job waited for frames.",
    "memory_mb": "Resident memory of a rank of the running job and its helpers, in 10^6 bytes.",
}


class _Figures(Collector):
    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        for name, (text, read) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"rankslice_{name}", text, labels=("model", "version"))
            for model in self._models:
                gauge.add_metric((model.name, model.version), read(model))
            yield gauge
        labels = ("model", "version", "rank")
        text = "Processor time of the ranks of the running job."
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            "cpu_s": CounterMetricFamily("rankslice_rank_cpu_seconds", text, labels=labels)
        }
        for figure, text in _RANK_GAUGES.items():
            families[figure] = GaugeMetricFamily(f"rankslice_rank_{figure}", text, labels=labels)
        for model in self._models:
            for rank, figures in sorted(model.pipeline.rank_figures().items()):
                for figure in families.keys() & figures.keys():
                    place = (model.name, model.version, str(rank))
                    families[figure].add_metric(place, figures[figure])
        yield from families.values()


class Metrics:
    def __init__(self, models: Models) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Figures(models))
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
            "Time from a request to its answer, for answered requests.",
            labels,
            buckets=_BUCKETS_S,
            registry=self._registry,
        )

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
        self._refusals.labels(model, protocol, error.reason.label).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)
