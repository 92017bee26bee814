"""The front of an exploration in projections: a chart for each two objectives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankslice.exploration.objectives import OBJECTIVES, Objective
from rankslice.exploration.results.answer import boards_text
from rankslice.exploration.results.records import Exploration

_WIDTH, _HEIGHT = 460, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 444, 26, 268
_MAX_TICKS = 6
_MARGIN = 0.06


@dataclass(frozen=True, slots=True)
class Tick:
    """A round value of an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Point:
    """A mapping in a chart."""

    number: int
    x: float
    y: float
    on_front: bool
    label: str

    @property
    def number_y(self) -> float:
        """Where the number stands: above the point, or below where the axis is labelled above."""
        return round(self.y + (21 if self.y < _TOP + 24 else -13), 1)


@dataclass(frozen=True, slots=True)
class Chart:
    """One projection of the front; all lengths are pixels."""

    title: str
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    points: tuple[Point, ...]
    target: float | None
    """Where the wanted rate is on the horizontal axis."""
    width: int = _WIDTH
    height: int = _HEIGHT
    left: int = _LEFT
    right: int = _RIGHT
    top: int = _TOP
    bottom: int = _BOTTOM


def charts_of(exploration: Exploration) -> Iterator[Chart]:
    """Yield a projection for each two objectives; throughput is always shown."""
    names = list(dict.fromkeys(("throughput", *exploration.objectives)))
    if len(names) < 2:
        names.append("latency")
    for x, y in itertools.combinations([OBJECTIVES[name] for name in names], 2):
        yield _chart(x, y, exploration)


def _chart(x: Objective, y: Objective, exploration: Exploration) -> Chart:
    # Those of the front lie on top.
    candidates = sorted(exploration.candidates, key=lambda candidate: candidate.on_front)
    values = {
        candidate.number: (horizontal, vertical)
        for candidate in candidates
        if (horizontal := x.value(candidate, candidate.best_known)) is not None
        if (vertical := y.value(candidate, candidate.best_known)) is not None
    }
    target = exploration.target_fps if x.name == "throughput" else None
    wanted = () if target is None else (target,)
    across = _Axis([x.axis.convert(value) for value, _ in values.values()], _LEFT, _RIGHT, wanted)
    down = _Axis([y.axis.convert(value) for _, value in values.values()], _BOTTOM, _TOP)
    return Chart(
        title=f"{x.name.capitalize()} and {y.name}",
        x_label=x.axis.name,
        y_label=y.axis.name,
        x_ticks=across.ticks,
        y_ticks=down.ticks,
        points=tuple(
            Point(
                candidate.number,
                across.pixel(x.axis.convert(values[candidate.number][0])),
                down.pixel(y.axis.convert(values[candidate.number][1])),
                candidate.on_front,
                f"mapping {candidate.number}: {boards_text(len(candidate.boards))},"
                f" {x.full_text(values[candidate.number][0])},"
                f" {y.full_text(values[candidate.number][1])}",
            )
            for candidate in candidates
            if candidate.number in values
        ),
        target=None if target is None else across.pixel(target),
    )


class _Axis:
    """An axis, with round values on it."""

    def __init__(
        self, values: Sequence[float], start: float, end: float, wanted: Sequence[float] = ()
    ) -> None:
        """Take the values that have to lie on it, and the pixels where it starts and ends."""
        self._low, self._high, marks = _scale([*values, *wanted] or [0.0, 1.0])
        self._start, self._end = start, end
        self.ticks = tuple(Tick(self.pixel(value), f"{value:g}") for value in marks)

    def pixel(self, value: float) -> float:
        """Return where a value lies."""
        length = self._end - self._start
        return round(self._start + length * (value - self._low) / (self._high - self._low), 1)


def _scale(values: Sequence[float]) -> tuple[float, float, tuple[float, ...]]:
    """Return the ends of an axis and the round values on it."""
    low, high = min(values), max(values)
    room = (high - low) * _MARGIN or abs(high) * 0.1 or 1.0
    # An axis begins at zero unless that would press all points together.
    low = 0.0 if low < 0.5 * high else low - room
    high += room
    step = _round_step((high - low) / _MAX_TICKS)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return low, high, tuple(round(number * step, 12) for number in range(first, last + 1))


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that is no less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * 0.999)
