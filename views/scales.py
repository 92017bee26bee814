"""Axes of charts: where values lie, and the round values that are written beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

_MAX_TICKS = 6
_MARGIN = 0.06
_HALF_LETTER, _MIN_GAP = 3.8, 6
"""Pixels."""
_PERCENTILES = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)


@dataclass(frozen=True, slots=True)
class Axis:
    """What lies along an axis."""

    label: str
    """With the unit."""
    scale: Literal["linear", "log", "percentile"] = "linear"
    """``percentile``: per cent from 0 to 100, each nine of 99.99 as far from the last."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A round value of an axis."""

    at: float
    """In pixels."""
    text: str


class Scale:
    """Where values of an axis lie."""

    def __init__(
        self, axis: Axis, values: Iterable[float], start: float, end: float, *, whole: bool = False
    ) -> None:
        """Take what has to lie on the axis.

        Args:
            axis: what it is.
            values: those that the axis cannot show are passed over.
            start: pixel of its beginning.
            end: pixel of its end.
            whole: whether a linear axis begins at zero in any case, as bars need it.
        """
        self.axis, self.start, self.end = axis, start, end
        shown = sorted({value for value in values if self.shows(value)})
        if axis.scale == "percentile":
            nines = max((value for value in shown if value < 100), default=90.0)
            self._low, self._high = 0.0, max(1.3, _nines(nines) + 0.3)
            marks = [value for value in _PERCENTILES if _nines(value) <= self._high]
        elif axis.scale == "log":
            self._low, self._high, marks = _log_scale(shown or [1.0, 10.0])
        else:
            self._low, self._high, marks = _linear_scale(shown or [0.0, 1.0], whole=whole)
        self.ticks = _apart([Tick(self.pixel(value), f"{value:g}") for value in marks])

    def shows(self, value: float) -> bool:
        """Tell whether a value can lie on the axis: it is finite, and positive for logarithms."""
        return math.isfinite(value) and (value > 0 or self.axis.scale != "log")

    def pixel(self, value: float) -> float:
        """Return the position of a value in pixels; the hundredth percentile is at the end."""
        at = value
        if self.axis.scale == "log":
            at = math.log10(value)
        elif self.axis.scale == "percentile":
            at = self._high if value >= 100 else _nines(value)
        share = (at - self._low) / (self._high - self._low)
        return round(self.start + (self.end - self.start) * share, 1)


def _nines(percentile: float) -> float:
    """Return the number of nines: 1 for 90, 2 for 99."""
    return 2 - math.log10(100 - min(max(percentile, 0.0), 100 - 1e-9))


def _log_scale(values: Sequence[float]) -> tuple[float, float, list[float]]:
    """Return the decimal logarithms of the ends, and the round values between."""
    low, high = math.log10(values[0]), math.log10(values[-1])
    room = (high - low) * _MARGIN or 0.5
    low, high = low - room, high + room
    factors = (1, 2, 5) if high - low < 3 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1, max(1, round((high - low) / _MAX_TICKS)))
    marks = [factor * 10.0**power for power in powers for factor in factors]
    return low, high, [mark for mark in marks if low <= math.log10(mark) <= high]


def _linear_scale(values: Sequence[float], *, whole: bool) -> tuple[float, float, list[float]]:
    low, high = values[0], values[-1]
    room = (high - low) * _MARGIN or abs(high) * 0.1 or 1.0
    # An axis begins at zero unless that would press all points together.
    begins_at_zero = whole or low < 0.5 * high
    low = min(0.0, low) if begins_at_zero else low - room
    high += room
    step = _round_step((high - low) / _MAX_TICKS)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return low, high, [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that is no less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * 0.999)


def _apart(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Leave out ticks of an axis to the right whose texts would run into each other."""
    kept: list[Tick] = []
    for tick in ticks:
        room = _HALF_LETTER * len(tick.text + kept[-1].text) + _MIN_GAP if kept else 0
        if not kept or not 0 < tick.at - kept[-1].at < room:
            kept.append(tick)
    return tuple(kept)
