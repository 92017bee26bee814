"""What is measured of a kind of accelerator, joined with what was known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rankslice.backend.boards.accelerator import Reading
from rankslice.exploration.times.span_times import Span
from rankslice.framework.profile import ProfiledKind, Span as ProfiledSpan


def with_readings(kind: ProfiledKind, readings: Iterable[tuple[Span, Reading]]) -> ProfiledKind:
    spans = {(span.first, span.last): span for span in kind.spans}
    for span, reading in readings:
        spans[span] = _joined(spans.get(span), span, reading)
    return replace(kind, spans=tuple(spans[span] for span in sorted(spans)))


def moments_of(kind: ProfiledKind) -> dict[Span, int]:
    """Return at how many moments spans were measured; none: it could not be measured."""
    return {(span.first, span.last): len(span.moments) for span in kind.spans}


def median_s(reading: Reading) -> float:
    seconds = _joined(None, (0, 0), reading).seconds
    assert seconds is not None
    return seconds


def _joined(old: ProfiledSpan | None, span: Span, reading: Reading) -> ProfiledSpan:
    before = old.samples_ns if old is not None else ()
    energy = reading.energy_uj
    memory, gpu = reading.memory_bytes, reading.gpu_bytes
    return ProfiledSpan(
        first=span[0],
        last=span[1],
        samples_ns=(*before, *reading.samples_ns),
        moments=(
            *(old.moments if old else ()),
            *([len(reading.samples_ns)] * bool(reading.samples_ns)),
        ),
        memory_bytes=memory if memory is not None else old.memory_bytes if old else None,
        energy_uj=energy if energy is not None else old.energy_uj if old else None,
        problem=None if before else reading.problem,
        refused=reading.refused and not before,
        gpu_bytes=gpu if gpu is not None else old.gpu_bytes if old else None,
    )
