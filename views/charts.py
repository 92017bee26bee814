"""Charts as SVG, for the figures of a page: numbers in, markup out.

Colours and type are those of the page's style. A series has a line of its own above the chart, so
long names run into nothing; values that an axis cannot show are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankslice.framework.files.templates import render_markup
from rankslice.framework.wording import printable
from rankslice.views.scales import Axis, Scale, Tick

__all__ = [
    "Axis",
    "Bar",
    "Bin",
    "Estimate",
    "Frame",
    "Mark",
    "Point",
    "Series",
    "histogram_chart",
    "interval_chart",
    "line_chart",
    "stacked_bars",
]

WIDTH = 440
"""Of a chart; this and all other lengths are pixels."""
_LEFT, _RIGHT = 58, 424
_PLOT = 230
_LINE = 19
_ROW = 44
_COLOURS = 8
_LETTERS = 50
"""How many letters have room in a line."""


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


@dataclass(frozen=True, slots=True)
class Key:
    """A line above the chart: a colour, and what has it."""

    colour: int
    text: str
    y: float


@dataclass(frozen=True, slots=True)
class Area:
    """A filled rectangle."""

    colour: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points, or an interval."""

    colour: int
    points: str
    """As SVG has them: ``1,2 3,4``."""
    kind: str = "curve"


@dataclass(frozen=True, slots=True)
class Dot:
    """A point."""

    colour: int
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Label:
    """A text in the chart."""

    x: float
    y: float
    text: str
    side: str = ""
    """``end`` or ``middle``: where its place is; otherwise that is its beginning."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The axes of a chart, and where its plot lies."""

    width: int
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """All that the template writes."""

    label: str
    frame: Frame
    keys: tuple[Key, ...] = ()
    areas: tuple[Area, ...] = ()
    curves: tuple[Curve, ...] = ()
    dots: tuple[Dot, ...] = ()
    across: tuple[float, ...] = ()
    """Heights of lines from left to right."""
    down: tuple[float, ...] = ()
    """Where lines from top to bottom are."""
    labels: tuple[Label, ...] = ()


def line_chart(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    x_marks: Sequence[Mark] = (),
    y_marks: Sequence[Mark] = (),
) -> str:
    """Return a chart of lines or dots, with intervals from top to bottom where points have them."""
    top, keys = _keys([each.name for each in series] if len(series) > 1 else [])
    bottom = top + _PLOT
    points = [point for each in series for point in each.points]
    across = Scale(x, [*(p.x for p in points), *(m.value for m in x_marks)], _LEFT, _RIGHT)
    ends = [each for p in points for each in (p.y, p.low, p.high) if each is not None]
    up = Scale(y, [*ends, *(mark.value for mark in y_marks)], bottom, top)
    drawing = _Drawing(f"{y.label} over {x.label}", _frame(top, bottom, x, y, across, up), keys)
    for number, each in enumerate(series):
        colour = number % _COLOURS
        shown = [p for p in each.points if across.shows(p.x) and up.shows(p.y)]
        places = [(across.pixel(point.x), up.pixel(point.y)) for point in shown]
        intervals = [
            _interval(colour, [(at, up.pixel(point.low)), (at, up.pixel(point.high))])
            for point, (at, _) in zip(shown, places, strict=True)
            if point.low is not None and up.shows(point.low)
            if point.high is not None and up.shows(point.high)
        ]
        line = [Curve(colour, _path(places))] if each.is_joined and len(places) > 1 else []
        dots = () if line and len(places) > 12 else (Dot(colour, *place) for place in places)
        drawing = replace(
            drawing,
            curves=(*drawing.curves, *intervals, *line),
            dots=(*drawing.dots, *dots),
        )
    return _svg(_marked(drawing, across, up, x_marks, y_marks))


def histogram_chart(bins: Sequence[Bin], x: Axis, *, x_marks: Sequence[Mark] = ()) -> str:
    """Return a histogram of frames."""
    top, _ = _keys([])
    bottom = top + _PLOT
    ends = [end for each in bins for end in (each.low, each.high)]
    across = Scale(x, [*ends, *(mark.value for mark in x_marks)], _LEFT, _RIGHT)
    y = Axis("frames")
    up = Scale(y, [0.0, *(each.count for each in bins)], bottom, top, whole=True)
    areas = tuple(
        Area(0, left, height, max(1.0, round(across.pixel(each.high) - left - 0.5, 1)), depth)
        for each in bins
        if across.shows(each.low) and across.shows(each.high) and up.shows(each.count)
        for left, height in [(across.pixel(each.low), up.pixel(each.count))]
        if (depth := round(bottom - height, 1)) > 0
    )
    frame = _frame(top, bottom, x, y, across, up)
    drawing = _Drawing(f"{y.label} over {x.label}", frame, areas=areas)
    return _svg(_marked(drawing, across, up, x_marks, ()))


def interval_chart(
    estimates: Sequence[Estimate], axis: Axis, *, reference: Mark | None = None
) -> str:
    """Return a chart with a line for each value and its interval, the name above it."""
    values = [end for each in estimates for end in (each.value, each.low, each.high)]
    across, drawing = _rows(
        [(each.name, each.text) for each in estimates],
        *(axis, [*values, *([reference.value] if reference else [])], []),
        lines_above=1 if reference else 0,
    )
    curves, dots = [], []
    for number, each in enumerate(estimates):
        if all(map(across.shows, (each.value, each.low, each.high))):
            y = drawing.frame.top + (number + 0.7) * _ROW
            ends = [(across.pixel(each.low), y), (across.pixel(each.high), y)]
            curves.append(_interval(0, ends))
            dots.append(Dot(0, across.pixel(each.value), round(y, 1)))
    drawing = replace(drawing, curves=tuple(curves), dots=tuple(dots))
    if reference and across.shows(reference.value):
        at = across.pixel(reference.value)
        side = "end" if at > WIDTH / 2 else ""
        text = Label(at, drawing.frame.top - 6, _shortened(reference.text, _LETTERS // 2), side)
        drawing = replace(drawing, down=(at,), labels=(*drawing.labels, text))
    return _svg(drawing)


def stacked_bars(bars: Sequence[Bar], kinds: Sequence[str], axis: Axis) -> str:
    """Return a bar for each name, with a part for each kind; all of them begin at zero.

    Args:
        bars: as many parts each as there are kinds.
        kinds: what the parts are.
        axis: linear.
    """
    sums = [sum(part for part in bar.parts if part > 0) for bar in bars]
    across, drawing = _rows(
        [(bar.name, bar.text) for bar in bars], axis, [0.0, *sums], kinds, whole=True
    )
    areas = []
    for number, bar in enumerate(bars):
        begin = 0.0
        for colour, part in enumerate(bar.parts):
            if part > 0 and across.shows(begin + part):
                left, right = across.pixel(begin), across.pixel(begin + part)
                y = drawing.frame.top + number * _ROW + 22
                areas.append(
                    Area(colour % _COLOURS, left, y, max(0.5, round(right - left, 1)), 15.0)
                )
                begin += part
    return _svg(replace(drawing, areas=tuple(areas)))


def _rows(
    names: Sequence[tuple[str, str]],
    axis: Axis,
    values: Sequence[float],
    kinds: Sequence[str],
    *,
    whole: bool = False,
    lines_above: int = 0,
) -> tuple[Scale, _Drawing]:
    """Return the scale and the beginning of a chart with a row for each name."""
    top, keys = _keys(kinds, labelled=False)
    top += _LINE * lines_above
    bottom = top + _ROW * len(names)
    left = WIDTH - _RIGHT
    across = Scale(axis, values, left, _RIGHT, whole=whole)
    labels = []
    for number, (name, text) in enumerate(names):
        y = top + number * _ROW + 16
        room = max(12, _LETTERS - len(text) - 2)
        labels.append(Label(left + 6, y, _shortened(name, room)))
        if text:
            labels.append(Label(_RIGHT, y, text, "end"))
    frame = Frame(
        WIDTH, bottom + 42, left, _RIGHT, top, bottom, axis.label, "", across.ticks, y_ticks=()
    )
    return across, _Drawing(axis.label, frame, keys, labels=tuple(labels))


def _keys(names: Sequence[str], *, labelled: bool = True) -> tuple[float, tuple[Key, ...]]:
    """Return where the plot begins, and a line above it for each name."""
    begin = 26 if labelled else 6
    keys = tuple(
        Key(number % _COLOURS, _shortened(name, _LETTERS), begin + _LINE * number + 6)
        for number, name in enumerate(names)
    )
    return begin + _LINE * len(names), keys


def _frame(top: float, bottom: float, x: Axis, y: Axis, across: Scale, up: Scale) -> Frame:
    return Frame(
        *(WIDTH, bottom + 42, _LEFT, _RIGHT, top, bottom),
        *(x.label, y.label, across.ticks, up.ticks),
    )


def _marked(
    drawing: _Drawing,
    across: Scale,
    up: Scale,
    x_marks: Sequence[Mark],
    y_marks: Sequence[Mark],
) -> _Drawing:
    """Return a drawing with lines for marks; their texts stand one below the other."""
    frame = drawing.frame
    labels = list(drawing.labels)
    down = []
    for number, mark in enumerate(mark for mark in x_marks if across.shows(mark.value)):
        at = across.pixel(mark.value)
        down.append(at)
        is_left = at > (frame.left + frame.right) / 2
        place = at - 5 if is_left else at + 5
        labels.append(
            Label(
                round(place, 1),
                frame.top + 12 + 15 * number,
                _shortened(mark.text, _LETTERS // 2),
                "end" if is_left else "",
            )
        )
    levels = []
    for mark in y_marks:
        if up.shows(mark.value):
            levels.append(up.pixel(mark.value))
            text = _shortened(mark.text, _LETTERS)
            labels.append(Label(frame.right, round(levels[-1] - 5, 1), text, "end"))
    return replace(drawing, down=tuple(down), across=tuple(levels), labels=tuple(labels))


def _interval(colour: int, ends: Sequence[tuple[float, float]]) -> Curve:
    return Curve(colour, _path(ends), "interval")


def _path(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in places)


def _shortened(text: str, most: int) -> str:
    """Return a text that has room, without its middle if need be."""
    text = printable(text)
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[: most - 1 - half]}…{text[-half:]}"


def _svg(drawing: _Drawing) -> str:
    return render_markup("chart.svg.j2", drawing=drawing)
