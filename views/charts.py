"""Charts as SVG, for the figures of a page: numbers in, markup out.

Colours and type are those of the page's style. A series has a line of its own above the chart, so
long names run into nothing; values that an axis cannot show are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from rankslice.framework.wording import number_text
from rankslice.measurement.bench.intervals import Interval
from rankslice.views.content import Figure, Table
from rankslice.views.svg import element, picture
from rankslice.views.terminal import shortened

WIDTH = 440
"""Of a chart; this and all other lengths are pixels."""
LEFT, RIGHT = 58, 424
"""Of its plot."""
_PLOT = 230
_BELOW = 42
_LINE = 19
_ROW = 44
_COLOURS = 8
_LETTERS = 50
"""How many letters have room in a line."""
_MAX_DOTS = 12
"""On a line of more points only the line is drawn."""
_MAX_TICKS = 6
_MARGIN = 0.06
_HALF_LETTER, _MIN_GAP = 3.8, 6
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
        """Take the first and the last pixel of an axis, and the values that have to lie on it.

        Values that it cannot show are passed over. ``whole``: a linear axis begins at zero in any
        case, as bars need it.
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


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a series, with its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together."""

    name: str
    points: tuple[Point, ...]
    is_joined: bool = True
    """Whether a line goes through the points; otherwise each is a dot."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A value of an axis that has a line across the chart, and what it is."""

    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of several parts, one for each kind."""

    name: str
    parts: tuple[float, ...]
    text: str = ""


def line_figure(
    caption: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    x_marks: Sequence[Mark] = (),
    y_marks: Sequence[Mark] = (),
) -> Figure:
    """Return lines or dots, with intervals from top to bottom where points have them."""
    points = [point for one in series for point in one.points]
    ends = [end for p in points for end in (p.y, p.low, p.high) if end is not None]
    chart = _Chart(26, [one.name for one in series] if len(series) > 1 else [])
    bottom = chart.top + _PLOT
    across = Scale(x, [*(p.x for p in points), *(mark.value for mark in x_marks)], LEFT, RIGHT)
    up = Scale(y, [*ends, *(mark.value for mark in y_marks)], bottom, chart.top)
    chart.parts += axes(across, bottom, chart.top, up)
    for number, one in enumerate(series):
        shown = [p for p in one.points if across.shows(p.x) and up.shows(p.y)]
        places = [(across.pixel(point.x), up.pixel(point.y)) for point in shown]
        for point, (at, _) in zip(shown, places, strict=True):
            low, high = point.low, point.high
            if low is not None and high is not None and up.shows(low) and up.shows(high):
                chart.line(number, [(at, up.pixel(low)), (at, up.pixel(high))], "interval")
        is_line = one.is_joined and len(places) > 1
        if is_line:
            chart.line(number, places, "curve")
        if not is_line or len(places) <= _MAX_DOTS:
            chart.add_dots(number, places)
    chart.marks(across, up, x_marks, y_marks)
    rows = tuple((one.name, _digits(p.x), _digits(p.y)) for one in series for p in one.points)
    table = Table(caption, ("of", x.label, y.label), rows)
    return Figure(caption, chart.svg(f"{y.label} over {x.label}", bottom), table)


def histogram_figure(
    caption: str, bins: Sequence[Sequence[float]], x: Axis, *, x_marks: Sequence[Mark] = ()
) -> Figure:
    """Return a bar for each bin, of which there are both ends and the number of frames in it."""
    chart = _Chart(26)
    bottom = chart.top + _PLOT
    ends = [end for low, high, _ in bins for end in (low, high)]
    across = Scale(x, [*ends, *(mark.value for mark in x_marks)], LEFT, RIGHT)
    counts = [0.0, *(count for _, _, count in bins)]
    up = Scale(Axis("frames"), counts, bottom, chart.top, whole=True)
    chart.parts += axes(across, bottom, chart.top, up)
    for low, high, count in bins:
        if across.shows(low) and across.shows(high) and up.shows(count):
            left, height = across.pixel(low), up.pixel(count)
            if height < bottom:
                width = max(1.0, across.pixel(high) - left - 0.5)
                chart.area(0, left, height, width, bottom - height)
    chart.marks(across, up, x_marks)
    rows = tuple(tuple(map(_digits, one)) for one in bins)
    table = Table(caption, (f"{x.label} from", "to", "frames"), rows)
    return Figure(caption, chart.svg(f"frames over {x.label}", bottom), table)


def interval_figure(
    caption: str, intervals: Sequence[tuple[str, Interval]], axis: Axis, reference: Mark
) -> Figure:
    """Return a line for each interval, its name and value above it."""
    values = [end for _, one in intervals for end in (one.value, one.low, one.high)]
    chart = _Chart(6 + _LINE)
    across = Scale(axis, [*values, reference.value], WIDTH - RIGHT, RIGHT)
    bottom = chart.rows([(name, number_text(one.value)) for name, one in intervals], across)
    for number, (_, one) in enumerate(intervals):
        if all(map(across.shows, (one.value, one.low, one.high))):
            y = chart.top + (number + 0.7) * _ROW
            interval = [(across.pixel(one.low), y), (across.pixel(one.high), y)]
            chart.line(0, interval, "interval")
            chart.add_dots(0, [(across.pixel(one.value), y)])
    if across.shows(reference.value):
        at = across.pixel(reference.value)
        chart.upright(at, chart.top, bottom)
        side = "end" if at > WIDTH / 2 else ""
        chart.text(at, chart.top - 6, reference.text, _LETTERS // 2, side)
    return Figure(caption, chart.svg(axis.label, bottom))


def bar_figure(caption: str, bars: Sequence[Bar], kinds: Sequence[str], axis: Axis) -> Figure:
    """Return bars that begin at zero, with a part for each kind; without kinds they have one."""
    chart = _Chart(6, kinds)
    sums = [sum(part for part in bar.parts if part > 0) for bar in bars]
    across = Scale(axis, [0.0, *sums], WIDTH - RIGHT, RIGHT, whole=True)
    bottom = chart.rows([(bar.name, bar.text) for bar in bars], across)
    for number, bar in enumerate(bars):
        begin = 0.0
        for colour, part in enumerate(bar.parts):
            if part > 0 and across.shows(begin + part):
                left, right = across.pixel(begin), across.pixel(begin + part)
                y = chart.top + number * _ROW + 22
                chart.area(colour, left, y, max(0.5, right - left), 15)
                begin += part
    rows = tuple((bar.name, *map(_digits, bar.parts)) for bar in bars)
    table = Table(caption, (axis.label, *(kinds or ("",))), rows)
    return Figure(caption, chart.svg(axis.label, bottom), table)


def _digits(value: float) -> str:
    return f"{value:.6g}"


def axes(across: Scale, bottom: float, top: float, up: Scale | None = None) -> Iterator[Markup]:
    """Yield the axes of a plot with its grid; ``up`` is the vertical one, if there is one."""
    left, right = across.start, across.end
    for tick in across.ticks:
        yield element("line", class_="grid", x1=tick.at, x2=tick.at, y1=top, y2=bottom)
        yield element("text", tick.text, class_="dim middle", x=tick.at, y=bottom + 18)
    for tick in up.ticks if up else ():
        yield element("line", class_="grid", x1=left, x2=right, y1=tick.at, y2=tick.at)
        yield element("text", tick.text, class_="dim end", x=left - 6, y=tick.at + 4)
    yield element("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom)
    yield element("line", class_="axis", x1=left, x2=left, y1=top, y2=bottom)
    label = across.axis.label
    yield element("text", label, class_="middle", x=(left + right) / 2, y=bottom + _BELOW - 6)
    if up:
        yield element("text", up.axis.label, x=4, y=14)


class _Chart:
    """A chart in the making."""

    def __init__(self, top: float, names: Sequence[str] = ()) -> None:
        """Begin with a line for each name; the plot begins below them."""
        self.top = top + _LINE * len(names)
        self.parts: list[Markup] = []
        self._over: list[Markup] = []
        """What is drawn over the parts."""
        for number, name in enumerate(names):
            y = top + _LINE * number + 6
            colour = element("rect", class_="area", x=4, y=y - 10, width=11, height=11, rx=2)
            text = element("text", shortened(name, _LETTERS), x=20, y=y)
            self.parts.append(element("g", colour, text, class_=_class("", number)))

    def svg(self, label: str, bottom: float) -> Markup:
        return picture(label, WIDTH, bottom + _BELOW, [*self.parts, *self._over])

    def rows(self, names: Sequence[tuple[str, str]], across: Scale) -> float:
        """Draw the axis, and a row for each name with a text on the right; return their end."""
        bottom = self.top + _ROW * len(names)
        self.parts += axes(across, bottom, self.top)
        for number, (name, text) in enumerate(names):
            y = self.top + number * _ROW + 16
            self.text(across.start + 6, y, name, max(12, _LETTERS - len(text) - 2))
            if text:
                self.text(RIGHT, y, text, _LETTERS, "end")
        return bottom

    def marks(
        self, across: Scale, up: Scale, x_marks: Sequence[Mark], y_marks: Sequence[Mark] = ()
    ) -> None:
        """Draw lines for marks; texts of those on the horizontal axis stand below each other."""
        bottom, top, right = up.start, up.end, across.end
        for mark in y_marks:
            if up.shows(mark.value):
                y = up.pixel(mark.value)
                self._target(across.start, right, y, y)
                self.text(right, y - 5, mark.text, _LETTERS, "end")
        for number, mark in enumerate(mark for mark in x_marks if across.shows(mark.value)):
            x, y = across.pixel(mark.value), top + 12 + 15 * number
            is_left = x > (across.start + right) / 2
            self.upright(x, top, bottom)
            at, side = (x - 5, "end") if is_left else (x + 5, "")
            self.text(at, y, mark.text, _LETTERS // 2, side)

    def upright(self, x: float, top: float, bottom: float) -> None:
        self._target(x, x, top, bottom)

    def _target(self, x1: float, x2: float, y1: float, y2: float) -> None:
        self._over.append(element("line", class_="target", x1=x1, x2=x2, y1=y1, y2=y2))

    def line(self, number: int, places: Sequence[tuple[float, float]], kind: str) -> None:
        points = " ".join(f"{x:g},{round(y, 1):g}" for x, y in places)
        self.parts.append(element("polyline", class_=_class(kind, number), points=points))

    def add_dots(self, number: int, places: Iterable[tuple[float, float]]) -> None:
        kind = _class("area", number)
        self._over += (element("circle", class_=kind, cx=x, cy=y, r=3.5) for x, y in places)

    def area(self, number: int, x: float, y: float, width: float, height: float) -> None:
        kind = _class("area", number)
        self.parts.append(element("rect", class_=kind, x=x, y=y, width=width, height=height))

    def text(self, x: float, y: float, text: str, most: int, side: str = "") -> None:
        """Write a text over the plot; its place is its beginning, or its ``end``."""
        kind = f"over {side}".rstrip()
        self._over.append(element("text", shortened(text, most), class_=kind, x=x, y=y))


def _class(kind: str, number: int) -> str:
    return f"{kind} series-{number % _COLOURS}".strip()
