"""Charts as SVG, for the figures of a page: numbers in, markup out.

Colours and type are those of the page's style. A series has a line of its own above the chart, so
long names run into nothing; values that an axis cannot show are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rankslice.framework.wording import printable
from rankslice.views.content import Figure, Table
from rankslice.views.scales import Axis, Scale
from rankslice.views.svg import element, picture

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
class Bin:
    """How many values lie from ``low`` to ``high``."""

    low: float
    high: float
    count: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval."""

    name: str
    value: float
    low: float
    high: float
    text: str = ""
    """As it is written beside the name."""


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
    rows = tuple((one.name, _digits(p.x), _digits(p.y)) for one in series for p in one.points)
    svg = line_chart(series, x, y, x_marks=x_marks, y_marks=y_marks)
    return Figure(caption, svg, Table(caption, ("of", x.label, y.label), rows))


def histogram_figure(
    caption: str, bins: Sequence[Bin], x: Axis, *, x_marks: Sequence[Mark] = ()
) -> Figure:
    rows = tuple(tuple(map(_digits, (one.low, one.high, one.count))) for one in bins)
    table = Table(caption, (f"{x.label} from", "to", "frames"), rows)
    return Figure(caption, histogram_chart(bins, x, x_marks=x_marks), table)


def bar_figure(caption: str, bars: Sequence[Bar], kinds: Sequence[str], axis: Axis) -> Figure:
    """Return a bar for each name, with a part for each kind; all of them begin at zero.

    Args:
        caption: of the figure.
        bars: as many parts each as there are kinds; one if there is none.
        kinds: what the parts are.
        axis: linear.
    """
    rows = tuple((bar.name, *map(_digits, bar.parts)) for bar in bars)
    table = Table(caption, (axis.label, *(kinds or ("",))), rows)
    return Figure(caption, stacked_bars(bars, kinds, axis), table)


def _digits(value: float) -> str:
    return f"{value:.6g}"


def line_chart(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    x_marks: Sequence[Mark] = (),
    y_marks: Sequence[Mark] = (),
) -> Markup:
    top, keys = _keys([one.name for one in series] if len(series) > 1 else [])
    bottom = top + _PLOT
    points = [point for one in series for point in one.points]
    across = Scale(x, [*(p.x for p in points), *(m.value for m in x_marks)], LEFT, RIGHT)
    ends = [end for p in points for end in (p.y, p.low, p.high) if end is not None]
    up = Scale(y, [*ends, *(mark.value for mark in y_marks)], bottom, top)
    lines: list[Markup] = []
    dots: list[Markup] = []
    for number, one in enumerate(series):
        shown = [p for p in one.points if across.shows(p.x) and up.shows(p.y)]
        places = [(across.pixel(point.x), up.pixel(point.y)) for point in shown]
        for point, (at, _) in zip(shown, places, strict=True):
            low, high = point.low, point.high
            if low is not None and high is not None and up.shows(low) and up.shows(high):
                lines.append(_line(number, [(at, up.pixel(low)), (at, up.pixel(high))], "interval"))
        is_line = one.is_joined and len(places) > 1
        if is_line:
            lines.append(_line(number, places, "curve"))
        if not is_line or len(places) <= _MAX_DOTS:
            dots += (_dot(number, *place) for place in places)
    marks = _marks(across, up, x_marks, y_marks)
    label = f"{y.label} over {x.label}"
    parts = (*axes(across, bottom, top, up), *keys, *lines, *dots, *marks)
    return picture(label, WIDTH, bottom + _BELOW, parts)


def histogram_chart(bins: Sequence[Bin], x: Axis, *, x_marks: Sequence[Mark] = ()) -> Markup:
    top, _ = _keys([])
    bottom = top + _PLOT
    ends = [end for one in bins for end in (one.low, one.high)]
    across = Scale(x, [*ends, *(mark.value for mark in x_marks)], LEFT, RIGHT)
    y = Axis("frames")
    up = Scale(y, [0.0, *(one.count for one in bins)], bottom, top, whole=True)
    areas = []
    for one in bins:
        if across.shows(one.low) and across.shows(one.high) and up.shows(one.count):
            left, height = across.pixel(one.low), up.pixel(one.count)
            if height < bottom:
                width = max(1.0, across.pixel(one.high) - left - 0.5)
                areas.append(_area(0, left, height, width, bottom - height))
    marks = _marks(across, up, x_marks, ())
    parts = (*axes(across, bottom, top, up), *areas, *marks)
    return picture(f"frames over {x.label}", WIDTH, bottom + _BELOW, parts)


def interval_chart(
    estimates: Sequence[Estimate], axis: Axis, *, reference: Mark | None = None
) -> Markup:
    """Return a chart with a line for each value and its interval, the name above it."""
    values = [end for one in estimates for end in (one.value, one.low, one.high)]
    marked = [reference.value] if reference else []
    top = 6 + _LINE * len(marked)
    across = Scale(axis, [*values, *marked], WIDTH - RIGHT, RIGHT)
    names = [(one.name, one.text) for one in estimates]
    lines, dots = [], []
    for number, one in enumerate(estimates):
        if all(map(across.shows, (one.value, one.low, one.high))):
            y = top + (number + 0.7) * _ROW
            lines.append(
                _line(0, [(across.pixel(one.low), y), (across.pixel(one.high), y)], "interval")
            )
            dots.append(_dot(0, across.pixel(one.value), y))
    parts = [*lines, *dots]
    if reference and across.shows(reference.value):
        at = across.pixel(reference.value)
        text = _shortened(reference.text, _LETTERS // 2)
        parts.append(_upright(at, top, top + _ROW * len(names)))
        parts.append(_over(at, top - 6, text, "end" if at > WIDTH / 2 else ""))
    return _rows(names, across, top, parts)


def stacked_bars(bars: Sequence[Bar], kinds: Sequence[str], axis: Axis) -> Markup:
    top, keys = _keys(kinds, begin=6)
    sums = [sum(part for part in bar.parts if part > 0) for bar in bars]
    across = Scale(axis, [0.0, *sums], WIDTH - RIGHT, RIGHT, whole=True)
    areas = []
    for number, bar in enumerate(bars):
        begin = 0.0
        for colour, part in enumerate(bar.parts):
            if part > 0 and across.shows(begin + part):
                left, right = across.pixel(begin), across.pixel(begin + part)
                y = top + number * _ROW + 22
                areas.append(_area(colour, left, y, max(0.5, right - left), 15))
                begin += part
    return _rows([(bar.name, bar.text) for bar in bars], across, top, [*keys, *areas])


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


def _rows(
    names: Sequence[tuple[str, str]], across: Scale, top: float, content: Sequence[Markup]
) -> Markup:
    bottom = top + _ROW * len(names)
    parts = [*axes(across, bottom, top), *content]
    for number, (name, text) in enumerate(names):
        y = top + number * _ROW + 16
        parts.append(
            _over(across.start + 6, y, _shortened(name, max(12, _LETTERS - len(text) - 2)))
        )
        if text:
            parts.append(_over(RIGHT, y, text, "end"))
    return picture(across.axis.label, WIDTH, bottom + _BELOW, parts)


def _keys(names: Sequence[str], begin: float = 26) -> tuple[float, list[Markup]]:
    """Return where the plot begins, and a line above it for each name."""
    keys = []
    for number, name in enumerate(names):
        y = begin + _LINE * number + 6
        colour = element("rect", class_="area", x=4, y=y - 10, width=11, height=11, rx=2)
        text = element("text", _shortened(name, _LETTERS), x=20, y=y)
        keys.append(element("g", colour, text, class_=f"series-{number % _COLOURS}"))
    return begin + _LINE * len(names), keys


def _marks(
    across: Scale, up: Scale, x_marks: Sequence[Mark], y_marks: Sequence[Mark]
) -> Iterator[Markup]:
    """Yield lines for marks; the texts of those on the horizontal axis stand below each other."""
    bottom, top, right = up.start, up.end, across.end
    for mark in y_marks:
        if up.shows(mark.value):
            y = up.pixel(mark.value)
            yield element("line", class_="target", x1=across.start, x2=right, y1=y, y2=y)
            yield _over(right, y - 5, _shortened(mark.text, _LETTERS), "end")
    for number, mark in enumerate(mark for mark in x_marks if across.shows(mark.value)):
        x, y = across.pixel(mark.value), top + 12 + 15 * number
        is_left = x > (across.start + right) / 2
        yield _upright(x, top, bottom)
        text = _shortened(mark.text, _LETTERS // 2)
        yield _over(x - 5 if is_left else x + 5, y, text, "end" if is_left else "")


def _line(number: int, places: Sequence[tuple[float, float]], kind: str) -> Markup:
    points = " ".join(f"{x:g},{round(y, 1):g}" for x, y in places)
    return element("polyline", class_=f"{kind} series-{number % _COLOURS}", points=points)


def _dot(number: int, x: float, y: float) -> Markup:
    return element("circle", class_=f"area series-{number % _COLOURS}", cx=x, cy=y, r=3.5)


def _area(number: int, x: float, y: float, width: float, height: float) -> Markup:
    kind = f"area series-{number % _COLOURS}"
    return element("rect", class_=kind, x=x, y=y, width=width, height=height)


def _upright(x: float, top: float, bottom: float) -> Markup:
    return element("line", class_="target", x1=x, x2=x, y1=top, y2=bottom)


def _over(x: float, y: float, text: str, side: str = "") -> Markup:
    """Return a text over the plot; its place is its beginning, or its ``end``."""
    return element("text", text, class_=f"over {side}".rstrip(), x=x, y=y)


def _shortened(text: str, most: int) -> str:
    """Return a text that has room, without its middle if need be."""
    text = printable(text)
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[: most - 1 - half]}…{text[-half:]}"
