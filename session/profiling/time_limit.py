"""How long profiling takes: expected before it begins, and bounded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rankslice.exploration.times.span_times import Span, first_spans, is_long
from rankslice.framework.profile import ProfiledKind, ProfiledModel

MOMENTS = 3
"""How often long spans are measured, each time after all others."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long it takes to measure spans on a kind of accelerator, by their length.

    It is a line through two spans, the shortest and the longest: loading and running a span take
    longer the more layers it has.
    """

    fixed_s: float
    layer_s: float

    def seconds(self, spans: Iterable[Span]) -> float:
        return sum(self.fixed_s + self.layer_s * _length(span) for span in spans)

    @staticmethod
    def through(taken: Sequence[tuple[Span, float]]) -> Pace:
        """Return the pace of one or two spans that took so many seconds; none: no time at all."""
        if not taken:
            return Pace(0.0, 0.0)
        (short, least), (long, most) = taken[0], taken[-1]
        more = _length(long) - _length(short)
        per_layer = max(0.0, most - least) / more if more else 0.0
        return Pace(max(0.0, least - per_layer * _length(short)), per_layer)


def ends_of(spans: Sequence[Span]) -> list[Span]:
    """Return the shortest and the longest of some spans; one if there is only one length."""
    if not spans:
        return []
    ends = [min(spans, key=_length), max(spans, key=_length)]
    return ends if _length(ends[0]) < _length(ends[1]) else ends[:1]


def _length(span: Span) -> int:
    return span[1] - span[0] + 1


@dataclass(frozen=True, slots=True)
class Expectation:
    spans: int
    """How often a span is measured, repetitions counted."""
    seconds: float
    """For all of them."""
    round_s: float
    """Then, for each plan whose slices are measured."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What there was no time for on a kind of accelerator."""

    key: str
    spans: tuple[Span, ...]
    """Never measured, of those that are measured first."""
    of: int
    """How many these are."""
    seldom: int
    """Long spans that were measured at fewer moments than they should be."""

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "spans": len(self.spans),
            "of": self.of,
            "lengths": list(self.lengths) if self.spans else None,
            "seldom": self.seldom,
        }

    def meaning(self) -> str:
        """Return the consequence for predictions, in words; empty: next to none."""
        if not self.spans:
            return ""
        known = self.of - len(self.spans)
        return (
            f"{self.key}: the times of {len(self.spans)} of {self.of} slices are extrapolated from"
            f" the {known} that were measured: predicted rates may be far too high, and a mapping"
            " that looks faster may be slower"
        )

    @property
    def lengths(self) -> tuple[int, int]:
        """Fewest and most layers of the spans that were never measured."""
        lengths = [*map(_length, self.spans)]
        return min(lengths), max(lengths)


def left_out_of(
    kind: ProfiledKind, model: ProfiledModel, can_run: Callable[[Span], bool]
) -> LeftOut | None:
    """Return the spans of a kind there was no time for; ``None``: all were measured."""
    layers = len(model.layers)
    wanted = [span for span in first_spans(layers) if can_run(span)]
    moments = {(span.first, span.last): len(span.moments) for span in kind.spans}
    never = tuple(span for span in wanted if span not in moments)
    long = (moments[span] for span in wanted if span in moments and is_long(span, layers))
    seldom = sum(0 < count < MOMENTS for count in long)
    return LeftOut(kind.key, never, len(wanted), seldom) if never or seldom else None


class TimeLimit:
    def __init__(self, seconds: float | None = None) -> None:
        """Begin now; ``None``: there is no end."""
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def share(self, of: float) -> TimeLimit:
        """Return a limit after this share of what is left."""
        left = self._end - time.monotonic()
        return TimeLimit(None if math.isinf(left) else max(0.0, left) * of)
