"""How long each operator of a segment took: one row for each, over all runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from .operator_profile import OperatorSpans, Span


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """Times of one operator, or of one kernel where the engine only queues its operators."""

    operator: str
    """Kind and name, as the engine has them: ``Conv conv1``."""
    shapes: str
    """Of inputs and outputs: ``1x8x8x1, 24x3x3x1 -> 1x8x8x24``; empty: unknown."""
    kernel: str
    """What computed it; empty: the engine does not report that."""
    count: int
    """Runs."""
    mean_ms: float
    p50_ms: float
    p95_ms: float


def operator_rows(segment: OperatorSpans, last: int) -> Iterator[OperatorRow]:
    """Yield the operators of the ``last`` runs, in the order in which they ran first.

    Where an accelerator reports its own times, and the engine's spans only show when work was
    queued, or one span for all, the rows are the accelerator's.
    """
    device = segment.device
    if device is not None and not segment.kernels:
        kernels = [span for run in device.runs[-last:] for span in run]
        yield from _rows(device.names, (), device.names, kernels, 1e6)
    else:
        begin = min((begin for begin, _ in segment.runs[-last:]), default=0)
        spans = [span for span in segment.spans if span[1] >= begin]
        yield from _rows(segment.names, segment.shapes, segment.kernels, spans, 1e3)


def _rows(
    names: tuple[str, ...],
    shapes: tuple[str, ...],
    kernels: tuple[str, ...],
    spans: Iterable[Span],
    per_ms: float,
) -> Iterator[OperatorRow]:
    durations: dict[int, list[float]] = {}
    for number, _, duration in spans:
        durations.setdefault(number, []).append(duration / per_ms)
    for number, taken in durations.items():
        p50_ms, p95_ms = np.percentile(taken, (50, 95)).tolist()
        yield OperatorRow(
            names[number],
            shapes[number] if shapes else "",
            kernels[number] if kernels else "",
            len(taken),
            float(np.mean(taken)),
            p50_ms,
            p95_ms,
        )
